"""Requests by reference: what was sent before need not be sent again. Pure; it does not know what a message or a tool is.

A *base* is a name for a list of messages that only grows at its end, or is cut and grows anew. Bases and tools that were not
used for longest are forgotten when all of them together exceed the bound in bytes.
"""

from __future__ import annotations

from collections import OrderedDict

from bubbles.errors import NeedBase

MOST_BYTES = 16 << 20


class Prefixes:
    """What is held: a list of messages for each base, and tools by their name."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._held: OrderedDict[tuple[str, str], list[bytes]] = OrderedDict()
        self._sizes: dict[tuple[str, str], int] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def messages(self, base: str, keep: int, new: list[bytes]) -> list[bytes]:
        """The first `keep` messages of `base` and the `new` ones; `base` stands for these from here on. Raises NeedBase where fewer are held."""
        if not base:
            if keep:
                raise NeedBase("messages are kept only under a base")
            return new
        key = ("base", base)
        held = self._held.get(key, [])
        if len(held) < keep:
            raise NeedBase(f"{len(held)} messages of {base} are held, not {keep}")
        messages = held[:keep] + new
        gone = sum(map(len, held[keep:]))
        self._hold(key, messages, self._sizes.get(key, 0) - gone + sum(map(len, new)))
        return messages

    def tools(self, name: str, body: bytes) -> bytes:
        """The tools called `name`: `body` if it is given, else what was given before. Raises NeedBase where nothing was."""
        key = ("tools", name)
        if not name or body:
            if name:
                self._hold(key, [body], len(body))
            return body
        if key not in self._held:
            raise NeedBase(f"the tools {name} are not held")
        self._held.move_to_end(key)
        return self._held[key][0]

    def _hold(self, key: tuple[str, str], parts: list[bytes], size: int) -> None:
        self.bytes += size - self._sizes.get(key, 0)
        self._held[key], self._sizes[key] = parts, size
        self._held.move_to_end(key)
        while self.bytes > self._most:
            oldest, _ = self._held.popitem(last=False)
            self.bytes -= self._sizes.pop(oldest)
