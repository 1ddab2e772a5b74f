"""The calling side of one ZeroMQ connection (ZMTP 3.0, mechanism NULL), as bytes in and messages out.

It does not know sockets, clocks, or what a message means. A door is libzmq's; who calls speaks these few bytes
itself, since a connection of our own ends with its peer: libzmq would reconnect in silence and tell nobody that a
question died. Specification: https://rfc.zeromq.org/spec/23/
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from bubbles.errors import ProtocolError

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" * 32
MESSAGE_MOST = (64 << 20) + (2 << 20)  # bytes of a message with its object and frames


def hello(socket_type: str) -> bytes:
    """What a connection begins with. Messages follow once the Reader is `ready`: libzmq takes an earlier one for a broken handshake."""
    kind = socket_type.encode()
    name = b"Socket-Type"
    return _GREETING + _command(b"READY", bytes([len(name)]) + name + struct.pack(">I", len(kind)) + kind)


def encode(frames: Sequence[bytes]) -> bytes:
    """A message as bytes."""
    parts: list[bytes] = []
    last = len(frames) - 1
    for n, frame in enumerate(frames):
        parts.append(_head(len(frame), _MORE if n < last else 0))
        parts.append(frame)
    return b"".join(parts)


class Reader:
    """Takes the bytes of a peer in pieces of any size, and gives its messages."""

    def __init__(self) -> None:
        self.ready = False  # the peer has finished its handshake
        self._buffer = bytearray()
        self._greeted = False
        self._frames: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The messages that `data` completes. Raises ProtocolError where the peer does not speak ZMTP 3 or sends too much."""
        self._buffer += data
        if not self._greeted and not self._greet():
            return []
        messages: list[list[bytes]] = []
        at = 0
        while (end := self._frame(at, messages)) > at:
            at = end
        del self._buffer[:at]
        return messages

    def _greet(self) -> bool:
        seen = self._buffer
        if (seen and seen[0] != 0xFF) or (len(seen) > 10 and (not seen[9] & 1 or seen[10] < 3)):
            raise ProtocolError("the peer does not speak ZMTP 3")
        if len(seen) < 64:
            return False
        if bytes(seen[12:32]).rstrip(b"\0") != b"NULL":
            raise ProtocolError("the peer wants a security mechanism that this program does not have")
        del seen[:64]
        self._greeted = True
        return True

    def _frame(self, at: int, messages: list[list[bytes]]) -> int:
        """Take the frame at `at`; where the next begins, or `at` while it is not whole."""
        buffer = self._buffer
        have = len(buffer) - at
        if have < 2:
            return at
        flags = buffer[at]
        if flags & _LONG:
            if have < 9:
                return at
            start, size = at + 9, int.from_bytes(buffer[at + 1 : at + 9], "big")
        else:
            start, size = at + 2, buffer[at + 1]
        if self._size + size > MESSAGE_MOST:
            raise ProtocolError("the peer sends more than a message may hold")
        if len(buffer) < start + size:
            return at
        data = bytes(memoryview(buffer)[start : start + size])
        if flags & _COMMAND:
            self._obey(data)
        else:
            self._take(data, bool(flags & _MORE), messages)
        return start + size

    def _take(self, data: bytes, more: bool, messages: list[list[bytes]]) -> None:
        self._frames.append(data)
        self._size += len(data) + 64
        if not more:
            messages.append(self._frames)
            self._frames, self._size = [], 0

    def _obey(self, command: bytes) -> None:
        """READY or ERROR; a peer that was told 3.0 sends no other."""
        if command.startswith(b"\x05ERROR"):
            raise ProtocolError(f"the peer refused the connection: {command[7:].decode('ascii', 'replace')}")
        self.ready = self.ready or command.startswith(b"\x05READY")


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes([len(name)]) + name + data
    return _head(len(body), _COMMAND) + body


def _head(size: int, flags: int) -> bytes:
    return bytes((flags, size)) if size < 256 else struct.pack(">BQ", flags | _LONG, size)
