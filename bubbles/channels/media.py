"""Files on their way: those that a platform brings come to rest in `spool/media/NAME`, those that go to it are opened where agentd has put them.

It does not know what is in a file but for the first bytes of a picture. Nothing here takes a name from outside as a path: each file that comes in has
one of its own, and what its sender called it is shown and no more. A crash leaves a `.part`, which the next process sweeps.
"""

from __future__ import annotations

import asyncio
import mimetypes
import os
import re
import secrets
import stat
import unicodedata
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bubbles.errors import NotEver, TryAgain
from bubbles.messages import Media, scrub
from bubbles.spool.disk import named

NAME_MOST = 120  # characters of the name that its sender gave a file
_HEAD = 16  # bytes that tell a picture
_PART = ".part"
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}$")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}")
_OPEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class TooLarge(NotEver):
    """A file is larger than is taken."""


class Sink:
    """A file that is being written. `media` is what it has become, once its `async with` is over."""

    media: Media

    def __init__(self, fd: int, most: int, free: int) -> None:
        self._fd, self._most, self._free = fd, most, free
        self.size, self.head = 0, b""

    async def write(self, chunk: bytes) -> None:
        """Raises TooLarge beyond the limit, TryAgain where the disk has no room for it and for what else needs some."""
        self.size += len(chunk)
        if self.size > self._most:
            raise TooLarge(f"the file is larger than {told(self._most)}")
        self.head = (self.head + chunk[:_HEAD])[:_HEAD]
        await asyncio.to_thread(self._write, chunk)

    def _write(self, chunk: bytes) -> None:
        disk = os.fstatvfs(self._fd)
        if disk.f_bavail * disk.f_frsize < self._free + len(chunk):
            raise TryAgain(f"no room on the disk for a file: less than {told(self._free)} are free", remedy="make room there: df -h")
        view = memoryview(chunk)
        while view:
            view = view[os.write(self._fd, view) :]


class Shelf:
    """Where a channel puts what comes in: `path`, of mode 0700. `most`: bytes of a file; `free`: bytes that stay free on the disk."""

    def __init__(self, path: Path, most: int = 50_000_000, free: int = 200_000_000) -> None:
        self.path, self._most, self._free = path, most, free

    def prepare(self) -> None:
        """Make the directory, and sweep what a crash left. For whoever holds the channel's lock."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in self.path.glob(f"*{_PART}"):
                with suppress(FileNotFoundError):
                    part.unlink()
        except OSError as error:
            raise named(error, self.path) or error from error

    @asynccontextmanager
    async def file(self, name: str = "", type: str = "", size: int = 0) -> AsyncIterator[Sink]:
        """Write a file that its sender calls `name` and says to be of `type`; `size`: bytes, where the platform says so beforehand.

        It is there, synced, when this ends; with an error, nothing of it is. Raises TooLarge, TryAgain where there is no room, Misconfigured.
        """
        if size > self._most:
            raise TooLarge(f"the file has {told(size)}, and {told(self._most)} are taken")
        id = secrets.token_hex(16)
        part = self.path / f"{id}{_PART}"
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(part, _OPEN, 0o600)
        except OSError as error:
            raise named(error, self.path) or error from error
        try:
            sink = Sink(fd, self._most, self._free)
            yield sink
            await asyncio.to_thread(os.fsync, fd)
            kind = _sniffed(sink.head, type, name)
            shown = cleaned(name, kind)
            extension = _EXTENSION.search(shown)
            whole = self.path / f"{id}{extension[0].lower() if extension else ''}"
            os.rename(part, whole)
            sink.media = Media(str(whole), shown, kind, sink.size)
        except OSError as error:
            raise named(error, self.path) or error from error
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                part.unlink()


def cleaned(name: str, type: str = "") -> str:
    """What a person may be shown as the name of a file: one line, no directories, nothing that turns the direction of writing, its extension last.

    >>> cleaned("../../etc/pass\\u202ewd\\n", "text/plain"), cleaned("", "image/png"), cleaned("C:\\\\a.PDF")
    ('passwd.txt', 'file.png', 'a.PDF')
    """
    kept = "".join(
        " " if character.isspace() else character for character in scrub(name) if character.isspace() or unicodedata.category(character)[0] != "C"
    )
    kept = " ".join(re.split(r"[/\\]", kept)[-1].split()).strip(". ") if kept.strip() else ""
    extension = _EXTENSION.search(kept)
    end = extension[0] if extension else (mimetypes.guess_extension(type) or "")
    stem = kept[: extension.start()] if extension else kept
    return (stem[: NAME_MOST - len(end)].strip() or "file") + end


def _sniffed(head: bytes, type: str, name: str) -> str:
    """The type of a file: a picture's by its bytes, any other as its sender says, or as its name does; "" where nobody knows."""
    for start, kind in ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif")):
        if head.startswith(start):
            return kind
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    said = type.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(said):
        said = mimetypes.guess_type(f"x{found[0]}" if (found := _EXTENSION.search(name)) else "x")[0] or ""
    return "application/octet-stream" if said in ("image/png", "image/jpeg", "image/gif", "image/webp") else said


def lies_in(path: Path, root: Path) -> bool:
    """Whether a path that a message names is directly in `root`, or was there when the home was elsewhere: it may have been restored or moved.

    >>> lies_in(Path("/old/spool/outbound/x/media/a.png"), Path("/new/spool/outbound/x/media"))
    True
    """
    within = root.parts[-4:]
    return path.parent == root or (within[:1] == ("spool",) and ".." not in path.parts and path.parts[-5:-1] == within)


def opened(media: Media, root: Path) -> BinaryIO:
    """The file that goes out, for reading: a regular one directly in `root` (outbound/NAME/media). Raises NotEver where there is none.

    Its directory is held open while its name is looked up, and no link is followed: what was moved into its place meanwhile is not sent.
    """
    path = Path(media.path)
    if not lies_in(path, root) or path.name in ("", ".", ".."):
        raise NotEver(f"the file {cleaned(media.name or path.name)} does not lie where files to be sent lie")
    try:
        directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fd = os.open(path.name, _READ, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise NotEver(f"the file {cleaned(media.name or path.name)} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotEver(f"{cleaned(media.name or path.name)} is no regular file")
    return open(fd, "rb")


def told(size: int) -> str:
    """Bytes as a person reads them.

    >>> told(50_000_000), told(999)
    ('50 MB', '999 bytes')
    """
    return f"{size} bytes" if size < 1000 else f"{size // 1000} kB" if size < 1_000_000 else f"{size // 1_000_000} MB"
