"""The moment that a backup shows: the homes of all messages, read while none was left behind.

Between two looks at every journal and history that agree (`still`), jobs, queues and what was given up are read, in the order in which messages
travel. README.md has the argument. Nobody is asked to wait, and nobody needs to be running.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.archive.packing import READ
from bubbles.archive.spool import File, Queues

_TAIL = 4096
_BACK = 1 << 16
_SAYS_MORE = re.compile(rb'^\{"event":"ToolFinished"|"media":\[\{', re.MULTILINE)
_SENT_ON = re.compile(rb'^\{"event":"Said"', re.MULTILINE)  # a reply of a turn that goes on was put into a queue, and is not put again
ALONE = ("cron/jobs.json", "chats.json")  # replaced whole, each by one writer

Stat = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """How a session stands: the end of its history, its journal, and where files come in from a channel."""

    history: Stat  # inode, size
    tail: bytes
    journal: bytes
    journal_stat: Stat  # inode, mtime
    data: Stat

    def goes_on(self, later: Mark) -> bool:
        """Whether nothing happened since but that words were taken in, a model was asked, or a tool began: no turn was closed, no journal emptied,
        no reply sent on by a turn that then went on."""
        grown = later.journal.startswith(self.journal) and (bool(self.journal or later.journal) or self.journal_stat == later.journal_stat)
        return self.history == later.history and self.tail == later.tail and grown and not _SENT_ON.search(later.journal, self._whole)

    def leaves_files(self, later: Mark) -> bool:
        """Whether moreover no tool has ended and no file come in, so that files read meanwhile are those that its conversation knows of."""
        return self.data == later.data and not _SAYS_MORE.search(later.journal, self._whole)

    @property
    def _whole(self) -> int:
        """Where the whole lines of its journal end: the last one may have been seen while it was written."""
        return self.journal.rfind(b"\n") + 1


@dataclass(slots=True)
class Moment:
    """What was read: `files` by path; `histories`: how much of each session's counts, and how that ends."""

    files: dict[str, File] = field(default_factory=dict)
    directories: dict[str, os.stat_result] = field(default_factory=dict)
    media: dict[str, int] = field(default_factory=dict)  # by path: a descriptor, for it may be moved before it is copied
    histories: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def close(self) -> None:
        for fd in self.media.values():
            os.close(fd)
        self.media.clear()


class Homes:
    """The homes of messages below `root`. `queues` knows what of them was copied already; `copied` names the files of whole directories that were."""

    def __init__(self, root: Path, queues: Queues) -> None:
        self._root, self._queues = root, queues
        self._tails: dict[str, tuple[Stat, bytes]] = {}
        self.copied: set[str] = set()
        self.unread = queues.unread

    def marks(self, *, journals_first: bool = False) -> dict[str, Mark]:
        """By session. The first look at a session sees its history before its journal, the last after it: a turn that closes between is noticed."""
        keys = {*self._names("sessions"), *(name.removesuffix(".jsonl") for name in self._journals())}
        return {key: self._mark(key, journals_first) for key in sorted(keys)}

    def _mark(self, key: str, journal_first: bool) -> Mark:
        early = self._journal(key) if journal_first else None
        history, tail = self._history(key)
        journal = early if journal_first else self._journal(key)
        data: Stat = ()
        with self.unread.noting(f"sessions/{key}/data"):
            data = _stat(self._root / "sessions" / key / "data", "st_ino", "st_mtime_ns")
        return Mark(history, tail, journal.content if journal else b"", (journal.number[0], journal.at_ns) if journal else (), data)

    def _journal(self, key: str) -> File | None:
        return self._queues.got(f"turns/{key}.jsonl")

    def _history(self, key: str) -> tuple[Stat, bytes]:
        path = f"sessions/{key}/session.jsonl"
        with self.unread.noting(path):
            found = _stat(self._root / path, "st_ino", "st_size", "st_mtime_ns")
            if found and (key not in self._tails or self._tails[key][0] != found):
                self._tails[key] = found, end_of(self._root / path, found[1])
            if found:
                return found[:2], self._tails[key][1]
        return (), b""

    def read(self) -> Moment:
        """All of them but journals and histories, which are the marks'. Raises Moving."""
        moment = Moment()
        try:
            self._read(moment)
        except BaseException:
            moment.close()
            raise
        return moment

    def _read(self, moment: Moment) -> None:
        self._take(moment, *ALONE)  # jobs before the queue that they put into
        for path in self.files("spool/media"):
            self._open(moment, path)
        self._take(moment, *self.files("turns/held"))  # before the queues that a person may release it into
        for path, found in self._queues.look():
            if isinstance(found, File):
                moment.files[path] = found
            else:
                moment.directories[path] = found
        self._take(moment, *self.files("turns/released"))

    def _take(self, moment: Moment, *paths: str) -> None:
        for path in paths:
            if path not in self.copied and (found := self._queues.got(path)) is not None:
                moment.files[path] = found

    def _open(self, moment: Moment, path: str) -> None:
        if path in self.copied:
            return
        with self.unread.noting(path):
            moment.media[path] = os.open(self._root / path, READ)

    def files(self, top: str) -> Iterator[str]:
        """The files below one of our directories, as paths in the home."""
        for at, _, names in sorted(os.walk(self._root / top, onerror=self._note)):
            yield from (os.path.relpath(os.path.join(at, name), self._root) for name in sorted(names))

    def _note(self, error: OSError) -> None:
        with self.unread.noting(os.path.relpath(error.filename, self._root)):
            raise error

    def _journals(self) -> list[str]:
        return [name for name in self._names("turns") if name.endswith(".jsonl")]

    def _names(self, path: str) -> list[str]:
        with self.unread.noting(path):
            return os.listdir(self._root / path)
        return []


def agree(root: Path, homes: Homes, moment: Moment, before: dict[str, Mark], alone: tuple[Stat, ...]) -> tuple[bool, set[str]]:
    """Whether `moment` may stand, read since `before` was; and the sessions whose files may be older than what their journals say.

    Journals and histories as they are now become its own.
    """
    after = homes.marks(journals_first=True)
    none = Mark((), b"", b"", (), ())
    moves = [key for key, mark in after.items() if not before.get(key, none).goes_on(mark)]
    if moves or before.keys() - after.keys() or alone != stats(root):
        return False, set()
    for key, mark in after.items():
        if mark.journal:
            whole = mark.journal[: mark.journal.rfind(b"\n") + 1]
            moment.files[f"turns/{key}.jsonl"] = File(whole, mark.journal_stat[1], (mark.journal_stat[0], len(whole)))
        if mark.history:
            moment.histories[key] = mark.history[1], mark.tail
    return True, {key for key, mark in after.items() if not before.get(key, none).leaves_files(mark)}


def stats(root: Path) -> tuple[Stat, ...]:
    """Of the files that are replaced whole; nothing of one that cannot be read."""
    found = []
    for path in ALONE:
        with suppress(PermissionError):
            found.append(_stat(root / path, "st_ino", "st_size", "st_mtime_ns"))
    return tuple(found)


def end_of(path: Path, size: int) -> bytes:
    """The last bytes of the first `size` of a file; fewer where it has become shorter."""
    fd = os.open(path, READ)
    try:
        return os.pread(fd, min(_TAIL, size), max(0, size - _TAIL))
    finally:
        os.close(fd)


def whole_lines(fd: int, size: int) -> int:
    """How many of the first `size` bytes of a file are whole lines."""
    while size > 0:
        start = max(0, size - _BACK)
        if (at := os.pread(fd, size - start, start).rfind(b"\n")) >= 0:
            return start + at + 1
        size = start
    return 0


def _stat(path: Path, *fields: str) -> Stat:
    try:
        found = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(getattr(found, name) for name in fields)
