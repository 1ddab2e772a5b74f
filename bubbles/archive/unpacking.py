"""Reading a backup that may be anybody's: each member is checked before a byte of it is used, and nothing it says of sizes is believed.

Refused as a whole is what no backup of ours has: paths that leave the home, hard links, devices, sparse files, headers without end. It does
not know where the files go.
"""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from bubbles.archive import form
from bubbles.archive.form import DEEPEST, END, HEAD, INSIDE, TOP, End, Head, Stream
from bubbles.errors import DataError
from bubbles.messages import LATEST
from bubbles.workspace.names import NAME_MOST, PATH_MOST, shown

_AT_ONCE = 1 << 20  # bytes: a header that wants more is none of ours
_TEXT_MOST = 64 << 20  # of an end, which lists paths
_PIECE = 1 << 18
_DAMAGE = (EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, OSError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True, slots=True)
class Member:
    """One file, directory or link; `path` in the home, "" for the home's own. `leads_out`: a link to somewhere else than into the home."""

    path: str
    kind: str
    size: int = 0
    at_ns: int = 0
    executable: bool = False
    target: str = ""
    leads_out: bool = False


class Unpack:
    """A backup being read, from its head to its end: `head` at once, `end` when all members have been taken."""

    def __init__(self, file: Stream) -> None:
        self.end: End | None = None
        self._at = ""
        with self._damage():
            self._stream = _Forward(form.plain(file))
            self._tar: Any = tarfile.TarFile(fileobj=self._stream, mode="r", encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]  # it reads forward alone
            first = self._tar.next()
            if first is None or first.name != HEAD or not first.isreg():
                raise DataError("this is no backup of a home", remedy="give a file that bubbles backup wrote")
            self.head: Head = form.head(self._text(first))

    def members(self) -> Iterator[tuple[Member, Iterator[bytes]]]:
        """Each member, and the pieces of its content, to be taken before the next. Raises DataError for what must not be in it, or is damaged."""
        while True:
            with self._damage():
                info = self._tar.next()
                self._tar.members.clear()  # it would remember all of them
                if info is None:
                    raise DataError(_SHORT)
                if info.name == END and info.isreg():
                    self.end = form.end(self._text(info))
                    self._drain()
                    return
                self._at = info.name
                member = checked(info)
            yield member, self._pieces(info)

    def _pieces(self, info: tarfile.TarInfo) -> Iterator[bytes]:
        left = info.size if info.isreg() else 0
        with self._damage():
            self._stream.seek(info.offset_data)
        while left:
            with self._damage():
                piece = self._stream.read(min(left, _PIECE))
                if not piece:
                    raise DataError(_SHORT)
            left -= len(piece)
            yield piece

    def _text(self, info: tarfile.TarInfo) -> bytes:
        if info.size > _TEXT_MOST:
            raise DataError(f"{info.name} in this backup is too long")
        self._at = info.name
        return b"".join(self._pieces(info))

    def _drain(self) -> None:
        """To the end of the stream, where its checksum stands; what is padding is zeros."""
        while piece := self._stream.read(_PIECE):
            if piece.strip(b"\0"):
                raise DataError("something stands behind the end of this backup")

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except _DAMAGE as error:
            where = f" at {shown(self._at)}" if self._at else ""
            raise DataError(f"this is no backup of a home, or it is damaged{where}: {error}", remedy=_SHORT_REMEDY) from error


_SHORT = "this backup ends too early: it was cut short"
_SHORT_REMEDY = "get the whole file again, or take another backup"


def checked(info: tarfile.TarInfo) -> Member:
    """What a member of a tar is. Raises DataError for one that no backup of ours has."""
    path = _path(info.name)
    at_ns = _time(info)
    if info.isdir():
        return Member(path, "directory", at_ns=at_ns)
    if not path:
        raise _bad(info, "the home itself is no directory")
    if info.issym():
        return Member(path, "link", at_ns=at_ns, target=info.linkname, leads_out=_leads_out(path, info.linkname))
    if not info.isreg() or info.sparse is not None or info.issparse():
        raise _bad(info, "it is neither a file nor a directory")
    if info.size < 0:
        raise _bad(info, "its size is none")
    _ask_python(info)
    return Member(path, "file", info.size, at_ns, bool(info.mode & stat.S_IXUSR))


def _path(name: str) -> str:
    """The path in the home that a member's name stands for."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise DataError(f"{shown(name)!r} in this backup is no path in a home", remedy="do not use this file")
    inside = parts[len(INSIDE.split("/")) :]
    if not f"{name}/".startswith(f"{INSIDE}/"):
        raise DataError(f"{shown(name)!r} in this backup does not belong there", remedy="do not use this file")
    long = any(len(os.fsencode(part)) > NAME_MOST for part in inside) or len(os.fsencode(name)) > PATH_MOST
    if long or len(inside) > DEEPEST + 1:
        raise DataError(f"{shown(name)[:200]!r} in this backup is too long or too deep", remedy="do not use this file")
    return "/".join(inside)


def _leads_out(path: str, target: str) -> bool:
    """Whether a link may lead out of the home. `..` counts only at its beginning: behind a name it may mean anything."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or not target or "\0" in target or ".." in parts[ups:] or ups > path.count("/") or len(target) > PATH_MOST


def _time(info: tarfile.TarInfo) -> int:
    """Nanoseconds since the epoch: where they stand as text, to the last of them."""
    try:
        at = Decimal(info.pax_headers.get("mtime") or str(info.mtime))
        return int(at * 10**9) if 0 <= at <= LATEST else 0
    except (InvalidOperation, ValueError):
        return 0


def _ask_python(info: tarfile.TarInfo) -> None:
    """The standard library's own opinion, where this Python has one (3.11.4)."""
    ask: Any = getattr(tarfile, "data_filter", None)
    if ask is None:
        return
    try:
        ask(info, f"/{TOP}")
    except tarfile.TarError as error:
        raise _bad(info, str(error)) from error


def _bad(info: tarfile.TarInfo, why: str) -> DataError:
    return DataError(f"{shown(info.name)!r} must not be in a backup: {why}", remedy="do not use this file")


class _Forward:
    """A stream as tarfile wants one that cannot go back, and reads no more at once than there is reason to."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._offset = stream, 0

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if offset < self._offset or whence:
            raise DataError("this backup leads backwards", remedy="do not use this file")
        while offset > self._offset and self.read(min(offset - self._offset, _PIECE)):
            pass
        return self._offset

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _AT_ONCE:
            raise DataError("a header in this backup is too long", remedy="do not use this file")
        found = []
        while size and (piece := self._stream.read(size)):
            found.append(piece)
            size -= len(piece)
            self._offset += len(piece)
        return b"".join(found)
