"""The messages of one request to a model, as bytes, and how many of them modeld holds already.

Every request of a session begins with the bytes of the one before, so that a provider's prompt cache hits and
only what is new crosses the wire. It does not know what is said; history and turn arrive well formed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bubbles.kernel import context
from bubbles.kernel.context import encode
from bubbles.kernel.summary import HEAD
from bubbles.sessions.history import History

_SUMMARY = encode({"role": "user", "content": HEAD}).removesuffix(b'"}')


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


class Past:
    """A history as it is sent: its lines, each weighed once. `lines` only grows; a new beginning is a new list."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.tokens = 0  # estimated
        self.size = 0  # bytes
        self._weights: list[int] = []
        self._last: bytes | None = None  # the history's own last line, as far as it was taken
        self._stretch: tuple[int, bool] | None = None

    def of(self, history: History, *, thoughts: bool) -> Past:
        """Brought up to `history`; with its models' `thoughts`, or without. What was taken already is not looked at again."""
        taken, stretch = len(self.lines), (history.generation, thoughts)
        if stretch != self._stretch or taken > len(history.lines):
            self.lines, self._weights, self.tokens, self.size = [], [], 0, 0
            self._stretch, taken = stretch, 0
        elif taken and history.lines[taken - 1] is not self._last:  # words that got no answer have had others added
            taken -= 1
            self._forget_last()
        for line in history.lines[taken:]:
            self._add(line if thoughts else _without_reasoning(line))
        self._last = history.lines[-1] if history.lines else None
        return self

    def within(self, window: int) -> Past:
        """The last `window` messages (0: all)."""
        if not window or len(self.lines) <= window:
            return self
        part = Past()
        for line in recent(self.lines, window):
            part._add(line)
        return part

    def weight(self, window: int) -> int:
        """The estimated tokens of the last `window` messages (0: all)."""
        return self.tokens if not window else sum(self._weights[-window:])

    def _add(self, line: bytes) -> None:
        self.lines.append(line)
        self._weights.append(context.tokens(line.decode("utf-8", "replace")))
        self.tokens += self._weights[-1]
        self.size += len(line)

    def _forget_last(self) -> None:
        self.size -= len(self.lines[-1])
        self.tokens -= self._weights.pop()
        self.lines = self.lines[:-1]  # what was sent of the old list stays as it was


@dataclass(frozen=True, slots=True)
class Request:
    """The messages of a request: the prompt, the first `upto` lines of a past that is not copied, and the rest.

    `fitted_tokens`: what prompt and messages weigh, where they had to be made lighter; else 0.
    """

    head: bytes
    past: Sequence[bytes] = ()
    upto: int = 0
    tail: list[bytes] = field(default_factory=list)
    fitted_tokens: int = 0

    @classmethod
    def of(cls, lines: list[bytes]) -> Request:
        return cls(lines[0], (), 0, lines[1:])

    def after(self, keep: int) -> list[bytes]:
        """The lines behind the first `keep`."""
        if not keep:
            return [self.head, *self.past[: self.upto], *self.tail]
        return [*self.past[min(keep - 1, self.upto) : self.upto], *self.tail[max(0, keep - 1 - self.upto) :]]


@dataclass(slots=True)
class Prefix:
    """What modeld holds of a session's last request, under the name `base`."""

    base: str
    sent: Request | None = None

    def keep(self, request: Request) -> int:
        """How many messages at the head of `request` modeld has; it is told the rest."""
        old = self.sent
        if old is None or old.head != request.head:
            return 0
        shared = min(old.upto, request.upto) if old.past is request.past else 0
        kept = 1 + shared
        for ours, theirs in zip(request.after(kept), old.after(kept), strict=False):
            if ours is not theirs and ours != theirs:
                break
            kept += 1
        return kept


def compose(system: bytes, past: Past, turn: list[dict[str, Any]], shape: context.Shape, budget_tokens: int, tail: str = "") -> Request:
    """The messages of a request: the prompt, the past, and this turn, well formed in `shape` and within `budget_tokens` (0: no limit known).

    Where the past may be sent as it stands (the usual case), its bytes are not touched. `tail` is what stands behind all of it in this request
    alone: the next one has the same bytes up to there, and no history knows of it.
    """
    budget_tokens = max(1, budget_tokens - context.tokens(tail)) if budget_tokens and tail else budget_tokens
    if replace(shape, reasoning="drop") == context.DEFAULT and shape.reasoning != "require" and not _over(past, turn, budget_tokens):
        # Only at the seam can two users meet; the rest is well formed already.
        seam = past.lines[-1:] if past.lines and turn and _role(past.lines[-1]) == turn[0]["role"] == "user" else []
        joined = context.build([*map(json.loads, seam), *turn], shape)
        return Request(system, past.lines, len(past.lines) - len(seam), [*map(encode, _with(tail, joined))])
    messages = [*map(json.loads, past.lines), *turn]
    if not budget_tokens:
        return Request.of([system, *map(encode, _with(tail, context.build(messages, shape)))])
    built = _with(tail, context.build(_fitted(messages, budget_tokens), shape))
    return replace(Request.of([system, *map(encode, built)]), fitted_tokens=context.tokens([json.loads(system), *built]))


def _fitted(messages: list[dict[str, Any]], budget_tokens: int) -> list[dict[str, Any]]:
    """The messages made lighter; that some are left out is said where they stood."""
    kept = context.fit(messages, budget_tokens)
    if len(kept) < len(messages) and kept and kept[0]["role"] == "user":
        kept = [{**kept[0], "content": f"{context.LEFT_OUT}\n\n{kept[0]['content']}"}, *kept[1:]]
    return kept


def _with(tail: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with a further paragraph behind the last, whoever's that is: no turn of roles is changed by it."""
    if not tail or not messages:
        return messages
    return [*messages[:-1], {**messages[-1], "content": f"{messages[-1]['content']}\n\n{tail}"}]


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


def _over(past: Past, turn: list[dict[str, Any]], budget_tokens: int) -> bool:
    if not budget_tokens:
        return False
    # A token is at least one byte: what is short enough in bytes need not be counted.
    if past.size + sum(len(encode(m)) for m in turn) <= budget_tokens:
        return False
    return past.tokens + context.tokens(turn) > budget_tokens
