"""The fake model: an OpenAI-compatible server in a process of its own, which answers by a script and remembers what it was asked.

    python -m tests.fakes.model [--port 0] [--script FILE] [--window N] [--with-parent]

It prints its base URL (http://127.0.0.1:PORT/v1) and serves `/v1/chat/completions` (streamed or whole) and `/v1/models`.
Bodies are held strictly against the API's rules (400). `GET /_seen` tells the requests counted, the last bodies, how many
answers the client hung up on and how many are being given now; `POST /_script` puts another script in place and forgets
what was seen (of connections, those that came since). With --with-parent it ends when its standard input does. The script: see tests/fakes/script.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, ClassVar

from tests.fakes.script import Refusal, Speech, error_body
from tests.fakes.signing import signature
from tests.fakes.vendors import wordings
from tests.fakes.wire import Asked, Connection, arguments, event, serve

_REASONING = {"openrouter", "groq", "vllm", "ollama"}  # who call it `reasoning`
_FORMAT = "anthropic-claude-v1"  # of OpenRouter's details
_NOTHING = {
    "id": "chatcmpl-0",
    "object": "chat.completion.chunk",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}],
}


class Chat(Connection):
    """A connection to who speaks OpenAI's chat protocol, in the words of the vendor that the script names."""

    signs: ClassVar[dict[str, bytes]] = {**Connection.signs, "empty": event(_NOTHING)}

    async def route(self, asked: Asked) -> None:
        key = self.model.script.key
        question = (asked.method, asked.path) == ("POST", "/v1/chat/completions")
        if key and asked.headers.get("authorization") != f"Bearer {key}":
            if question:
                self.note(asked)
            raise Refusal(*(self.told("bad_key") if self.model.script.vendor else error_body(401)))
        if (asked.method, asked.path) == ("GET", "/v1/models"):
            return self.whole(200, {"object": "list", "data": self.model.script.listed()})
        if question:
            return await self.complete(asked)
        raise Refusal(*error_body(404, "unknown_url", f"Unknown request URL: {asked.method} {asked.path}"))

    async def complete(self, asked: Asked) -> None:
        self.note(asked)
        script, body = self.model.script, asked.body
        script.check(body)
        rule, said = script.choose(body["messages"])
        size = 4 * script.weight(body) if script.window_tokens else len(asked.raw)  # what refuses by a count tells the same count
        await self.play(rule, lambda: self._act(rule, Speech(rule, said, self.model.requests), body, size))

    def told(self, fault: str) -> wordings.Told:
        """The status and the body of a fault, in the words of the script's vendor."""
        return wordings.of(self.model.script.vendor or "openai", fault)

    def usage(self, speech: Speech, size: int) -> dict[str, Any]:
        """What a question of `size` bytes and its answer are told to have taken."""
        return speech.usage(size)

    async def _act(self, rule: dict[str, Any], speech: Speech, body: dict[str, Any], size: int) -> None:
        headers, streamed = rule.get("headers"), bool(body.get("stream"))
        if rule.get("fault") and not (streamed and "after" in rule):
            return self.whole(*self.told(rule["fault"]), headers)
        if rule.get("status") or rule.get("error"):
            status, told = error_body(rule.get("status", 0), rule.get("error"))
            return self.whole(status, rule.get("body", told), headers)
        if "body" in rule:
            return self.whole(200, rule["body"], headers)
        if streamed:
            return await self._stream(rule, speech, body, size)
        message = self._voiced(speech.message(), signature(speech.reasoning))
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": speech.finish}
        answer = {**self._head(body, "chat.completion"), "choices": [choice], "usage": self.usage(speech, size)}
        return self.whole(200, answer, headers, cut="cut" in rule)

    def _head(self, body: dict[str, Any], kind: str) -> dict[str, Any]:
        script = self.model.script
        tier = {"service_tier": "on_demand"} if script.vendor == "groq" and not script.untiered else {}
        return {"id": f"chatcmpl-{self.model.requests}", "object": kind, "created": int(time.time()), "model": body["model"], **tier}

    def _deltas(self, speech: Speech) -> list[dict[str, Any]]:
        """The deltas of a stream; a signature comes after all that it signs."""
        made = [self._voiced(delta) for delta in speech.deltas()]
        if speech.reasoning and self.model.script.vendor == "openrouter":
            last = max(n for n, delta in enumerate(made) if "reasoning" in delta)
            signed = {"type": "reasoning.text", "text": "", "signature": signature(speech.reasoning), "format": _FORMAT, "index": 0}
            made.insert(last + 1, {"content": "", "reasoning": None, "reasoning_details": [signed]})
        return made

    def _voiced(self, message: dict[str, Any], signed: str = "") -> dict[str, Any]:
        """A message, or a piece of one, with its reasoning where the vendor puts it."""
        if "reasoning_content" not in message or self.model.script.vendor not in _REASONING:
            return message
        rest, thought = {key: value for key, value in message.items() if key != "reasoning_content"}, message["reasoning_content"]
        details = [{"type": "reasoning.text", "text": thought, "format": _FORMAT, "index": 0, **({"signature": signed} if signed else {})}]
        return {**rest, "reasoning": thought, **({"reasoning_details": details} if self.model.script.vendor == "openrouter" else {})}

    async def _stream(self, rule: dict[str, Any], speech: Speech, body: dict[str, Any], size: int) -> None:
        with_usage = (body.get("stream_options") or {}).get("include_usage")
        head = {**self._head(body, "chat.completion.chunk"), **({"usage": None} if with_usage else {})}

        def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
            return event({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]})

        ending = [chunk({}, speech.finish)]
        if with_usage:
            ending.append(event({**head, "choices": [], "usage": self.usage(speech, size)}))
        failed = event(self._failed(rule)) if "fail" in rule or "fault" in rule else b""
        await self.stream(rule, [chunk(delta) for delta in self._deltas(speech)], [*ending, b"data: [DONE]\n\n"], failed=failed)

    def _failed(self, rule: dict[str, Any]) -> Any:
        return {"error": rule["fail"]} if "fail" in rule else _within(self.told(rule["fault"])[1])


def _within(body: Any) -> Any:
    """A body as it stands in a stream: an object with an error."""
    return body if isinstance(body, dict) and isinstance(body.get("error"), dict) else {"error": body}


def main() -> None:
    parser = arguments("tests.fakes.model", "a scripted model that speaks the API of OpenAI")
    parser.add_argument("--script", type=Path)
    parser.add_argument("--window", type=int, default=0, help="the script's window_tokens")
    chosen = parser.parse_args()
    script = json.loads(chosen.script.read_text()) if chosen.script else {}
    script |= {"window_tokens": chosen.window} if chosen.window else {}
    asyncio.run(serve(Chat, "/v1", chosen.port, script, chosen.with_parent))


if __name__ == "__main__":
    main()
