"""Disks that go wrong, to be put where a queue has `os`."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

SILENT = frozenset({"access", "close"})  # calls that do not fail for want of room or rights


class Killed(BaseException):
    """The process is gone; nothing after this happens."""


class Recording:
    """`os`, remembering the calls made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.renames: set[tuple[str, str]] = set()  # (from, to), the directories' names
        self._open: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            result = self._make(name, function, args, kwargs)
            if name == "open":
                self._open.add(result)
            elif name == "close":
                self._open.discard(args[0])
            elif name == "rename":
                self.renames.add((Path(args[0]).parent.name, Path(args[1]).parent.name))
            return result

        return call

    def _make(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(*args, **kwargs)

    def release(self) -> None:
        """What the kernel does for a process that is gone: close its files."""
        for fd in self._open:
            with suppress(OSError):
                os.close(fd)
        self._open.clear()


class Dying(Recording):
    """The process is killed at its n-th call (from 1): that call does not happen, a write happens by half."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n = n

    def _make(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(self.calls) == self._n and name == "write":
            function(args[0], args[1][: len(args[1]) // 2])
        if len(self.calls) >= self._n:
            raise Killed
        return function(*args, **kwargs)


class Refusing(Recording):
    """The n-th call (of those that can fail) is refused with an error; a write that has no room is made by half first, as the kernel does."""

    def __init__(self, n: int, error: int) -> None:
        super().__init__()
        self._n = n
        self._error = error
        self.refused = False

    def _make(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if sum(call not in SILENT for call in self.calls) == self._n and name not in SILENT and not self.refused:
            self.refused = True
            if name == "write" and self._error == errno.ENOSPC:
                function(args[0], args[1][: len(args[1]) // 2])
            raise OSError(self._error, os.strerror(self._error))
        return function(*args, **kwargs)


class Stuttering(Recording):
    """Takes and gives seven bytes at a time, as any disk may."""

    def _make(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "write":
            return function(args[0], args[1][:7])
        return function(args[0], min(args[1], 7)) if name == "read" else function(*args, **kwargs)


class Unsynced(Recording):
    """A disk whose cache is lost when the power goes: of a file that was not synced, any part of the content may be gone."""

    def __init__(self) -> None:
        super().__init__()
        self._dirty: dict[int, int] = {}  # inode → a descriptor of ours that outlives the queue's own

    def _make(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "write":
            inode = os.fstat(args[0]).st_ino
            self._dirty.setdefault(inode, os.open(f"/proc/self/fd/{args[0]}", os.O_WRONLY))
        elif name in ("fdatasync", "fsync"):
            kept = self._dirty.pop(os.fstat(args[0]).st_ino, -1)
            if kept >= 0:
                os.close(kept)
        return function(*args, **kwargs)

    def cut(self, chance: random.Random) -> None:
        """The power goes."""
        for fd in self._dirty.values():
            size = os.fstat(fd).st_size
            left = chance.choice([0, chance.randrange(size), size])
            os.ftruncate(fd, left)
            if chance.random() < 0.3:
                os.ftruncate(fd, size)  # the length was kept, the rest reads as zeros
            os.close(fd)
        self._dirty.clear()
