"""What processes do to the files of one directory, noted in the order in which it happens: the raw material of a power cut (power.py).

A `Recorder` stands where `os` does, as the disk of a queue or, installed, for a whole process. It does not know what a
disk keeps. Several processes may share a record; each entry is one append.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What changes a file or a directory, or makes it durable. Whatever else writes (a file opened by C code) shows as a
# difference between the record's end and the disk.
CALLS = ("open", "close", "write", "ftruncate", "rename", "replace", "unlink", "remove", "utime", "mkdir", "rmdir", "fdatasync", "fsync")
_CHANGING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_DIRECTORY

Entry = tuple[Any, ...]


class Recorder:
    """`os`, for what lies below `root` and is `wanted` (by its path from there). `skips` says of a path that a sync of it is forgotten: a fault."""

    def __init__(
        self, root: Path, record: Path, wanted: Callable[[str], bool] = lambda path: True, skips: Callable[[str, int], bool] = lambda path, fd: False
    ) -> None:
        self._real = {name: getattr(os, name) for name in CALLS}
        self._root = f"{root}/"
        self._wanted = wanted
        self._skips = skips
        self._keys: dict[int, tuple[str, str]] = {}  # descriptor: (its name in the record, path)
        self._serial = itertools.count()
        self._record = self._real["open"](record, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def install(self) -> None:
        """Stand in for `os` in this process."""
        for name in CALLS:
            setattr(os, name, getattr(self, name))

    def note(self, *entry: Any) -> None:
        """Add an entry: one of the calls below, or a remark of the test's own, whose first word is no call's."""
        self._real["write"](self._record, pickle.dumps(entry))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        fd: int = self._real["open"](path, flags, mode, **more)
        place = self._place(path, more)
        if place is not None and flags & _CHANGING:
            key = f"{os.getpid()}.{next(self._serial)}"
            self._keys[fd] = (key, place)
            self.note("open", key, place, flags)
        return fd

    def close(self, fd: int) -> None:
        self._keys.pop(fd, None)
        self._real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        written: int = self._real["write"](fd, data)
        if fd in self._keys:
            self.note("write", self._keys[fd][0], bytes(data[:written]))
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        self._real["ftruncate"](fd, size)
        if fd in self._keys:
            self.note("size", self._keys[fd][0], size)

    def rename(self, source: Any, target: Any, **more: Any) -> None:
        self._real["rename"](source, target, **more)
        places = self._place(source, more), self._place(target, more)
        if None not in places:
            self.note("rename", *places)

    def replace(self, source: Any, target: Any, **more: Any) -> None:
        self.rename(source, target, **more)

    def unlink(self, path: Any, **more: Any) -> None:
        self._real["unlink"](path, **more)
        self._changed("unlink", path, more)

    def remove(self, path: Any, **more: Any) -> None:
        self.unlink(path, **more)

    def mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        self._real["mkdir"](path, mode, **more)
        self._changed("mkdir", path, more)

    def rmdir(self, path: Any, **more: Any) -> None:
        self._real["rmdir"](path, **more)
        self._changed("rmdir", path, more)

    def utime(self, path: Any, times: Any = None, **more: Any) -> None:
        self._real["utime"](path, **more) if times is None else self._real["utime"](path, times, **more)
        if "ns" not in more:
            return
        if isinstance(path, int):
            if path in self._keys:
                self.note("mtime", self._keys[path][0], more["ns"][1])
        elif (place := self._place(path, more)) is not None:
            self.note("mtime of", place, more["ns"][1])

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def _sync(self, name: str, fd: int) -> None:
        key, place = self._keys.get(fd) or self._opened_to_be_read(fd)
        if key and self._skips(place, fd):
            return
        serial = f"{os.getpid()}.{next(self._serial)}"
        if key:
            self.note("syncing", key, serial)
        self._real[name](fd)
        if key:
            self.note("synced", key, serial)

    def _opened_to_be_read(self, fd: int) -> tuple[str, str]:
        """A file that is synced through a descriptor that cannot change it is noted now, under the name that it has now."""
        path = os.readlink(f"/proc/self/fd/{fd}")
        place = self._place(path, {})
        if place is None:
            return "", ""
        self._keys[fd] = (f"{os.getpid()}.{next(self._serial)}", place)
        self.note("open", self._keys[fd][0], place, os.O_RDONLY)
        return self._keys[fd]

    def _changed(self, kind: str, path: Any, more: dict[str, Any]) -> None:
        if (place := self._place(path, more)) is not None:
            self.note(kind, place)

    def _place(self, path: Any, more: dict[str, Any]) -> str | None:
        """The path from the root, None for what is not noted."""
        text = os.fsdecode(path) if not isinstance(path, int) else ""
        if not text.startswith(self._root) or more.get("dir_fd") is not None or more.get("src_dir_fd") is not None:
            return None
        place = text[len(self._root) :]
        return place if self._wanted(place) else None


def entries(record: Path) -> list[Entry]:
    """What a record holds."""
    found = []
    with record.open("rb") as file:
        while True:
            try:
                found.append(pickle.load(file))
            except EOFError:
                return found


def of_a_home(place: str) -> bool:
    """What of a home is noted: queues, journals, and of the sessions their histories. The rest is no message's home."""
    first, *rest = place.split("/")
    if first == "sessions":
        return len(rest) < 2 or rest[1:] == ["session.jsonl"]
    return first in ("spool", "turns")
