"""A queue: the directory that a message's file lies in is its state, and each step is one rename.

It does not know what a message says. The file never changes; its mtime is its place in the line and the earliest
time it may be handed out. The mtime of the queue's own directory is the last place that was given away: with it a
queue's time never runs backwards, whatever the clock does and however many producers there are.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from bubbles.errors import DataError
from bubbles.ids import safe
from bubbles.messages import from_line, to_line
from bubbles.spool.backoff import LONGEST_S
from bubbles.spool.disk import Disk, named
from bubbles.spool.files import Files

_TRAVEL = ("new", "cur", "done", "held")  # the order in which files travel: one that moves meanwhile is still seen
_LONGEST_NS = int(LONGEST_S * 1e9)
_LITTER_NS = 24 * 3600 * 10**9
_PASSING = frozenset({errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # these say nothing about the file itself

Ids: TypeAlias = list[str]
Line: TypeAlias = list[tuple[int, str]]  # (place, file name), sorted
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Item:
    """A message in a queue. `at_ns`: its place in the line, epoch nanoseconds. `why`: of a held one, what was wrong with it."""

    id: str
    body: dict[str, Any]
    at_ns: int
    why: str = ""


def _told(method: Callable[Concatenate[Queue, _P], _R]) -> Callable[Concatenate[Queue, _P], _R]:
    """`method`, with the errors of the disk by their names."""

    @wraps(method)
    def told(self: Queue, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            if (better := named(error, self.path)) is None:
                raise
            raise better from error

    return told


class Queue:
    """The queue below `path`. Any number of processes may put into it; one alone, its owner, takes out of it.

    Every id passes through `ids.safe`. Where the disk refuses, a method raises TryAgain (no room) or Misconfigured
    (no permission) and has changed nothing that can be seen.
    """

    def __init__(self, path: Path, *, disk: Disk = os, clock: Callable[[], int] = time.time_ns) -> None:
        self.path = path
        self._files = Files(path, disk)
        self._clock = clock  # epoch nanoseconds
        self._last = 0

    @_told
    def prepare(self) -> None:
        """Make the five directories, mode 0700. Raises Misconfigured where one is somebody else's, no directory, or on a disk of its own."""
        self._files.prepare()

    # For whoever has a message.

    @_told
    def put(self, id: str, body: dict[str, Any], *, not_before: float | None = None, sync: bool = True, strict: bool = False) -> bool:
        """Store a message. True: from now on it survives a crash, with `sync` a power cut too. False: its id is known.

        `not_before`: epoch seconds, an hour ahead at most. `strict`: raise DataError if the id is known with another
        body (`at` apart, which says when one asked and not what).
        """
        name, line = _file(id), to_line(body)
        for state in _TRAVEL:
            if (known := self._known(state, name)) is not None:
                if strict and not _same(known, body):
                    raise DataError(f"{id} is known with another content", remedy="give a new message an id of its own")
                return False
        try:
            self._files.store(name, line, self._place(not_before), sync=sync)
        except FileNotFoundError:
            self.prepare()
            self._files.store(name, line, self._place(not_before), sync=sync)
        return True

    @_told
    def sync(self, id: str) -> None:
        """Make a message durable that was put without: for a thread that may wait for the disk. What its owner has taken meanwhile counts, too."""
        name = _file(id)
        any(self._files.sync(state, name) for state in _TRAVEL)

    @_told
    def find(self, id: str) -> str | None:
        """The state that a message is in, None if its id is not known."""
        name = _file(id)
        return next((state for state in _TRAVEL if self._known(state, name) is not None), None)

    # For its owner.

    @_told
    def recover(self) -> Ids:
        """Put back what an owner that was killed had claimed, first in line first; sweep litter a day old. To be called once, at the start."""
        for at_ns, name in self._files.line("tmp", ""):
            if self._clock() - at_ns > _LITTER_NS:
                self._files.unlink("tmp", name)
        return [_id(name) for _, name in self._files.line("cur", ".json") if self._files.move(name, "cur", "new")]

    @_told
    def due(self, now: float) -> Ids:
        """The ids that may be claimed at `now` (epoch seconds), first in line first."""
        time_ns = self._time(int(now * 1e9))
        return [_id(name) for at_ns, name in self._waiting(time_ns) if at_ns <= time_ns and self._is_whole(name)]

    @_told
    def survey(self, now: float, skip: Callable[[str], bool] = lambda id: False) -> tuple[Ids, float | None]:
        """As `due`, and when the first of the others will be (epoch seconds), None if there is no other; without those of which `skip` says so."""
        now_ns = int(now * 1e9)
        time_ns = self._time(now_ns)
        waiting = [(at_ns, name) for at_ns, name in self._waiting(time_ns) if not skip(_id(name)) and self._is_whole(name)]
        later = next((_seconds(at_ns - time_ns + now_ns) for at_ns, _ in waiting if at_ns > time_ns), None)
        return [_id(name) for at_ns, name in waiting if at_ns <= time_ns], later

    @_told
    def next_due(self) -> float | None:
        """When the first message is due (epoch seconds, never before now), None if none waits."""
        now_ns = self._clock()
        time_ns = self._time(now_ns)
        for at_ns, name in self._waiting(time_ns):
            if self._is_whole(name):
                return _seconds(max(0, at_ns - time_ns) + now_ns)
        return None

    @_told
    def claim(self, id: str) -> Item:
        """Take a message to handle it: new → cur.

        Raises FileNotFoundError if it does not wait (any more), DataError if it is no message: then it is held.
        """
        name = _file(id)
        if self._files.has("cur", name) or self._files.has("done", name):
            self._files.unlink("new", name)  # a second copy, put by one producer while another's travelled
            raise FileNotFoundError(errno.ENOENT, "claimed or done already", name)
        try:
            content, at_ns = self._files.read("new", name)
            if not _is_ended(content):
                raise FileNotFoundError(errno.ENOENT, "never written to its end", name)
            item = Item(_id(name), from_line(content), at_ns)
        except (OSError, DataError) as error:
            if isinstance(error, OSError) and error.errno in _PASSING:
                raise
            self._hold(name, "new", f"it cannot be read: {error}")
            raise DataError(f"{id} is held, it cannot be read: {error}", remedy=f"look at {self.path / 'held' / name}") from error
        if not self._files.move(name, "new", "cur"):
            raise FileNotFoundError(errno.ENOENT, "dropped meanwhile", name)
        return item

    @_told
    def finish(self, id: str) -> bool:
        """It is handled: cur → done, where its id stays known for a week. False if it was not claimed."""
        return self._files.move(_file(id), "cur", "done")

    @_told
    def defer(self, id: str, until: float) -> bool:
        """Not now: cur → new, due again at `until` (epoch seconds, an hour ahead at most). False if it was not claimed."""
        name = _file(id)
        return self._files.set_mtime(self._later(until), "cur", name) and self._files.move(name, "cur", "new")

    @_told
    def give_back(self, id: str) -> bool:
        """Not yet: cur → new, at the place in the line that it had. False if it was not claimed."""
        return self._files.move(_file(id), "cur", "new")

    @_told
    def hold(self, id: str, why: str = "") -> bool:
        """Given up, for a person: cur → held, with `why` beside it. False if it was not claimed."""
        return self._hold(_file(id), "cur", why)

    # For a person.

    @_told
    def release(self, id: str) -> bool:
        """Try it again: held → the end of new. False if it was not held."""
        name = _file(id)
        moved = self._files.set_mtime(self._place(), "held", name) and self._files.move(name, "held", "new")
        if moved:
            self._files.unlink("held", _why(name))
        return moved

    @_told
    def drop(self, id: str) -> bool:
        """It shall not be handled: held or new → done, so that its sender's next try does not bring it back. False if it was in neither."""
        name = _file(id)
        moved = self._files.move(name, "held", "done") or self._files.move(name, "new", "done")
        if moved:
            self._files.unlink("held", _why(name))
        return moved

    @_told
    def list(self, state: str) -> Iterator[Item]:
        """What is in a state, first in line first. What cannot be read has an empty body."""
        return self._items(state, self._files.line(state, ".json"))

    # The line and its time.

    def _time(self, now_ns: int) -> int:
        """The queue's time: the clock, or the last place given away where the clock has stepped back behind it.

        A place further ahead than anything may wait tells of a clock that was wrong, and counts for nothing.
        """
        return _later_of(now_ns, max(self._last, self._files.mtime() or 0))

    def _place(self, not_before: float | None = None) -> int:
        """A new place at the end of the line, or at `not_before` if that is later."""
        self._last = _later_of(self._clock(), max(self._last, self._files.mtime() or 0) + 1)
        self._files.set_mtime(self._last)
        return self._last if not_before is None else max(self._last, self._later(not_before))

    def _later(self, until: float) -> int:
        """`until` in the queue's time."""
        now_ns = self._clock()
        return self._time(now_ns) + min(int(until * 1e9) - now_ns, _LONGEST_NS)

    def _waiting(self, time_ns: int) -> Line:
        """(place, file name) of what waits. What lies further ahead than anything may wait is a message of a clock that was wrong: it comes first."""
        line = [(at_ns, own) for at_ns, name in self._files.line("new", ".json") if (own := self._own(name))]
        early = [(time_ns - _LONGEST_NS, name) for at_ns, name in line if at_ns > time_ns + _LONGEST_NS]
        return early + line[: len(line) - len(early)]

    def _own(self, name: str) -> str:
        """The name under which a file can be claimed: one that a person put there by hand may have to be given it. "" where it is taken."""
        own = _file(_id(name))
        return own if own == name or self._files.rename("new", name, own) else ""

    # Content.

    def _items(self, state: str, line: Line) -> Iterator[Item]:
        for at_ns, name in line:
            try:
                content, _ = self._files.read(state, name)
            except FileNotFoundError:
                continue  # it has moved on
            except OSError:
                content = b"}\n"
            if _is_ended(content) or state == "done":
                yield Item(_id(name), _body(content), at_ns, self._reason(name) if state == "held" else "")

    def _known(self, state: str, name: str) -> bytes | None:
        """The content of a message that is in a state; None where there is none, or litter. What is done was whole once."""
        if not self._files.has(state, name):
            return None
        try:
            content, _ = self._files.read(state, name)
        except FileNotFoundError:
            return None
        return content if state == "done" or _is_ended(content) else None

    def _is_whole(self, name: str) -> bool:
        """Whether what waits was written to its end. Where that cannot be told, `claim` will find out."""
        try:
            return _is_ended(self._files.tail("new", name))
        except OSError as error:
            return error.errno not in _PASSING

    def _hold(self, name: str, source: str, why: str) -> bool:
        moved = self._files.move(name, source, "held")
        if moved and why:
            self._files.note("held", _why(name), why)
        elif moved:
            self._files.unlink("held", _why(name))
        return moved

    def _reason(self, name: str) -> str:
        try:
            return self._files.read("held", _why(name))[0].decode("utf-8", "replace").strip()
        except OSError:
            return ""


def _seconds(at_ns: int) -> float:
    """A float of this size has steps of 0.24 µs: never a moment early."""
    return at_ns // 1000 / 1e6 + 2e-6


def _later_of(now_ns: int, mark_ns: int) -> int:
    return mark_ns if now_ns < mark_ns <= now_ns + _LONGEST_NS else now_ns


def _file(id: str) -> str:
    return f"{safe(id)}.json"


def _id(name: str) -> str:
    return name[: -len(".json")]


def _why(name: str) -> str:
    return f"{_id(name)}.why"


def _is_ended(content: bytes) -> bool:
    return content.endswith(b"}\n")


def _body(content: bytes) -> dict[str, Any]:
    try:
        return from_line(content)
    except DataError:
        return {}


def _same(stored: bytes, body: dict[str, Any]) -> bool:
    return {**_body(stored), "at": 0} == {**_body(to_line(body)), "at": 0}
