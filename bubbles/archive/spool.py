"""The queues of a home, read while others move files in them: what is accepted is seen, wherever it is carried meanwhile.

States are read in the order in which files travel. Because a message may also be put back, and so be in neither of two states when each is
looked at, they are looked at until nothing was moved meanwhile, as the times of the directories tell. What a later state has counts: a message
that is done, and was seen waiting a moment before, is done. Receipts come last: a send that was begun before is then known to have been.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bubbles.archive.packing import READ, Pack
from bubbles.archive.unread import Unread

WAYS = ("inbound", "outbound")
_WAIT = ("new", "cur", "held")
_LOOKS = 100
_TICK_NS = 12_000_000  # two moves so near to each other may leave the same time at a directory


class Moving(Exception):
    """It cannot be said where something is: look at all of it again."""


@dataclass(frozen=True, slots=True)
class File:
    """A small file, read whole."""

    content: bytes
    at_ns: int
    number: tuple[int, int]


class Queues:
    """What the queues of the home at `root` hold. What was copied before, and does not change any more, is not read again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.unread = Unread()  # of these, and of whatever else is read beside them
        self._copied: dict[str, set[str]] = {}  # by directory: names whose files are in the pack
        self._known: dict[tuple[str, str], File] = {}  # by queue and name: what was read of those that wait, which never change

    def copy(self, pack: Pack) -> None:
        """What is done and will not change, without haste, and the receipts of that; a second time, what came since."""
        for way, name in self._queues():
            queue = f"spool/{way}/{name}"
            done, receipts = (self._copied.setdefault(f"{queue}/{state}", set()) for state in ("done", "receipts"))
            fresh = [file for file in self._names(f"{queue}/done") if file not in done]
            done.update(self._into(pack, f"{queue}/done", fresh))
            late = {_receipt(file) for file in fresh}
            receipts.update(self._into(pack, f"{queue}/receipts", [f for f in self._names(f"{queue}/receipts") if f not in receipts or f in late]))

    def _into(self, pack: Pack, path: str, files: list[str]) -> Iterator[str]:
        for file in files:
            if (found := self.got(f"{path}/{file}")) is not None:
                pack.content(f"{path}/{file}", found.content, found.at_ns)
                yield file

    def look(self) -> Iterator[tuple[str, File | os.stat_result]]:
        """What else there is now, by its path in the home: files, and the directories of the queues. Raises Moving."""
        for way, name in self._queues():
            queue = f"spool/{way}/{name}"
            waiting = self._waiting(queue)
            done = self._copied.get(f"{queue}/done", set())
            late = {file: found for file in self._names(f"{queue}/done") if file not in done and (found := self._read(queue, "done", file))}
            waiting = {file: held for file, held in waiting.items() if file not in late and file not in done}
            yield from ((f"{queue}/done/{file}", found) for file, found in late.items())
            yield from ((f"{queue}/{state}/{file}", found) for file, (state, found) in waiting.items())
            yield from self._receipts(queue, {*waiting, *late})
            info = None
            with self.unread.noting(queue):
                info = os.stat(self._root / queue)
            if info is not None:
                yield queue, info

    def _waiting(self, queue: str) -> dict[str, tuple[str, File]]:
        """By name, what waits or is held, and in which state it was seen last."""
        found: dict[str, tuple[str, File]] = {}
        for _ in range(_LOOKS):
            times = self._times(queue)
            if (fresh_ns := _TICK_NS - (time.time_ns() - max(times))) > 0:  # what is moved now might not show in the times
                time.sleep(min(fresh_ns, _TICK_NS) / 1e9)
            if times == self._times(queue) and self._look_at(queue, found) and times == self._times(queue):
                return found
        raise Moving(queue)

    def _look_at(self, queue: str, found: dict[str, tuple[str, File]]) -> bool:
        """Add what is seen; whether none of it was gone before it could be read."""
        missed = False
        for state in _WAIT:
            for file in self._names(f"{queue}/{state}"):
                if (content := self._read(queue, state, file)) is not None:
                    found[file] = state, content
                elif f"{queue}/{state}/{file}" not in self.unread and not os.path.lexists(self._root / queue / state / file):
                    missed = True
        return not missed

    def _times(self, queue: str) -> list[int]:
        """When something was moved into or out of each of the states in which files wait; by the disk's clock, which ticks slowly."""
        found = [0]
        for state in _WAIT:
            with suppress(OSError):
                found.append(os.stat(self._root / queue / state).st_mtime_ns)
        return found

    def _receipts(self, queue: str, files: set[str]) -> Iterator[tuple[str, File]]:
        """Those of messages that wait or are done of late, and those that came of late."""
        path = f"{queue}/receipts"
        there = set(self._names(path))
        for file in sorted(there - self._copied.get(path, set()) | there & {_receipt(name) for name in files}):
            if (found := self.got(f"{path}/{file}")) is not None:
                yield f"{path}/{file}", found

    def _read(self, queue: str, state: str, file: str) -> File | None:
        path, known = self._root / queue / state / file, self._known.get((queue, file))
        if known is not None and not file.endswith(".why"):
            with suppress(OSError):
                info = os.stat(path, follow_symlinks=False)
                if known.number == (info.st_ino, info.st_size):
                    return File(known.content, info.st_mtime_ns, known.number)
        found = self.got(f"{queue}/{state}/{file}")
        if found is not None:
            self._known[queue, file] = found
        return found

    def _queues(self) -> list[tuple[str, str]]:
        return [(way, name) for way in WAYS for name in self._names(f"spool/{way}") if self._is_directory(f"spool/{way}/{name}")]

    def _is_directory(self, path: str) -> bool:
        with self.unread.noting(path):
            return stat.S_ISDIR(os.stat(self._root / path).st_mode)
        return False

    def got(self, path: str) -> File | None:
        """A regular file of the home; None where there is none, any more or at all, or it may not be read, which is noted."""
        with self.unread.noting(path):
            return read(self._root / path)
        return None

    def _names(self, path: str) -> list[str]:
        with self.unread.noting(path):
            return sorted(os.listdir(self._root / path))
        return []


def read(path: Path) -> File | None:
    """A regular file; None where there is none, any more or at all. Raises OSError where it may not be read."""
    try:
        fd = os.open(path, READ)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None
        content = b""
        while len(content) < info.st_size and (more := os.read(fd, info.st_size - len(content))):
            content += more
        return File(content, info.st_mtime_ns, (info.st_ino, info.st_size))
    finally:
        os.close(fd)


def _receipt(message: str) -> str:
    return f"{message.removesuffix('.json')}.jsonl"
