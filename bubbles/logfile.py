"""The files in log/ that programs append to where no journal keeps what they say: NAME.jsonl, NAME.log, and of each the older .1 to .3.

It does not know what stands in a line. A file that is long enough is moved aside and a new one begun; the oldest goes.
Whoever moves one holds its lock, so that two that find it too long move it once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from bubbles import regular

MOST_BYTES = 5 << 20  # a file that has grown beyond is moved aside
KEPT = 3  # files moved aside that are kept

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def opened(path: Path) -> int:
    """A descriptor to append to `path`; what was too long is moved aside first. Raises OSError, for what is no file as well."""
    while True:
        fd = regular.opened(path, _APPEND, 0o600)
        try:
            if os.fstat(fd).st_size <= MOST_BYTES:
                return fd
            fcntl.flock(fd, fcntl.LOCK_EX)
            if is_at(fd, path):
                _move_aside(path)
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


class Lines:
    """A log file of whole lines, which is made with the first one. What a crash or a full disk cut off spoils no line that comes after it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._torn = False  # the last line may lack its end

    def write(self, line: bytes) -> bool:
        """Append a line. False where it cannot be done now: the disk is full, the directory is gone."""
        try:
            if self._fd < 0:
                self._open()
            written = os.write(self._fd, b"\n" + line if self._torn else line)
            whole = written == len(line) + self._torn
        except OSError:
            whole = False
        self._torn = not whole
        if whole:
            found = os.fstat(self._fd)
            if found.st_size > MOST_BYTES or not found.st_nlink:
                with contextlib.suppress(OSError):
                    self._open()
        return whole

    def close(self) -> None:
        """The next line opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700)
        fd = opened(self._path)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._torn = fd, _is_torn(self._path)


class StandardError:
    """This process's standard error, where it is the log file at `path`; anything else is left alone."""

    def __init__(self, path: Path) -> None:
        self._path = path if is_at(2, path) else None

    def tend(self) -> None:
        """Go on in a new file where this one is too long, or was moved aside by somebody else. Where that fails it stays as it is."""
        if self._path is None or (os.fstat(2).st_size <= MOST_BYTES and is_at(2, self._path)):
            return
        with contextlib.suppress(OSError):
            fd = opened(self._path)
            if _are_one(1, 2):
                os.dup2(fd, 1)
            os.dup2(fd, 2)
            os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    """Whether a descriptor is the file at `path`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _is_torn(path: Path) -> bool:
    with open(path, "rb", buffering=0, opener=regular.opened) as file:
        return file.seek(0, os.SEEK_END) > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"


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
