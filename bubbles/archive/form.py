"""The form of a backup: a tar of a head, the home, and an end without which it is not whole.

    bubbles-backup/backup.json     {"format": "bubbles.backup", "version": 1, "bubbles", "home", "at", "without": [what was left out]}
    bubbles-backup/home/…          the files; what stands there twice counts as it stands last
    bubbles-backup/end.json        {"files", "bytes", "removed": [paths that were gone before the end], "unread": {path: why}, "busy": [sessions]}

It does not know how the files of a home belong together.
"""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bubbles import regular
from bubbles.errors import DataError, Usage
from bubbles.messages import LATEST, from_line, migrate

FORMAT = "bubbles.backup"
VERSION = 1
TOP = "bubbles-backup"
HEAD, INSIDE, END = f"{TOP}/backup.json", f"{TOP}/home", f"{TOP}/end.json"
DEEPEST = 100  # directories in each other, below the home's own
_KINDS = {".tar": "", ".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".txz": "xz"}
_NAMED = re.compile(r"bubbles-\d{4}-\d\d-\d\d-\d{6}\.tar\.gz(\.part)?")  # as a backup is called that nobody gave a name
_MAGIC = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz"}


class Stream(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Head:
    """What a backup says of itself first. `home`: where it was taken; `at`: when that began (epoch seconds); `without`: names of options."""

    bubbles: str
    home: str
    at: float
    without: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}


@dataclass(slots=True)
class End:
    """What it says of itself last. `busy`: sessions that never stood still, whose files may be older than their conversation."""

    files: int = 0
    bytes: int = 0
    removed: list[str] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)


def head(content: bytes) -> Head:
    """The head that is written so. Raises DataError where it is none, ProtocolError where a newer program wrote it."""
    body = from_line(content)
    if body.get("format") != FORMAT:
        raise DataError("this is no backup of a home", remedy="give a file that bubbles backup wrote")
    body = migrate(body, VERSION, {}, "this backup")
    at, without = body.get("at"), body.get("without", [])
    if not isinstance(at, int | float) or isinstance(at, bool) or not 0 <= at <= LATEST or not isinstance(without, list):
        raise DataError("this backup's head cannot be understood")
    return Head(str(body.get("bubbles", "")), str(body.get("home", "")), float(at), tuple(map(str, without)))


def end(content: bytes) -> End:
    """The end that is written so. Raises DataError where it is none."""
    body = from_line(content)
    found = End()
    for name in ("files", "bytes", "removed", "unread", "busy"):
        value = body.get(name, getattr(found, name))
        if type(value) is not type(getattr(found, name)):
            raise DataError(f"this backup's end cannot be understood: {name!r}")
        setattr(found, name, value)
    if not all(isinstance(each, str) for each in (*found.removed, *found.busy)):
        raise DataError("this backup's end cannot be understood")
    return found


def kind(name: str) -> str:
    """How a file of this name is compressed: "gz", "xz" or "" for not at all. Raises Usage for a name that does not say."""
    for suffix in sorted(_KINDS, key=len, reverse=True):
        if name.endswith(suffix):
            return _KINDS[suffix]
    raise Usage(f"{name}: the name does not say what kind of file it is to be", remedy="let it end in .tar.gz, .tar.xz or .tar")


def compressing(file: Any, how: str) -> Any:
    """What is written to it arrives in `file` compressed. To be closed before `file` is."""
    if how == "gz":
        return gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6)
    return lzma.LZMAFile(file, "wb") if how == "xz" else file


def plain(file: Stream) -> Stream:
    """What a file holds, whichever way it is compressed; nothing of it is believed yet."""
    first = b""
    while len(first) < 6 and (more := file.read(6 - len(first))):
        first += more
    how = next((how for magic, how in _MAGIC.items() if first.startswith(magic)), "")
    whole: Any = _Begun(first, file)
    if how == "gz":
        return gzip.GzipFile(fileobj=whole)
    return lzma.LZMAFile(whole) if how == "xz" else whole


def is_backup(path: Path) -> bool:
    """Whether a regular file is a backup, or was to be one: by the name that one gets by itself, or by how it begins."""
    if _NAMED.fullmatch(path.name):
        return True
    try:
        with open(path, "rb", opener=regular.opened) as file:
            stream, found = plain(file), b""
            while len(found) < len(HEAD) and (more := stream.read(len(HEAD) - len(found))):
                found += more
            return found == HEAD.encode()
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return False


class _Begun:
    """A stream of which the first bytes have been read already."""

    def __init__(self, first: bytes, rest: Stream) -> None:
        self._first, self._rest = first, rest

    def read(self, size: int = -1, /) -> bytes:
        if not self._first:
            return self._rest.read(size)
        if size < 0:
            size = len(self._first)
        taken, self._first = self._first[:size], self._first[size:]
        return taken
