"""What is known of each send, a fact a line, in `receipts/ID.jsonl` beside the queue's states. Nothing is inferred from anything else.

    {"begun": k, "key": …, "at"}          part k is about to be sent                        (synced before it is)
    {"delivered": k, "id": …, "at"}       the platform has it, under its own id             (synced)
    {"refused": k, "why", "until", "at"}  the platform surely has not got it; until 0: it did not say when to try again
    {"uncertain": k, "at"}                begun once, and never confirmed
    {"draft": id, "at"}                   the first part takes the place of this message of the platform's; "": of none    (synced)
    {"held": why, "at"}                   given up: from here on a person decides
    {"settled": "delivered", "at"}        a person says: they have it, send nothing more
    {"settled": "lost", "at"}             a person says: they have not, send what is not delivered

A line that cannot be read says nothing, wherever it stands: a crash leaves the last one torn, and the next one begins on a line of its
own. Fields and facts that are not known are ignored. A part that was begun, with no line after it that says how that ended, is in doubt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.errors import DataError
from bubbles.ids import safe
from bubbles.messages import LATEST, from_line, to_line
from bubbles.spool.disk import Disk, named, orders_renames

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # a pipe in its place holds nobody up: it has no lines

Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What the lines of one message say together."""

    delivered: dict[int, str] = field(default_factory=dict)  # part: the platform's id
    begun: int | None = None  # the part whose sending was begun, and how it ended is not known
    uncertain: dict[int, int] = field(default_factory=dict)  # part: how often its sending was uncertain, ever
    doubts: dict[int, int] = field(default_factory=dict)  # the same since a person last decided
    until: float = 0.0  # not before, by the platform's own word (epoch seconds)
    why: str = ""  # what the last refusal said
    settled: str = ""  # "delivered" or "lost"
    draft: str | None = None  # what the first part takes the place of; None: nobody has looked yet

    def first(self, parts: int) -> int | None:
        """The first of so many parts that is not delivered, None if all are."""
        return next((n for n in range(parts) if n not in self.delivered), None)


def fold(lines: Iterable[Fact]) -> Receipt:
    """The receipt that facts amount to, in their order.

    >>> fold([{"begun": 0}, {"delivered": 0, "id": "m7"}, {"begun": 1}])
    Receipt(delivered={0: 'm7'}, begun=1, uncertain={}, doubts={}, until=0.0, why='', settled='', draft=None)
    """
    delivered: dict[int, str] = {}
    uncertain: dict[int, int] = {}
    doubts: dict[int, int] = {}
    begun, until, why, settled = None, 0.0, "", ""
    draft: str | None = None
    for fact in lines:
        match fact:
            case {"begun": int(part)}:
                begun, until, why = part, 0.0, ""
            case {"delivered": int(part)}:
                delivered[part] = _text(fact.get("id"))
                begun = None
            case {"refused": int()}:
                begun, until, why = None, _time(fact.get("until")), _text(fact.get("why"))
            case {"uncertain": int(part)}:
                begun = None
                uncertain[part] = uncertain.get(part, 0) + 1
                doubts[part] = doubts.get(part, 0) + 1
            case {"draft": str(id)}:
                draft = id
            case {"held": str()}:
                begun, until, doubts = None, 0.0, {}
            case {"settled": "delivered" | "lost" as settled}:
                begun, until, doubts = None, 0.0, {}
    return Receipt(delivered, begun, uncertain, doubts, until, why, settled, draft)


def _time(value: Any) -> float:
    """Epoch seconds; 0 for what is no time."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= LATEST else 0.0


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) else ""


def parse(content: bytes) -> list[Fact]:
    """The facts that can be read."""
    found = []
    for line in content.split(b"\n"):
        with suppress(DataError):
            found.append(from_line(line))
    return found


class Receipts:
    """The receipts of the queue at `queue`. Errors of the disk come by their names, as a queue's."""

    def __init__(self, queue: Path, *, disk: Disk = os, now: Callable[[], float] = time.time) -> None:
        self.path = queue / "receipts"
        self._disk = disk
        self._now = now
        self._sync_directory: bool | None = None

    def of(self, id: str) -> Receipt:
        """What is known of a message; an empty receipt where nothing is."""
        return fold(self.facts(id))

    def facts(self, id: str) -> list[Fact]:
        """Its lines."""
        try:
            fd = self._disk.open(self._file(id), _READ)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise named(error, self.path) or error from error
        try:
            return parse(self._content(fd))
        finally:
            self._disk.close(fd)

    def note(self, id: str, /, *, sync: bool = True, **fact: Any) -> None:
        """Add a line, with the time. When this returns the fact survives a crash, with `sync` a power cut too.

        Raises TryAgain where there is no room, Misconfigured where it may not be written.
        """
        try:
            self._append(id, to_line({**fact, "at": self._now()}), sync)
        except OSError as error:
            raise named(error, self.path) or error from error

    def settle(self, id: str, how: str) -> None:
        """A person's word: "delivered" or "lost"."""
        self.note(id, settled=how)

    def _append(self, id: str, line: bytes, sync: bool) -> None:
        fd = self._opened(id)
        try:
            size = self._disk.fstat(fd).st_size
            if size and self._disk.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # behind what a crash left of the last one
            while line:
                line = line[self._disk.write(fd, line) :]
            if sync:
                self._disk.fdatasync(fd)
                self._make_findable(new=not size)
        finally:
            self._disk.close(fd)

    def _opened(self, id: str) -> int:
        try:
            return self._disk.open(self._file(id), _APPEND, 0o600)
        except FileNotFoundError:
            with suppress(FileExistsError):
                self._disk.mkdir(str(self.path), 0o700)
            return self._disk.open(self._file(id), _APPEND, 0o600)

    def _make_findable(self, *, new: bool) -> None:
        """On disks where a file's own sync does not make a new file durable, sync its directory."""
        if self._sync_directory is None:
            self._sync_directory = not orders_renames(self.path)
        if not new or not self._sync_directory:
            return
        fd = self._disk.open(str(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)

    def _content(self, fd: int) -> bytes:
        size, content = self._disk.fstat(fd).st_size, b""
        while len(content) < size and (more := self._disk.read(fd, size - len(content))):
            content += more
        return content

    def _file(self, id: str) -> str:
        return f"{self.path}/{safe(id)}.jsonl"
