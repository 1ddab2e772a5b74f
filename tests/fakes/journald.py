"""Stands in for journald: a real datagram socket that reads the native protocol as systemd's `journal/journald-native.c` does."""

from __future__ import annotations

import array
import os
import socket
import struct
from pathlib import Path
from types import TracebackType

_FIRST_OUT_OF_FIELD = b"="


class Journald:
    """Bound at `path` from construction to `close`. `entries` reads all that has come."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.setblocking(False)

    def entries(self) -> list[dict[str, str]]:
        """What was logged since the last call, an entry a datagram (or a sealed memory file passed with an empty one)."""
        found = []
        while True:
            try:
                data, passed, _, _ = self._socket.recvmsg(1 << 20, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return found
            found.append(parse(_contents(passed) if passed else data))

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Journald:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def parse(data: bytes) -> dict[str, str]:
    """The fields of one entry. Raises ValueError for what journald would not take for one entry."""
    fields: dict[str, str] = {}
    while data:
        end = data.index(b"\n")
        line, data = data[:end], data[end + 1 :]
        if not line:
            raise ValueError("a second entry in one datagram")
        if _FIRST_OUT_OF_FIELD in line:
            name, value = line.split(b"=", 1)
        else:
            (size,) = struct.unpack("<Q", data[:8])
            name, value, data = line, data[8 : 8 + size], data[8 + size :]
            if data[:1] != b"\n":
                raise ValueError("a value without its end")
            data = data[1:]
        if name.decode() in fields or not name.replace(b"_", b"").isalnum() or name.upper() != name:
            raise ValueError(f"a field {name!r}")
        fields[name.decode()] = value.decode()
    return fields


def _contents(passed: list[tuple[int, int, bytes]]) -> bytes:
    descriptors = array.array("i")
    descriptors.frombytes(passed[0][2])
    size = os.fstat(descriptors[0]).st_size
    data = os.pread(descriptors[0], size, 0)
    os.close(descriptors[0])
    return data
