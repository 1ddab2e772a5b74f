"""What a vendor wants back of its own with each answer that made calls, and nobody else can read: signed thoughts, signatures of calls.

History is canonical and holds none of it. It is kept here, in memory, by what the answer said; what was forgotten (modeld began anew) is not
sent, and vendors go on without it. Where one will not, as Gemini's newer models, LiteLLM sends the word that the vendor has for this case.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Any, Protocol

from bubbles.kernel.canonical import parsed
from bubbles.providers.provider import Answer

_MOST = 500  # answers
_SIGNATURE = "thought_signature"
_BESIDE = ("thinking_blocks", "reasoning_details", "reasoning_items", "reasoning_text", "reasoning_opaque")  # fields of a message


class Fields(Protocol):
    """What came along with an answer."""

    def fields(self) -> dict[str, Any]:
        """All of it by name; {} where there is nothing."""
        ...


class Kept:
    """What comes along with one answer, whole or in pieces."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, Any]] = []
        self._signatures: dict[int, str] = {}
        self._details: list[Any] = []

    def take(self, delta: dict[str, Any]) -> None:
        """Note what a message, or a piece of one, brings: `thinking_blocks`, `tool_calls` with fields of a provider's, `reasoning_details`."""
        for block in delta.get("thinking_blocks") or ():
            self._block(dict(block))
        for n, call in enumerate(delta.get("tool_calls") or ()):
            fields = call.get("provider_specific_fields") or (call.get("function") or {}).get("provider_specific_fields") or {}
            if isinstance(fields, dict) and fields.get(_SIGNATURE):
                self._signatures[n if call.get("index") is None else call["index"]] = str(fields[_SIGNATURE])
        own = delta.get("provider_specific_fields") or {}
        self._details += [one for one in delta.get("reasoning_details") or own.get("reasoning_details") or () if isinstance(one, dict)]

    def detail(self, details: list[Any]) -> None:
        """All details of a stream, where they are known better than by its pieces."""
        self._details = [one for one in details if isinstance(one, dict)] or self._details

    def _block(self, block: dict[str, Any]) -> None:
        """A block of its own, or more of the last one: that goes on until its signature has come."""
        last = self._blocks[-1] if self._blocks else None
        if last and last.get("type") == block.get("type") == "thinking" and not last.get("signature"):
            last["thinking"] = (last.get("thinking") or "") + (block.get("thinking") or "")
            last["signature"] = block.get("signature") or ""
        else:
            self._blocks.append(block)

    def _whole_details(self) -> list[dict[str, Any]]:
        """A gateway's details with their pieces put together; but none of Claude's whose signature did not come along, which nobody would take."""
        found: dict[Any, dict[str, Any]] = {}
        for n, detail in enumerate(self._details):
            key = (detail["index"], detail.get("type")) if detail.get("index") is not None else n
            whole = found.setdefault(key, {})
            text = (whole.get("text") or "") + (detail.get("text") or "")
            whole |= detail | ({"text": text} if text else {})
        return [one for one in found.values() if not str(one.get("format")).startswith("anthropic") or one.get("signature") or one.get("data")]

    def fields(self) -> dict[str, Any]:
        """All of it; {} where there is nothing."""
        blocks = [block for block in self._blocks if block.get("signature") or block.get("type") == "redacted_thinking"]
        found = {"thinking_blocks": blocks, "signatures": self._signatures, "reasoning_details": self._whole_details()}
        return {name: value for name, value in found.items() if value}


class Thoughts:
    """What is kept of the last answers."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, dict[str, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, answer: Answer, kept: Fields) -> None:
        """Keep what came along with an answer that makes calls; nobody asks for any other's."""
        fields = kept.fields()
        if not fields or not answer.calls:
            return
        self._kept[_key(answer.text, [(call["name"], call["arguments"]) for call in answer.calls])] = fields
        while len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    def given_back(self, message: dict[str, Any]) -> dict[str, Any]:
        """A canonical message with what was kept of it beside it."""
        if not self._kept or not message.get("tool_calls"):
            return message
        calls = message["tool_calls"]
        fields = self._kept.get(_key(message["content"], [(call["function"]["name"], call["function"]["arguments"]) for call in calls]))
        if fields is None:
            return message
        signatures = fields.get("signatures", {})
        signed = [call | {"provider_specific_fields": {_SIGNATURE: signatures[n]}} if n in signatures else call for n, call in enumerate(calls)]
        return message | {"tool_calls": signed} | {name: fields[name] for name in _BESIDE if name in fields}


def _key(text: str, calls: list[tuple[str, str]]) -> bytes:
    """What an answer is known by again. Its calls' ids may have been changed since, and the form of what is no JSON."""
    told = [text.strip(), [(name, parsed(arguments)) for name, arguments in calls]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()
