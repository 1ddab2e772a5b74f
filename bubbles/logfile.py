"""The files in log/ that programs append to where no journal keeps what they say: NAME.log, and the older NAME.log.1 to .3.

It does not know what stands in a line. A file that is long enough is moved aside and a new one begun; the oldest goes.
Whoever moves one holds its lock, so that two that find it too long move it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

MOST_BYTES = 5 << 20  # a file that has grown beyond is moved aside
KEPT = 3  # files moved aside that are kept

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def opened(path: Path) -> int:
    """A descriptor to append to `path`; what was too long is moved aside first. Raises OSError."""
    while True:
        fd = os.open(path, _APPEND, 0o600)
        try:
            if os.fstat(fd).st_size <= MOST_BYTES:
                return fd
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_at(fd, path):
                _move_aside(path)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


class Appended:
    """A log file that is appended to for long. `write` takes whole lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = opened(path)

    def write(self, lines: bytes) -> None:
        """Append. Raises OSError where the disk is full."""
        os.write(self._fd, lines)
        if os.fstat(self._fd).st_size > MOST_BYTES:
            fd = opened(self._path)
            os.close(self._fd)
            self._fd = fd

    def close(self) -> None:
        os.close(self._fd)


class Late:
    """As `Appended`, but the file is made with the first line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: Appended | None = None

    def write(self, lines: bytes) -> None:
        """Append. Raises OSError where the file cannot be made, or the disk is full."""
        if self._file is None:
            self._file = Appended(self._path)
        self._file.write(lines)


class StandardError:
    """This process's standard error, where it is the log file at `path`; anything else is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path if _is_at(2, path) else None

    def tend(self) -> None:
        """Go on in a new file where this one is too long, or was moved aside by somebody else. Where that fails it stays as it is."""
        if self._path is None or (os.fstat(2).st_size <= MOST_BYTES and _is_at(2, self._path)):
            return
        with contextlib.suppress(OSError):
            fd = opened(self._path)
            if _are_one(1, 2):
                os.dup2(fd, 1)
            os.dup2(fd, 2)
            os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _are_one(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def _move_aside(path: Path) -> None:
    for n in range(KEPT, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}.{n - 1}", f"{path}.{n}")
    os.replace(path, f"{path}.1")
