"""The messages of one request to a model, as bytes, and how many of them modeld holds already.

Every request of a session begins with the bytes of the one before, so that a provider's prompt cache hits and
only what is new crosses the wire. It does not know what is said; history and turn arrive well formed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from bubbles.kernel import context
from bubbles.kernel.context import encode
from bubbles.sessions.history import SUMMARY_HEAD, History

_SUMMARY = encode({"role": "user", "content": SUMMARY_HEAD}).removesuffix(b'"}')


@dataclass(slots=True)
class Tools:
    """The tool schemas of a request: their JSON, and the hash that names them."""

    body: bytes = b""
    name: str = ""
    tokens: int = 0

    @classmethod
    def of(cls, schemas: list[dict[str, Any]]) -> Tools:
        if not schemas:
            return cls()
        body = json.dumps(schemas, ensure_ascii=False, separators=(",", ":")).encode()
        return cls(body, hashlib.sha256(body).hexdigest()[:16], context.tokens(body.decode()))


@dataclass(slots=True)
class Prefix:
    """What modeld holds of a session's last request: the messages, in order, under the name `base`."""

    base: str
    lines: list[bytes] = field(default_factory=list)

    def keep(self, lines: list[bytes]) -> int:
        """How many messages at the head of `lines` modeld has; it is told the rest."""
        most = min(len(lines), len(self.lines))
        for n in range(most):
            if lines[n] is not self.lines[n] and lines[n] != self.lines[n]:
                return n
        return most


class Weights:
    """The estimated tokens of a history's messages, counted once each."""

    def __init__(self) -> None:
        self._generation = -1
        self._tokens: list[int] = []

    def of(self, history: History) -> list[int]:
        """One figure a message of `history.lines`."""
        if self._generation != history.generation:
            self._generation, self._tokens = history.generation, []
        for line in history.lines[len(self._tokens) :]:
            self._tokens.append(context.tokens(line.decode("utf-8", "replace")))
        return self._tokens


def compose(system: bytes, past: list[bytes], turn: list[dict[str, Any]], shape: context.Shape, budget_tokens: int) -> list[bytes]:
    """The messages of a request: the prompt, the past, and this turn, well formed in `shape` and within `budget_tokens` (0: no limit known).

    Where the past may be sent as it stands (the usual case), its bytes are not touched.
    """
    past = [_without_reasoning(line) for line in past] if shape.reasoning == "drop" else past
    if shape == context.Shape() and not _over(past, turn, budget_tokens):
        # Only at the seam can two users meet; the rest is well formed already.
        seam = past[-1:] if past and turn and _role(past[-1]) == turn[0]["role"] == "user" else []
        joined = context.build([*map(json.loads, seam), *turn], shape)
        return [system, *past[: len(past) - len(seam)], *map(encode, joined)]
    messages = [*map(json.loads, past), *turn]
    if budget_tokens:
        messages = context.fit(messages, budget_tokens)
    return [system, *map(encode, context.build(messages, shape))]


def _without_reasoning(line: bytes) -> bytes:
    if b'"reasoning_content":' not in line:
        return line
    return encode({key: value for key, value in json.loads(line).items() if key != "reasoning_content"})


def recent(lines: list[bytes], window: int) -> list[bytes]:
    """The last `window` messages (0: all), beginning with a user's. A summary of what was before stays at their head."""
    if not window or len(lines) <= window:
        return lines
    summary = lines[:1] if lines[0].startswith(_SUMMARY) else []
    for start in range(len(lines) - window, len(lines)):
        if _role(lines[start]) == "user":
            return [*map(encode, context.build([*map(json.loads, summary), json.loads(lines[start])])), *lines[start + 1 :]]
    return summary


def _role(line: bytes) -> str:
    return str(json.loads(line)["role"]) if not line.startswith(b'{"role":"user"') else "user"


def _over(past: list[bytes], turn: list[dict[str, Any]], budget_tokens: int) -> bool:
    if not budget_tokens:
        return False
    bytes_ = sum(map(len, past)) + sum(len(encode(m)) for m in turn)
    # A token is at least one byte: what is short enough in bytes need not be counted.
    return bytes_ > budget_tokens and context.tokens([*map(json.loads, past), *turn]) > budget_tokens
