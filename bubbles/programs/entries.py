"""The entries of a home's log, from both places that keep them: journald, and the files log/NAME.jsonl.

It does not know who looks. What is no entry, such as a line that a crash cut off, is passed over.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from bubbles import log, regular
from bubbles.errors import Unavailable
from bubbles.ids import safe
from bubbles.logfile import KEPT
from bubbles.paths import Home
from bubbles.programs import journald

_LOOK_S = 0.2  # between two looks at the files
_AGAIN_S, _AGAIN_MOST_S = 1.0, 60.0  # after which a journalctl that ended is started again; longer each time that it told nothing
_WORDS = ("event", "message", "session", "turn", "channel", "tool")
_LINE_MOST = 8 << 20  # bytes; what is longer is no entry, and need not be in memory whole
_COLOURS = {3: "31", 4: "33", 5: "1", 7: "2"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. `at`: epoch seconds; `priority`: 0 (worst) to 7 (debug); `fields`: all others, `ms` and `message_id` among them."""

    at: float
    priority: int
    program: str
    event: str
    message: str
    session: str = ""
    turn: str = ""
    channel: str = ""
    tool: str = ""
    fields: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: bytes) -> Entry | None:
        """The entry that a line of a file holds; None where it holds none."""
        try:
            body = json.loads(line)
            words = {name: str(body.pop(name, "")) for name in _WORDS}
            at, priority, program = float(body.pop("at")), int(body.pop("priority")), str(body.pop("program"))
            fields = {name: str(value) for name, value in body.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return None
        return cls(at, priority, program, **words, fields=fields) if 0 < at < 1e11 else None

    @classmethod
    def of_journal(cls, line: bytes) -> Entry | None:
        """The entry that a line of `journalctl -o json` holds; None where it holds none."""
        body = journald.parsed(line)
        if body is None or body.at <= 0:
            return None
        found = {log.key(name): value for name, value in body.fields.items() if name.startswith("BUBBLES_") and name not in _OURS}
        words = {name: found.pop(name, "") for name in _WORDS} | {"message": body.fields.get("MESSAGE", "")}
        priority = body.fields.get("PRIORITY", "")
        program = body.fields.get("SYSLOG_IDENTIFIER", "").removeprefix("bubbles-")
        return cls(body.at, int(priority) if priority in _PRIORITIES else 6, program, **words, fields=found)

    def body(self) -> dict[str, Any]:
        """The entry as it stands in a file."""
        words = {name: getattr(self, name) for name in _WORDS}
        first = {"at": self.at, "priority": self.priority, "program": self.program, "event": words.pop("event"), "message": words.pop("message")}
        told = {**first, **{name: value for name, value in words.items() if value}}
        return told | {name: value for name, value in self.fields.items() if name not in told}


# What journald itself knows better, or is told by another name: whoever writes these to it forges them.
_OURS = frozenset({"BUBBLES_HOME", "BUBBLES_N", "BUBBLES_AT", "BUBBLES_PRIORITY", "BUBBLES_PROGRAM", "BUBBLES_MESSAGE_ID"})
_PRIORITIES = frozenset("01234567")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries are asked for: of each kind any of these, and nothing given means all. Times are epoch seconds, both ends included."""

    sessions: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    since: float | None = None
    until: float | None = None
    priority: int = 7

    def holds(self, entry: Entry) -> bool:
        """Whether an entry is among them."""
        return (
            entry.priority <= self.priority
            and (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at <= self.until)
            and all(not values or getattr(entry, name) in values for name, values in self._values())
        )

    def matches(self) -> list[str]:
        """The same for journalctl, so that it need not print what is not asked for."""
        found = [f"{_FIELDS[name]}{value}" for name, values in self._values() for value in values]
        found += [f"--priority={self.priority}"] if self.priority < 7 else []
        return found + journald.span(self.since, self.until)

    def _values(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "session", (*self.sessions, *(key for name in self.sessions if (key := safe(name)) != name))
        yield "turn", self.turns
        yield "tool", self.tools
        yield "channel", self.channels
        yield "event", self.events
        yield "program", self.programs


_FIELDS = {name: f"BUBBLES_{name.upper()}=" for name in ("session", "turn", "tool", "channel", "event")} | {"program": "SYSLOG_IDENTIFIER=bubbles-"}
ALL = Wanted()


def read(home: Home, wanted: Wanted = ALL, *, last: int = 0) -> Iterator[Entry]:
    """The entries that are there now, oldest first; the `last` so many, or all.

    Raises Unavailable where journald has some and cannot be read, when all that can be read has been told.
    """
    if wanted.since is not None and wanted.until is not None and wanted.since > wanted.until:
        return
    failures: list[Unavailable] = []
    streams = [_of_files(files, wanted) for files in _files(home)]
    found = heapq.merge(*streams, _of_journal(home, wanted, last, failures), key=lambda entry: entry.at)
    yield from deque(found, maxlen=last) if last else found
    if failures:
        raise failures[0]


def _of_journal(home: Home, wanted: Wanted, last: int, failures: list[Unavailable]) -> Iterator[Entry]:
    """Journald's own, of which no more than the `last` are looked at; that it cannot be read is left in `failures`."""
    newest: list[Entry] = []
    try:
        for line in journald.lines(home, wanted.matches(), last):
            entry = Entry.of_journal(line)
            if entry is not None and wanted.holds(entry):
                if last:
                    newest.append(entry)
                else:
                    yield entry
    except Unavailable as error:
        failures.append(error)
    yield from sorted(newest, key=lambda entry: entry.at)


class Following:
    """Iterates over the entries from its making on, as they come, until it is closed. `close` may be called by another thread."""

    def __init__(self, home: Home, wanted: Wanted = ALL) -> None:
        self._home, self._wanted = home, wanted
        self._found: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._journal: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._met = {_which(path.stat()) for path in home.logs("*.jsonl.*")}  # files moved aside that are not told of any more
        self._tails = {path: _Tail(path, self._met, at_end=True) for path in home.logs("*.jsonl")}
        self.since = time.time()
        self._threads = [threading.Thread(target=self._look, daemon=True)]
        if journald.is_here():
            self._threads.append(threading.Thread(target=self._listen, args=(self.since,), daemon=True))
        for thread in self._threads:
            thread.start()

    def __iter__(self) -> Iterator[Entry]:
        while (entry := self._found.get()) is not None:
            yield entry

    def close(self) -> None:
        """End the iteration. What was found so far is still told."""
        with self._lock:
            self._over.set()
            if self._journal is not None:
                self._journal.terminate()
        for thread in self._threads:
            thread.join(timeout=2)
        self._found.put(None)

    def _tell(self, entry: Entry | None) -> None:
        if entry is not None and self._wanted.holds(entry):
            self._found.put(entry)

    def _look(self) -> None:
        over = False
        while not over:
            over = self._over.wait(_LOOK_S)  # and then once more
            for path in self._home.logs("*.jsonl"):
                if path not in self._tails:
                    self._tails[path] = _Tail(path, self._met)
            lines = [line for tail in self._tails.values() for line in tail.more()]
            for entry in sorted(filter(None, map(Entry.parse, lines)), key=lambda entry: entry.at):
                self._tell(entry)
        for tail in self._tails.values():
            tail.close()

    def _listen(self, since: float) -> None:
        pause_s = _AGAIN_S
        while not self._over.is_set():
            argv = journald.call(self._home, [*replace(self._wanted, since=since).matches(), "--follow", "--no-tail"])
            with self._lock:
                if self._over.is_set():
                    return
                self._journal = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert self._journal.stdout is not None
            with self._journal, self._journal.stdout as lines:
                for line in lines:
                    pause_s = _AGAIN_S
                    entry = Entry.of_journal(line)
                    since = max(since, entry.at + 1e-6 if entry else since)
                    self._tell(entry)
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_MOST_S)


@contextlib.contextmanager
def follow(home: Home, wanted: Wanted = ALL) -> Iterator[Following]:
    """The entries from now on, as they come, until the block ends or somebody calls `close`."""
    following = Following(home, wanted)
    try:
        yield following
    finally:
        following.close()


def text(entry: Entry, colour: bool) -> str:
    """An entry as a line for people, who may see it at a terminal whatever it holds."""
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.localtime(entry.at))}.{int(entry.at % 1 * 1000):03d}"
    words = {"session": entry.session, "turn": entry.turn, "channel": entry.channel, "tool": entry.tool, **entry.fields}
    told = [stamp, entry.program, entry.event, entry.message, *(f"{name}={value}" for name, value in words.items() if value)]
    line = log.escaped(" ".join(told))
    paint = _COLOURS.get(max(entry.priority, 3), "") if colour else ""
    return f"\x1b[{paint}m{line}\x1b[0m" if paint else line


# -- files ---------------------------------------------------------------------------------------


def _files(home: Home) -> list[list[BinaryIO]]:
    """Of each daemon the files, open, oldest first. Newest are opened first: what is moved aside meanwhile is met again, and not missed."""
    found = []
    for path in home.logs("*.jsonl"):
        opened: list[BinaryIO] = []
        for name in (path, *(Path(f"{path}.{n}") for n in range(1, KEPT + 1))):
            with contextlib.suppress(OSError):
                file = open(name, "rb", opener=regular.opened)  # noqa: SIM115 -- closed where it has been read
                if any(os.path.sameopenfile(file.fileno(), other.fileno()) for other in opened):
                    file.close()
                else:
                    opened.append(file)
        found.append(opened[::-1])
    return found


def _of_files(files: Iterable[BinaryIO], wanted: Wanted) -> Iterator[Entry]:
    for file in files:
        with file:
            if wanted.since is None or os.fstat(file.fileno()).st_mtime >= wanted.since:
                for line in iter(lambda file=file: file.readline(_LINE_MOST), b""):  # type: ignore[misc]
                    entry = Entry.parse(line)
                    if entry is not None and wanted.holds(entry):
                        yield entry


class _Tail:
    """What is appended to a file from now on."""

    def __init__(self, path: Path, met: set[tuple[int, int]], *, at_end: bool = False) -> None:
        self._path, self._met = path, met
        self._file = self._opened() if at_end else None
        if at_end and self._file is not None:
            self._file.seek(0, os.SEEK_END)
        self._rest = b""

    def more(self) -> list[bytes]:
        if self._file is not None and self._is_shorter(self._file):
            self._rest = b""
            self._file.seek(0)
        data = self._rest + self._read()
        if self._moved_aside():
            data += self._read()  # its last lines may have come in between
            self.close()
            self._file = self._opened()
            data += self._moved_meanwhile() + self._read()
        *lines, self._rest = data.split(b"\n")
        return lines

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> bytes:
        return self._file.read() if self._file is not None else b""

    def _is_shorter(self, file: BinaryIO) -> bool:
        """Whether somebody emptied it in place: what is written now begins at its beginning."""
        return os.fstat(file.fileno()).st_size < file.tell()

    def _moved_meanwhile(self) -> bytes:
        """What stands in files that were begun and moved aside between two looks."""
        data = b""
        for n in range(KEPT, 0, -1):
            with contextlib.suppress(OSError), open(f"{self._path}.{n}", "rb", opener=regular.opened) as file:
                which = _which(os.fstat(file.fileno()))
                if which not in self._met:
                    self._met.add(which)
                    data += file.read()
        return data

    def _moved_aside(self) -> bool:
        try:
            found = self._path.stat()
        except OSError:
            return False
        return self._file is None or not os.path.samestat(found, os.fstat(self._file.fileno()))

    def _opened(self) -> BinaryIO | None:
        try:
            file = open(self._path, "rb", buffering=0, opener=regular.opened)  # noqa: SIM115 -- closed by `close`
        except OSError:
            return None
        self._met.add(_which(os.fstat(file.fileno())))
        return file


def _which(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
