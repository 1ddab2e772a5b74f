"""What a command printed: its first part and its last, and a count of all.

It does not know where the bytes come from.
"""

from __future__ import annotations

import re
from collections import deque

_HEAD = 0.6  # share of what is kept that comes from the start
_BINARY = 0.1  # share of odd bytes from which on it is no text
_ODD = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")


class Output:
    """Bytes as they come; at most `keep_bytes` of them are held. `count` is how many came."""

    def __init__(self, keep_bytes: int) -> None:
        self.count = 0
        self._head_most = int(keep_bytes * _HEAD)
        self._tail_most = keep_bytes - self._head_most
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0

    def add(self, part: bytes) -> None:
        """Take the next bytes."""
        self.count += len(part)
        room = self._head_most - len(self._head)
        self._head += part[:room]
        if len(part) > room:
            self._tail.append(part[max(room, 0) :])
            self._tail_size += len(self._tail[-1])
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_most:
            self._tail_size -= len(self._tail.popleft())

    @property
    def truncated(self) -> bool:
        """Whether bytes from the middle are missing."""
        return self.count > self._head_most + self._tail_most

    @property
    def text(self) -> str:
        r"""All of it, decoded; the missing middle is counted in a line of its own, and what is no text is only counted.

        >>> output = Output(10)
        >>> for part in (b"first ", b"second", b" third"): output.add(part)
        >>> output.text
        'first \n[... 8 of 18 bytes left out here ...]\nhird'
        """
        tail = b"".join(self._tail)
        tail = tail[max(0, len(tail) - self._tail_most) :] if self.truncated else tail
        kept = bytes(self._head) + tail
        if not self.truncated or _is_binary(kept):
            return decoded(kept, self.count)
        missing = self.count - len(kept)
        return f"{_head(self._head)}\n[... {missing} of {self.count} bytes left out here ...]\n{_tail(tail)}"


def decoded(data: bytes, count: int = 0) -> str:
    """`data` as text; what is none is only counted, as `count` bytes (0: its own)."""
    return f"[binary output, {count or len(data)} bytes]" if _is_binary(data) else data.decode("utf-8", "replace")


def whole(data: bytes | bytearray) -> int:
    r"""How many bytes of `data` are left without a character that its end cuts through.

    >>> whole("ab\u4f60".encode()[:4]), whole("ab\u4f60".encode())
    (2, 5)
    """
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 == 0xC0 and back < _width(data[-back]):
            return len(data) - back
    return len(data)


def _is_binary(data: bytes) -> bool:
    odd = len(_ODD.findall(data)) + data.decode("utf-8", "replace").count("\ufffd")
    return odd > len(data) * _BINARY


def _head(data: bytes | bytearray) -> str:
    """Decoded, without a character that the cut went through."""
    return data[: whole(data)].decode("utf-8", "replace")


def _tail(data: bytes) -> str:
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")


def _width(first: int) -> int:
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4
