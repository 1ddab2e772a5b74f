"""Ollama: its own `/api/chat` (a JSON object a line), `/api/tags`, `/api/show`, `/api/version`, and beside them OpenAI's chat protocol at `/v1`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fakes.model import Chat
from tests.fakes.script import Speech, pieces
from tests.fakes.vendors import wordings
from tests.fakes.vendors.vendor import Vendor, unknown, value
from tests.fakes.wire import Asked

_KNOWN = {"model", "messages", "tools", "format", "options", "stream", "think", "keep_alive", "truncate", "shift", "logprobs", "top_logprobs"}
_MESSAGE = {"role", "content", "images", "tool_calls", "thinking", "tool_name", "tool_call_id"}
_TYPES = {400: "invalid_request_error", 404: "not_found_error"}


class Native(Vendor):
    """A connection to who speaks Ollama's own protocol."""

    name = "ollama"
    kind = "application/x-ndjson"

    def is_question(self, asked: Asked) -> bool:
        return (asked.method, asked.path) == ("POST", "/api/chat")

    def key(self, asked: Asked) -> str:
        return asked.headers.get("authorization", "").removeprefix("Bearer ")

    def streamed(self, asked: Asked) -> bool:
        return bool(asked.body.get("stream", True))

    def other(self, asked: Asked) -> Any:
        listed = self.model.script.listed()
        if asked.path == "/api/version":
            return {"version": "0.13.0"}
        if asked.path == "/api/tags":
            return {"models": [{"name": m["id"], "model": m["id"], "size": 1, "digest": "0" * 64, "details": {"family": "llama"}} for m in listed]}
        if (asked.method, asked.path) == ("POST", "/api/show"):
            window = self.model.script.window_tokens or 8192
            info = {"general.architecture": "llama", "llama.context_length": window}
            return {"details": {"family": "llama"}, "model_info": info, "capabilities": ["completion", "tools"]}
        return super().other(asked)

    def said(self, body: Any) -> str:
        return str(body["messages"][-1].get("content") or "")

    def complaints(self, asked: Asked) -> Iterator[str]:
        body = asked.body
        yield from (f'json: unknown field "{key}"' for key in unknown(body, _KNOWN))
        if not body.get("model"):
            yield "model is required"
        if not isinstance(body.get("options", {}), dict):
            yield "options is not an object"
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            yield "messages is required"
            return
        yield from (f"messages[{n}]: {fault}" for n, message in enumerate(messages) for fault in _message(message))
        yield from _results(messages)

    def answer(self, speech: Speech, asked: Asked) -> Any:
        return {**self._head(asked), "message": _message_of(speech), "done": True, **self._end_of(speech, asked)}

    def pieces(self, speech: Speech, asked: Asked) -> tuple[list[bytes], list[bytes]]:
        made: list[dict[str, Any]] = [{"content": "", "thinking": piece} for piece in pieces(speech.reasoning, 4)]
        made += [{"content": piece} for piece in pieces(speech.text or "", speech.rule.get("chunks", 8))]
        made += [{"content": "", "tool_calls": [call]} for call in _message_of(speech).get("tool_calls", [])]
        lines = [{**self._head(asked), "message": {"role": "assistant", **delta}, "done": False} for delta in made]
        last = {**self._head(asked), "message": {"role": "assistant", "content": ""}, "done": True, **self._end_of(speech, asked)}
        return [_line(one) for one in lines], [_line(last)]

    def failed(self, told: Any) -> bytes:
        return _line(told)

    def _head(self, asked: Asked) -> dict[str, Any]:
        return {"model": asked.body["model"], "created_at": "2026-11-30T12:00:00.000000Z"}

    def _end_of(self, speech: Speech, asked: Asked) -> dict[str, Any]:
        found = self.counted(speech, asked)
        reason = "length" if speech.finish == "length" else "stop"
        spent = {"total_duration": 1, "load_duration": 1, "prompt_eval_duration": 1, "eval_duration": 1}
        return {"done_reason": reason, **spent, "prompt_eval_count": found["input"], "eval_count": found["output"]}


class Ollama(Chat):
    """A connection to Ollama: what is no path of OpenAI's is served in its own protocol."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._native = Native(model)

    async def route(self, asked: Asked) -> None:
        if asked.path.startswith("/v1/"):
            return await super().route(asked)
        self._native.transport, self._native.is_counted = self.transport, self.is_counted
        return await self._native.route(asked)

    def told(self, fault: str) -> wordings.Told:
        """As OpenAI's endpoints tell it, in Ollama's words."""
        status, body = wordings.of("ollama", fault)
        return status, {"error": {"message": body["error"], "type": _TYPES.get(status, "api_error"), "param": None, "code": None}}

    def usage(self, speech: Speech, size: int) -> dict[str, Any]:
        """It counts, and tells no more of it."""
        return {name: count for name, count in super().usage(speech, size).items() if not name.endswith("_details")}


def _line(body: Any) -> bytes:
    return json.dumps(body).encode() + b"\n"


def _message_of(speech: Speech) -> dict[str, Any]:
    made: dict[str, Any] = {"role": "assistant", "content": speech.text or ""}
    if speech.reasoning:
        made["thinking"] = speech.reasoning
    if speech.calls:
        made["tool_calls"] = [
            {"id": c.get("id", ""), "function": {"index": n, "name": c["function"]["name"], "arguments": value(c["function"]["arguments"])}}
            for n, c in enumerate(speech.calls)
        ]
    return made


# -- the rules -----------------------------------------------------------------------------------------


def _message(message: Any) -> Iterator[str]:
    if not isinstance(message, dict) or message.get("role") not in ("system", "user", "assistant", "tool"):
        yield "invalid role"
        return
    yield from (f"unknown field {key}" for key in unknown(message, _MESSAGE))
    if not isinstance(message.get("content", ""), str):
        yield "json: cannot unmarshal into Go struct field ChatRequest.messages.content of type string"
    for call in message.get("tool_calls") or []:
        if not isinstance(call.get("function", {}).get("arguments"), dict):
            yield "json: cannot unmarshal string into Go struct field .tool_calls.function.arguments of type api.ToolCallFunctionArguments"


def _results(messages: list[dict[str, Any]]) -> Iterator[str]:
    """A result follows calls, no more results than there were calls."""
    open_ = 0
    for n, message in enumerate(messages):
        if message["role"] == "tool":
            open_ -= 1
            if open_ < 0:
                yield f"messages[{n}]: a result of no call"
        else:
            open_ = len(message.get("tool_calls") or [])


