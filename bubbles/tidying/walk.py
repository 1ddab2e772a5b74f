"""Directories walked by descriptors: each name is opened where it lies, no link is followed, and no other disk or mount is entered.

Whatever is exchanged during the walk, nothing outside of the directory that it started from is ever reached. It does not
know which files are old.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 100  # directories in each other; each costs a descriptor
_MOUNT = re.compile(r"^mnt_id:\s*(\d+)", re.MULTILINE)
_MOVED_ON = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # it was removed, or is something else by now

Left = Callable[[str, str], None]  # told of a path that was left alone, and why


@dataclass(frozen=True, slots=True)
class Old:
    """Something that may go: `name` in the directory that is open as `at`, as long as whoever yielded it waits. `path` is for people."""

    kind: str
    path: str
    at: int
    name: str
    info: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def size(self) -> int:
        """Bytes that go with it: none where another name keeps them."""
        return self.info.st_size if stat.S_ISREG(self.info.st_mode) and self.info.st_nlink == 1 else 0

    def remove(self) -> None:
        """Raises OSError."""
        (os.rmdir if self.is_directory else os.unlink)(self.name, dir_fd=self.at)


class Rule(Protocol):
    """What may go of a tree. Names begin below its top."""

    def file(self, names: tuple[str, ...], info: Callable[[], os.stat_result]) -> str:
        """The kind as which a file goes, "" for one that stays. `info` raises OSError."""

    def directory(self, names: tuple[str, ...], info: os.stat_result) -> str:
        """The same of a directory that has nothing in it any more; `info` is from before anything went."""

    def matters(self, names: tuple[str, ...]) -> bool:
        """Whether somebody wants to know that this directory could not be looked into."""


def tree(at: int, name: str, path: str, rule: Rule, left: Left) -> Iterator[Old]:
    """What may go below the directory `name` in `at`, innermost first; `path` names it for people."""
    return _Walk(rule, left, path).below(at, name, ())


class _Walk:
    def __init__(self, rule: Rule, left: Left, top: str) -> None:
        self._rule, self._left, self._top = rule, left, top
        self._mount: tuple[int, str] | None = None

    def below(self, at: int, name: str, names: tuple[str, ...]) -> Generator[Old, None, bool]:
        """Whether the directory is gone at the end, if all that was yielded is."""
        try:
            fd = os.open(name, _DIRECTORY, dir_fd=at)
        except OSError as error:
            if error.errno not in _MOVED_ON:
                self._tell(names, error.strerror or "")
            return False
        try:
            info = os.fstat(fd)
            if why := self._shut(fd, len(names)):
                self._tell(names, why)
                return False
            empty = yield from self._within(fd, names)
        finally:
            os.close(fd)
        kind = self._rule.directory(names, info) if empty else ""
        if kind:
            yield Old(kind, self._path(names), at, name, info)
        return bool(kind)

    def _within(self, fd: int, names: tuple[str, ...]) -> Generator[Old, None, bool]:
        try:
            with os.scandir(fd) as found:
                entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except OSError as error:
            self._tell(names, error.strerror or "")
            return False
        empty = True
        for name, is_directory in entries:
            below = (*names, name)
            if is_directory:
                gone = yield from self.below(fd, name, below)
            else:
                gone = yield from self._file(fd, name, below)
            empty = empty and gone
        return empty

    def _file(self, fd: int, name: str, names: tuple[str, ...]) -> Generator[Old, None, bool]:
        look = cache(lambda: info(fd, name))  # once: what is judged is what goes
        try:
            kind = self._rule.file(names, look)
            if not kind or stat.S_ISDIR(look().st_mode):  # which it was not a moment ago
                return False
        except FileNotFoundError:
            return True
        except OSError as error:
            self._tell(names, error.strerror or "")
            return False
        yield Old(kind, self._path(names), fd, name, look())
        return True

    def _shut(self, fd: int, depth: int) -> str:
        """Why a directory is not entered."""
        mount = mounted(fd)
        self._mount = self._mount or mount
        if mount != self._mount:
            return "another disk is mounted there"
        return "it lies too deep" if depth > _DEEPEST else ""

    def _tell(self, names: tuple[str, ...], why: str) -> None:
        if self._rule.matters(names):
            self._left(self._path(names), why)

    def _path(self, names: tuple[str, ...]) -> str:
        return "/".join([self._top, *names])


def info(fd: int, name: str) -> os.stat_result:
    """Of a name in an open directory, a link itself. Raises OSError."""
    return os.stat(name, dir_fd=fd, follow_symlinks=False)


def mounted(fd: int) -> tuple[int, str]:
    """What an open directory is mounted from: its disk, and where the system tells, which mount of it."""
    number = ""
    with suppress(OSError):
        if found := _MOUNT.search(Path(f"/proc/self/fdinfo/{fd}").read_text()):
            number = found[1]
    return os.fstat(fd).st_dev, number


@contextmanager
def entered(at: int, *names: str) -> Iterator[int | None]:
    """The directory that `names` lead to from `at`, open; None where one of them is no directory, or may not be entered."""
    fds = [at]
    try:
        try:
            for name in names:
                fds.append(os.open(name, _DIRECTORY, dir_fd=fds[-1]))
        except OSError:
            yield None
        else:
            yield fds[-1]
    finally:
        for fd in fds[1:]:
            os.close(fd)


def directories(at: int, *names: str) -> list[str]:
    """The names of the directories in a directory, sorted; none where it cannot be read."""
    with entered(at, *names) as fd:
        if fd is None:
            return []
        with suppress(OSError), os.scandir(fd) as found:
            return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    return []


def files(fd: int) -> Iterator[tuple[str, os.stat_result]]:
    """What lies in an open directory and is none itself, as it was when it was looked at."""
    try:
        names = os.listdir(fd)
    except OSError:
        return
    for name in names:
        with suppress(OSError):
            if not stat.S_ISDIR((found := info(fd, name)).st_mode):
                yield name, found
