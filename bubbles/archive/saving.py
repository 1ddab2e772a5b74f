"""A home copied into a pack: first what takes long, then the moment, then what the moment says.

It does not know where the pack goes, nor what a message says.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from bubbles import __version__
from bubbles.archive.form import End, Head
from bubbles.archive.moment import Homes, Mark, Moment, agree, end_of, stats, whole_lines
from bubbles.archive.packing import READ, Pack
from bubbles.archive.spool import Moving, Queues
from bubbles.archive.trees import HISTORY, Trees
from bubbles.archive.unread import Unread
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home

_PATIENCE_S = 60.0  # for a moment in which nothing is left behind
_FILES_S = 20.0  # so long, for one in which no session's files lag behind either
_REST_S, _REST_MOST_S = 0.002, 0.05  # between two tries
_JOURNAL = re.compile(r"turns/[^/]+\.jsonl")
_ALWAYS = re.compile(r"run|cron/jobs\.json|chats\.json|usage/.*|spool/(inbound|outbound)/.*")
_GOES_OUT = re.compile(r"spool/outbound/[^/]+/(new|cur|held)/[^/]+\.json")
WITHOUT = {  # what may be left out, by the name of its option
    "models": re.compile(r"models"),
    "logs": re.compile(r"log"),
    "keys": re.compile(r"config\.json.*|channels|session_homes|tokens"),
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: how long to try for a moment, and for how long of that one in which no session's files lag behind its conversation."""

    all_s: float = _PATIENCE_S
    files_s: float = _FILES_S


class Saving:
    """One backup of `home`, without what the names of WITHOUT in `without` say. `own`: device and inode of the file that it is written to."""

    def __init__(
        self, home: Home, pack: Pack, without: Collection[str] = (), *, own: tuple[int, int] | None = None, patience: Patience = Patience()
    ) -> None:
        self._home, self._root, self._pack, self._without, self._patience = home, home.root, pack, tuple(sorted(without)), patience
        self._queues = Queues(self._root)
        self._homes = Homes(self._root, self._queues)
        self._trees = Trees(self._root, pack, self._is_skipped, own)
        self._files_of: dict[str, Mark] = {}  # how each session stood when its files were begun to be copied
        self._lost: set[str] = set()  # of which the disk gave only a part
        self.tries = 0

    def run(self, now: float) -> End:
        """Copy everything. Raises Misconfigured where there is no such home, TryAgain where it was too busy all the time, OSError."""
        if not self._root.is_dir():
            raise Misconfigured(f"there is no home at {self._root}", remedy="set BUBBLES_HOME to the home that is to be saved")
        self._pack.begin(Head(__version__, str(self._root), now, self._without))
        self._pack.directory("", os.stat(self._root))
        self._without_haste()
        moment = self._caught()
        try:
            self._write(moment)
        finally:
            moment.close()
        for path in self._homes.files("usage"):  # last, so that no request of a turn that is in the backup is missing
            self._copy(path)
        self._pack.end.removed = sorted({*self._trees.gone, *self._lost})
        self._pack.end.unread = Unread(self._pack.end.unread | self._homes.unread).outermost()
        return self._pack.finish()

    @property
    def left_out(self) -> list[str]:
        """Backups that lie in the home."""
        return self._trees.backups

    def _without_haste(self) -> None:
        for top in ("spool/media", "turns/held", "turns/released"):  # files on their way in, before the sessions that take them in
            for path in self._homes.files(top):
                self._copy(path)
                self._homes.copied.add(path)
        self._files_of = self._homes.marks()
        self._trees.all()
        self._queues.copy(self._pack)

    def _copy(self, path: str) -> None:
        with self._homes.unread.noting(path):
            fd = os.open(self._root / path, READ)
            try:
                self._put(path, fd)
            finally:
                os.close(fd)

    def _put(self, path: str, fd: int) -> None:
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode):
            self._file(path, fd, info.st_size, info)

    def _file(self, path: str, fd: int, size: int, info: os.stat_result) -> None:
        try:
            self._pack.file(path, fd, size, info)
        except OSError as error:  # what stands for it in the pack is no file of the home's
            self._homes.unread[path] = error.strerror or str(error)
            self._lost.add(path)

    def _caught(self) -> Moment:
        """A moment whose histories are in the pack already."""
        began, rest_s = time.monotonic(), _REST_S
        while True:
            self.tries += 1
            passed_s = time.monotonic() - began
            moment = self._tried(settle=passed_s > self._patience.files_s)
            if moment is not None:
                if all(self._has_history(key, *until) for key, until in moment.histories.items()):
                    return moment
                moment.close()
            if passed_s > self._patience.all_s:
                raise TryAgain("so much is going on that no moment could be caught", remedy="try again, or stop the daemons meanwhile")
            self._queues.copy(self._pack)  # what has come to its end needs no second look
            time.sleep(rest_s)
            rest_s = min(rest_s * 1.2, _REST_MOST_S)

    def _tried(self, *, settle: bool) -> Moment | None:
        """The moment that is now; None where something went on meanwhile. `settle` for one in which files may lag behind."""
        before, alone = self._homes.marks(), stats(self._root)
        self._catch_up(before)
        try:
            moment = self._homes.read()
        except Moving:
            return None
        stands, behind = agree(self._root, self._homes, moment, before, alone)
        if not stands or (behind and not settle):
            moment.close()
            return None
        self._pack.end.busy = sorted(behind)
        return moment

    def _catch_up(self, marks: dict[str, Mark]) -> None:
        """Copy again what changed of the sessions in which something went on since their files were copied."""
        for key, mark in marks.items():
            if self._files_of.get(key) != mark:
                self._files_of[key] = mark
                self._trees.again(key)

    def _has_history(self, key: str, size: int, tail: bytes) -> bool:
        """Copy as much of a history as the moment has; False where that is not in the file any more: it was cut, or replaced."""
        path = f"sessions/{key}/{HISTORY}"
        try:
            fd = os.open(self._root / path, READ)
        except OSError:
            return False
        try:
            info = os.fstat(fd)
            self._file(path, fd, whole_lines(fd, min(size, info.st_size)), info)
            return os.fstat(fd).st_size >= size and end_of(self._root / path, size) == tail
        except FileNotFoundError:
            return False
        finally:
            os.close(fd)

    def _write(self, moment: Moment) -> None:
        for path, found in moment.files.items():
            self._pack.content(path, found.content, found.at_ns)
        for path, fd in moment.media.items():
            self._put(path, fd)
        for path in self._sent_along(moment):
            self._copy(path)
        for path, info in moment.directories.items():
            self._pack.directory(path, info)

    def _sent_along(self, moment: Moment) -> Iterator[str]:
        """The files of messages that wait to go out. They were whole before their message was put, never change, and stay until long after it."""
        waits = {tuple(path.removesuffix(".json").split("/")[2::2]) for path in moment.files if _GOES_OUT.fullmatch(path)}
        for name in sorted({name for name, _ in waits}):
            for path in self._homes.files(f"spool/outbound/{name}/media"):
                file = os.path.basename(path)
                if any((name, file[:at]) in waits for at, sign in enumerate(file) if sign == "."):
                    yield path

    def _is_skipped(self, path: str) -> bool:
        parts = path.split("/")
        if _ALWAYS.fullmatch(path) or _JOURNAL.fullmatch(path) or (parts[0] == "sessions" and parts[2:] == [HISTORY]):
            return True
        if parts[0] == "turns" and parts[1:2] in (["held"], ["released"]):
            return True
        return parts[:2] == ["spool", "media"] or any(WITHOUT[name].fullmatch(path) for name in self._without)
