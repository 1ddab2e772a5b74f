"""An answer put together, whole or from the deltas of a stream, whatever liberties an endpoint takes with the protocol. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from bubbles.errors import ModelDown, Rejected
from bubbles.messages import scrub
from bubbles.providers.failure import from_object
from bubbles.providers.lenient import counted
from bubbles.providers.provider import Answer, Ask

_CALLS_MOST = 500  # of one answer; each piece of one is looked for among them
_NAME_MOST = 200  # characters of a model's name


class Draft:
    """The answer so far to the ask `id`."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._usage: dict[str, int] = {}
        self._model = ""
        self._pieces = 0  # of text, of reasoning and of calls
        self.stop = ""

    @property
    def so_far(self) -> tuple[int, str]:
        """Changes whenever something of the answer has come."""
        return self._pieces, self.stop

    def whole(self, body: Any) -> Answer:
        """The answer that a body of the kind `chat.completion` gives. Raises ModelError."""
        choice = self._choice(body)
        if choice is None:
            raise ModelDown("an answer without choices")
        message = choice.get("message")
        if not isinstance(message, dict):
            raise ModelDown("an answer without a message")
        self._take(message)
        return self.finish()

    def feed(self, body: Any) -> str:
        """Take in one chunk of a stream; the text that it adds. Raises ModelError where it tells of an error."""
        choice = self._choice(body)
        delta = choice.get("delta") or choice.get("message") if choice else None
        return self._take(delta) if isinstance(delta, dict) else ""

    def finish(self) -> Answer:
        """The answer, once all of it has come. Raises Rejected where a content filter took it, ModelDown where a call has no name."""
        if self.stop == "content_filter":
            raise Rejected("the provider's content filter stopped the answer", remedy="say it otherwise", of_words=True)
        calls = tuple(self._call(n, call) for n, call in enumerate(self._calls))
        stop = "tool_calls" if calls and self.stop in ("", "stop") else self.stop or "stop"
        return Answer(scrub("".join(self._text)), calls, scrub("".join(self._reasoning)), self._usage, stop, self._model)

    def stalled(self, ask: Ask) -> ModelDown:
        """The failure of a stream that is waited for no longer."""
        if self._pieces:
            return ModelDown.midway(f"the stream stood still: nothing of the answer in {ask.pause_s:g} s, or no end in all the time that it has")
        return ModelDown.midway(f"no word of an answer in {ask.timeout_s:g} s")

    def _choice(self, body: Any) -> dict[str, Any] | None:
        """The first choice; the model's name and the usage are taken on the way."""
        if not isinstance(body, dict):
            raise ModelDown("an answer that is not an object")
        if body.get("error"):
            raise from_object(body)
        self._model = _named(body.get("model")) or self._model
        self._usage = _usage(body.get("usage")) or self._usage
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return None
        if choice.get("error"):
            raise from_object(choice)
        self.stop = str(choice.get("finish_reason") or self.stop)
        return choice

    def _take(self, delta: dict[str, Any]) -> str:
        text = _text(delta.get("content")) or _text(delta.get("refusal"))
        thought = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        self._text.append(text)
        self._reasoning.append(thought)
        self._pieces += bool(text or thought)
        calls = delta.get("tool_calls")
        for n, call in enumerate(calls if isinstance(calls, list) else []):
            if isinstance(call, dict):
                self._fragment(n, call)
        return text

    def _fragment(self, n: int, call: dict[str, Any]) -> None:
        """A call, or a further piece of one. An index is not always given, and not always right: an id of its own begins a call."""
        given = call.get("function")
        function: dict[str, Any] = given if isinstance(given, dict) else {}
        id, name = str(call.get("id") or ""), str(function.get("name") or "")
        found = self._known(call.get("index"), id, name, n)
        if found is None:
            if len(self._calls) == _CALLS_MOST:
                raise Rejected(f"an answer of more than {_CALLS_MOST} calls")
            found = {"index": call.get("index"), "id": id, "name": "", "arguments": []}
            self._calls.append(found)
        found["id"] = found["id"] or id
        found["name"] = found["name"] or name
        self._pieces += bool(name or function.get("arguments"))
        arguments = function.get("arguments")
        if arguments is not None:
            found["arguments"].append(arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))

    def _known(self, index: Any, id: str, name: str, n: int) -> dict[str, Any] | None:
        if index is None:
            begins = bool(name) or n >= len(self._calls)
            return None if begins else next((c for c in self._calls if id and c["id"] == id), self._calls[-1])
        for call in reversed(self._calls):
            if call["index"] == index:
                return None if id and call["id"] and id != call["id"] and name else call
        return None

    def _call(self, n: int, call: dict[str, Any]) -> dict[str, str]:
        if not call["name"]:
            raise ModelDown("an answer with a call that has no name")
        taken = {other["id"] for other in self._calls[:n]}
        if not call["id"] or call["id"] in taken:
            call["id"] = f"call_{hashlib.sha256(f'{self._id}.{n}'.encode()).hexdigest()[:16]}"
        return {"id": scrub(call["id"]), "name": scrub(call["name"]), "arguments": scrub("".join(call["arguments"])) or "{}"}


def _text(content: Any) -> str:
    """Text as such, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict) and part.get("type", "text") == "text")
    return ""


def _named(model: Any) -> str:
    """What a model calls itself, as far as that is a name."""
    return scrub(model[:_NAME_MOST]) if isinstance(model, str) else ""


def _usage(usage: Any) -> dict[str, int]:
    """The counts that a provider tells; none at all where what it tells of the whole cannot be so."""
    if not isinstance(usage, dict):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")  # the latter: DeepSeek
    written = (details.get("cache_creation_tokens") if isinstance(details, dict) else 0) or usage.get("cache_creation_input_tokens")
    said = usage.get("completion_tokens_details")
    counts = {"input": usage.get("prompt_tokens"), "output": usage.get("completion_tokens"), "cached": cached or 0}
    counts |= {"cache_write": written or None, "reasoning": (said.get("reasoning_tokens") if isinstance(said, dict) else None) or None}
    if any(counts[name] is not None and counted(counts[name]) is None for name in ("input", "output")):
        return {}
    return {name: count for name, value in counts.items() if (count := counted(value)) is not None}
