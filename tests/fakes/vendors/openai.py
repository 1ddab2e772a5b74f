"""OpenAI: the chat completions of tests/fakes/model.py and, beside them at `/v1/responses`, its Responses, whole and by their events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from tests.fakes.model import Chat
from tests.fakes.script import Speech, pieces
from tests.fakes.signing import is_signature, signature
from tests.fakes.vendors.vendor import Vendor, unknown
from tests.fakes.wire import Asked, event

_KNOWN = {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "store", "include"}
_KNOWN |= {"max_output_tokens", "temperature", "top_p", "text", "truncation", "previous_response_id", "metadata", "user", "service_tier"}
_KNOWN |= {"reasoning", "background"}
_KNOWN |= {"prompt_cache_key", "prompt_cache_retention", "safety_identifier", "max_tool_calls", "top_logprobs", "conversation", "prompt"}
_ITEMS = {
    "message": {"type", "role", "content", "id", "status", "phase"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content", "status"},
}
_PARTS = {"user": {"input_text", "input_image", "input_file"}, "assistant": {"output_text", "refusal"}}
_PARTS["system"] = _PARTS["developer"] = {"input_text"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_LEAST = 16  # fewer tokens of output cannot be asked for

Item = dict[str, Any]


class Responses(Vendor):
    """A connection to who speaks OpenAI's Responses."""

    name = "responses"
    signs: ClassVar[dict[str, bytes]] = {**Vendor.signs, "empty": event({"type": "keepalive", "sequence_number": 1}, "keepalive")}

    def is_question(self, asked: Asked) -> bool:
        return (asked.method, asked.path) == ("POST", "/v1/responses")

    def key(self, asked: Asked) -> str:
        return asked.headers.get("authorization", "").removeprefix("Bearer ")

    def streamed(self, asked: Asked) -> bool:
        return bool(asked.body.get("stream"))

    def said(self, body: Any) -> str:
        last = _items(body["input"])[-1]
        if last["type"] == "function_call_output":
            return str(last["output"])
        return "\n".join(part.get("text", "") for part in _parts(last["content"], last["role"]))

    def complaints(self, asked: Asked) -> Iterator[str]:
        body = asked.body
        yield from (f"Unknown parameter: '{key}'." for key in unknown(body, _KNOWN))
        if not isinstance(body.get("model"), str) or not body["model"]:
            yield "Missing required parameter: 'model'."
        if body.get("max_output_tokens", _MOST_LEAST) < _MOST_LEAST:
            yield f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {_MOST_LEAST}."
        if not 0 <= (body.get("temperature") or 0) <= 2:
            yield "Invalid 'temperature': decimal above maximum value. Expected a value <= 2."
        for n, tool in enumerate(body.get("tools") or []):
            if tool.get("type") != "function" or not _NAME.fullmatch(str(tool.get("name") or "")):
                yield f"Missing required parameter: 'tools[{n}].name'."
        if not body.get("input"):
            yield "Missing required parameter: 'input'."
            return
        items = _items(body["input"])
        faults = [f"input[{n}]: {fault}" for n, item in enumerate(items) for fault in _item(item)]
        yield from faults or _pairs(items, needs_reasoning=self.model.script.needs_reasoning)

    def answer(self, speech: Speech, asked: Asked) -> Any:
        status = "incomplete" if speech.finish == "length" or speech.rule.get("blocked") else "completed"
        return self._response(asked, status, self._output(speech), self._usage(speech, asked), speech)

    def pieces(self, speech: Speech, asked: Asked) -> tuple[list[bytes], list[bytes]]:
        blank = self._response(asked, "in_progress", [], None, speech)
        made: list[dict[str, Any]] = [{"type": "response.created", "response": blank}, {"type": "response.in_progress", "response": blank}]
        for n, item in enumerate(self._output(speech)):
            made += _streamed(n, item, speech.rule.get("chunks", 8))
        whole = self.answer(speech, asked)
        made.append({"type": f"response.{whole['status']}", "response": whole})
        events = [event({**one, "sequence_number": n}, one["type"]) for n, one in enumerate(made)]
        return events[:-1], events[-1:]

    def failed(self, told: Any) -> bytes:
        """As it is told: by an event `response.failed`, with a code and a message."""
        error = told["error"]
        response: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "failed", "output": [], "usage": None, "model": ""}
        response |= {"created_at": 0, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        response["error"] = {"code": error["code"] or error["type"], "message": error["message"]}
        return event({"type": "response.failed", "response": response, "sequence_number": 99}, "response.failed")

    def _response(self, asked: Asked, status: str, output: list[Item], usage: Any, speech: Speech) -> dict[str, Any]:
        body = asked.body
        reason = {"reason": "content_filter" if speech.rule.get("blocked") else "max_output_tokens"}
        about = {"id": f"resp_{self.model.requests:04d}", "object": "response", "created_at": 1764500000, "model": body["model"], "error": None}
        told = {"status": status, "incomplete_details": reason if status == "incomplete" else None, "output": output, "usage": usage}
        asked_for = {"instructions": body.get("instructions"), "tools": body.get("tools") or [], "tool_choice": body.get("tool_choice", "auto")}
        extra = {"parallel_tool_calls": True, "temperature": body.get("temperature", 1), "top_p": 1, "metadata": {}}
        extra["text"] = {"format": {"type": "text"}}
        return {**about, **told, **asked_for, **extra, "store": body.get("store", True), "reasoning": body.get("reasoning") or {"effort": None}}

    def _output(self, speech: Speech) -> list[Item]:
        made: list[Item] = []
        if speech.reasoning:
            summary = [{"type": "summary_text", "text": speech.reasoning}]
            made.append({"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": signature(speech.reasoning)})
        if speech.text or not speech.calls:
            content = [{"type": "output_text", "text": speech.text or "", "annotations": [], "logprobs": []}]
            made.append({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content})
        for n, call in enumerate(speech.calls):
            about = {"id": f"fc_{n}", "call_id": call.get("id", f"call_{n}"), "status": "completed"}
            made.append({"type": "function_call", **about, "name": call["function"]["name"], "arguments": call["function"]["arguments"]})
        return made

    def _usage(self, speech: Speech, asked: Asked) -> dict[str, Any]:
        found = self.counted(speech, asked)
        inner = {"input_tokens_details": {"cached_tokens": found["cached"]}, "output_tokens_details": {"reasoning_tokens": found["reasoning"]}}
        return {"input_tokens": found["input"], "output_tokens": found["output"], "total_tokens": found["input"] + found["output"], **inner}


class OpenAI(Chat):
    """A connection to OpenAI."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._responses = Responses(model)

    async def route(self, asked: Asked) -> None:
        if asked.path != "/v1/responses":
            return await super().route(asked)
        self._responses.transport, self._responses.is_counted = self.transport, self.is_counted
        return await self._responses.route(asked)


def _streamed(n: int, item: Item, most: int) -> list[dict[str, Any]]:
    """The events that bring one item."""
    place = {"item_id": item["id"], "output_index": n}
    if item["type"] == "message":
        part = item["content"][0]
        inner = {**place, "content_index": 0}
        made = [{"type": "response.content_part.added", **inner, "part": {**part, "text": ""}}]
        made += [{"type": "response.output_text.delta", **inner, "delta": piece, "logprobs": []} for piece in pieces(part["text"], most)]
        made.append({"type": "response.output_text.done", **inner, "text": part["text"], "logprobs": []})
        made.append({"type": "response.content_part.done", **inner, "part": part})
        opened: Item = {**item, "content": [], "status": "in_progress"}
    elif item["type"] == "reasoning":
        part = item["summary"][0]
        inner = {**place, "summary_index": 0}
        made = [{"type": "response.reasoning_summary_part.added", **inner, "part": {**part, "text": ""}}]
        made += [{"type": "response.reasoning_summary_text.delta", **inner, "delta": piece} for piece in pieces(part["text"], 4)]
        made.append({"type": "response.reasoning_summary_text.done", **inner, "text": part["text"]})
        made.append({"type": "response.reasoning_summary_part.done", **inner, "part": part})
        opened = {**item, "summary": [], "encrypted_content": None}
    else:
        made = [{"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces(item["arguments"], 3)]
        made.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"], "name": item["name"]})
        opened = {**item, "arguments": "", "status": "in_progress"}
    begun, done = {"type": "response.output_item.added", "output_index": n}, {"type": "response.output_item.done", "output_index": n}
    return [{**begun, "item": opened}, *made, {**done, "item": item}]


# -- the rules -----------------------------------------------------------------------------------------


def _items(input: Any) -> list[Item]:
    given = [{"role": "user", "content": input}] if isinstance(input, str) else input
    return [{"type": "message", **item} for item in given]


def _parts(content: Any, role: str) -> list[dict[str, Any]]:
    return [{"type": min(_PARTS[role] & {"input_text", "output_text"}), "text": content}] if isinstance(content, str) else content


def _item(item: Item) -> Iterator[str]:
    kind = item["type"]
    if kind not in _ITEMS:
        yield f"Invalid value: '{kind}'."
        return
    yield from (f"Unknown parameter: '{key}'." for key in unknown(item, _ITEMS[kind]))
    if kind == "message":
        role = item.get("role")
        if role not in _PARTS:
            yield f"Invalid role: '{role}'."
            return
        wrong = [part.get("type") for part in _parts(item.get("content") or [], role) if part.get("type") not in _PARTS[role]]
        yield from (f"Invalid value: '{one}'. Supported values are: {sorted(_PARTS[role])}." for one in wrong)
    elif kind == "function_call":
        if not item.get("call_id") or len(item["call_id"]) > 64 or not _NAME.fullmatch(str(item.get("name") or "")):
            yield "Invalid call_id (at most 64 characters), or name"
        if not isinstance(item.get("arguments"), str):
            yield "Invalid type for 'arguments': expected a string."
    elif kind == "function_call_output" and not isinstance(item.get("output"), str | list):
        yield "Missing required parameter: 'output'."
    elif kind == "reasoning" and item.get("encrypted_content") and not is_signature(item["encrypted_content"]):
        yield f"The encrypted content for item {item.get('id')} could not be verified."


def _pairs(items: list[Item], *, needs_reasoning: bool) -> Iterator[str]:
    called = [item["call_id"] for item in items if item["type"] == "function_call"]
    answered = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    yield from (f"No tool output found for function call {id}." for id in called if id not in answered)
    yield from (f"No tool call found for function call output with call_id {id}." for id in answered if id not in called)
    if not needs_reasoning:
        return
    for n, item in enumerate(items):
        if item["type"] != "function_call" or not item.get("id"):  # one without an id stands for itself
            continue
        before = next((one for one in reversed(items[:n]) if one["type"] not in ("function_call", "message")), None)
        if before is None or before["type"] != "reasoning" or not before.get("encrypted_content"):
            yield f"Item '{item.get('id')}' of type 'function_call' was provided without its required 'reasoning' item."
