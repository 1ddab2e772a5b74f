"""Writing a backup: each member whole, with its time to the nanosecond, because a message's time is its place in the line."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bubbles.archive.form import END, HEAD, INSIDE, End, Head
from bubbles.archive.form import Stream as Source

_PIECE = 1 << 20
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Told = Callable[[str, int], object]  # a path, and how many bytes of it were added


class Pack:
    """A backup that is being written to `out`. Paths are relative to the home; `told` hears of each piece."""

    def __init__(self, out: Any, told: Told = lambda path, size: None) -> None:
        self._tar: Any = tarfile.TarFile(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape")
        self._told = told
        self.end = End()

    def begin(self, head: Head) -> None:
        self._text(HEAD, head.body())

    def finish(self) -> End:
        """Nothing comes after it."""
        self._text(END, asdict(self.end))
        self._tar.close()
        return self.end

    def file(self, path: str, fd: int, size: int, info: os.stat_result) -> None:
        """The first `size` bytes of an open file; where it has become shorter meanwhile, zeros stand for the rest.

        Raises OSError where it cannot be read: then zeros stand for it, and the file is to be counted as gone."""
        source = _Exactly(fd, size, lambda more: self._told(path, more))
        self._file(path, source, size, info.st_mtime_ns, info.st_mode)
        if source.error is not None:
            raise source.error

    def content(self, path: str, content: bytes, at_ns: int) -> None:
        """A file that was read before."""
        self._file(path, io.BytesIO(content), len(content), at_ns, 0o600)
        self._told(path, len(content))

    def directory(self, path: str, info: os.stat_result) -> None:
        member = self._member(path, info.st_mtime_ns)
        member.type, member.mode = tarfile.DIRTYPE, 0o700
        self._add(member)

    def link(self, path: str, target: str, info: os.stat_result) -> None:
        member = self._member(path, info.st_mtime_ns)
        member.type, member.linkname = tarfile.SYMTYPE, target
        self._add(member)

    def _file(self, path: str, source: Source, size: int, at_ns: int, mode: int) -> None:
        member = self._member(path, at_ns)
        member.size, member.mode = size, 0o700 if mode & stat.S_IXUSR else 0o600
        self._add(member, source)
        self.end.files += 1
        self.end.bytes += size

    def _text(self, name: str, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode() + b"\n"
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(content), 0o600
        self._add(member, io.BytesIO(content))

    def _member(self, path: str, at_ns: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(f"{INSIDE}/{path}" if path else INSIDE)
        member.mtime = max(0, at_ns) // 10**9
        member.pax_headers = {"mtime": f"{member.mtime}.{max(0, at_ns) % 10**9:09d}"}  # tarfile's own would be a float
        return member

    def _add(self, member: tarfile.TarInfo, source: Any = None) -> None:
        self._tar.addfile(member, source)
        self._tar.members.clear()  # it would remember all of them


class _Exactly:
    """So many bytes of a file, whatever becomes of it meanwhile."""

    def __init__(self, fd: int, size: int, told: Callable[[int], object]) -> None:
        self._fd, self._left, self._told = fd, size, told
        self._offset = 0
        self.error: OSError | None = None

    def read(self, size: int = -1) -> bytes:
        wanted = min(self._left, _PIECE if size < 0 else size)
        piece = self._piece(wanted).ljust(wanted, b"\0")
        self._offset += len(piece)
        self._left -= len(piece)
        self._told(len(piece))
        return piece

    def _piece(self, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, self._offset) if self.error is None else b""
        except OSError as error:  # a disk in trouble: what was begun has to be as long as its header says
            self.error = error
            return b""


def opened(at: int, name: str) -> tuple[int, os.stat_result] | None:
    """A regular file in an open directory, to be read; None for anything else. Raises OSError."""
    fd = os.open(name, READ, dir_fd=at)
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode):
        return fd, info
    os.close(fd)
    return None
