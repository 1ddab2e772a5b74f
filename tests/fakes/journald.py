"""Stands in for journald: a real datagram socket that reads the native protocol as systemd's `journal/journald-native.c` does, and a
`journalctl` beside it that prints what was put there."""

from __future__ import annotations

import array
import json
import os
import shlex
import socket
import struct
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

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


class Kept:
    """What journald keeps: entries in a file, and in the directory `bin` a `journalctl` that prints them."""

    def __init__(self, directory: Path) -> None:
        self.store, self.bin = directory / "store", directory / "bin"
        self.store.touch()
        self.bin.mkdir()
        script, program = self.bin / "journalctl", Path(__file__).with_name("journalctl.py")
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", str(program), str(self.store)])} "$@"\n')
        script.chmod(0o755)

    def keep(self, *entries: dict[str, Any], at: float | None = None, pid: int = 1000, uid: int | None = None) -> None:
        """Put entries, as they come by the protocol or as journalctl prints them (bytes that are no text: a list of numbers)."""
        with self.store.open("a") as file:
            for n, entry in enumerate(entries):
                now = (time.time() if at is None else at) + n * 1e-6
                trusted = {"_UID": str(os.geteuid() if uid is None else uid), "_PID": str(pid), "_BOOT_ID": "b"}
                times = {"__REALTIME_TIMESTAMP": f"{now * 1e6:.0f}", "_SOURCE_REALTIME_TIMESTAMP": f"{now * 1e6:.0f}", "__CURSOR": "s=1"}
                file.write(json.dumps({**times, **entry, **trusted}) + "\n")

    def refuse(self, why: str) -> None:
        """From now on nobody may read it."""
        self.store.write_text(f"{why}\n")


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
