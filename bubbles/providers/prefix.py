"""Requests by reference: what was sent before need not be sent again. Pure; it does not know what a message or a tool is.

A *base* is a name for a list of messages that only grows at its end, or is cut and grows anew. Bases and tools that were not
used for longest are forgotten, bases first, when all of them together exceed the bound in bytes.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import overload

from bubbles.errors import NeedBase

MOST_BYTES = 16 << 20


class Messages(Sequence[bytes]):
    """A list of messages as one piece of memory, with a comma between two: of thousands none is touched to make them one request.

    The piece is shared with those that grew out of it: what is behind its own end is theirs.
    """

    __slots__ = ("_count", "_data", "_ends", "size")

    def __init__(self, data: bytearray | None = None, ends: array[int] | None = None) -> None:
        self._data = bytearray() if data is None else data
        self._ends = array("Q") if ends is None else ends
        self._count, self.size = len(self._ends), len(self._data)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        return list(self)[at]

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self._ends[: self._count]:
            yield bytes(self._data[start:end])
            start = end + 1

    def within(self, head: bytes, end: bytes) -> bytes:
        """All of them, between `head` and `end`."""
        return b"".join([head, memoryview(self._data)[: self.size], end])

    def grown(self, keep: int, new: Sequence[bytes]) -> Messages:
        """The first `keep` of them, and the `new` ones."""
        data, ends = self._data, self._ends
        if keep < self._count or len(ends) > self._count:  # another list is behind these already
            data, ends = data[: ends[keep - 1] if keep else 0], ends[:keep]
        for each in new:
            data += b"," + each if ends else each
            ends.append(len(data))
        return Messages(data, ends)


class Prefixes:
    """What is held: a list of messages for each base, and tools by their name.

    Which of `marks`, strings that somebody has to know of, a base's messages hold is looked for once, as they come.
    """

    def __init__(self, most_bytes: int = MOST_BYTES, marks: Sequence[bytes] = ()) -> None:
        self._most = most_bytes
        self._marks = marks
        self._bases: OrderedDict[str, tuple[Messages, frozenset[bytes]]] = OrderedDict()
        self._tools: OrderedDict[str, bytes] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._bases) + len(self._tools)

    def messages(self, base: str, keep: int, new: Sequence[bytes]) -> Messages:
        """The first `keep` messages of `base` and the `new` ones; `base` stands for these from here on. Raises NeedBase where fewer are held."""
        if not base:
            if keep:
                raise NeedBase("messages are kept only under a base")
            return Messages().grown(0, new)
        held, marks = self._bases.get(base, (Messages(), frozenset[bytes]()))
        if len(held) < keep:
            raise NeedBase(f"{len(held)} messages of {base} are held, not {keep}")
        messages = held.grown(keep, new)
        cut = keep < len(held) and bool(marks)
        marks = self._among(messages if cut else new) | (frozenset() if cut else marks)
        self.bytes += messages.size - held.size
        self._bases[base] = messages, marks
        self._bases.move_to_end(base)
        self._make_room()
        return messages

    def marks(self, base: str) -> frozenset[bytes] | None:
        """Those of the marks that the messages of a base hold; None where nothing is held of it."""
        return self._bases[base][1] if base in self._bases else None

    def tools(self, name: str, body: bytes) -> bytes:
        """The tools called `name`: `body` if it is given, else what was given before. Raises NeedBase where nothing was."""
        if not name:
            return body
        if not body and name not in self._tools:
            raise NeedBase(f"the tools {name} are not held")
        if body:
            self.bytes += len(body) - len(self._tools.get(name, b""))
            self._tools[name] = body
        self._tools.move_to_end(name)
        found = self._tools[name]
        self._make_room()
        return found

    def _among(self, messages: Sequence[bytes]) -> frozenset[bytes]:
        return frozenset(mark for mark in self._marks if any(mark in each for each in messages))

    def _make_room(self) -> None:
        """Bases go before tools: these are few, and all bases need them."""
        while self.bytes > self._most and self._bases:
            self.bytes -= self._bases.popitem(last=False)[1][0].size
        while self.bytes > self._most:
            self.bytes -= len(self._tools.popitem(last=False)[1])
