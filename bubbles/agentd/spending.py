"""What was spent, read from the books: one entry a request to a model, the days of the owner's time zone, and sums in any grouping.

    usage/2026-11.jsonl          a month of UTC a file, a line a request; agentd alone writes them (`bubbles.agentd.books`)
    {"format":"bubbles.usage","version":1}
    {"id":"cli-1.0","at":1764500400.0,"session":"main","turn":"cli-1","origin":"user","model":"m","provider":"p","input":900,"output":40}

It reads without asking anybody, and changes nothing. A line that is not written whole is not there yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from bubbles import regular
from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.messages import LATEST, from_line, migrate
from bubbles.paths import Home

FORMAT = "bubbles.usage"
VERSION = 1
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # version: from its header to the next one's
COUNTS = ("input", "output", "cached", "cache_write", "reasoning")  # tokens; the last three are parts of the first two
ORIGINS = ("user", "cron", "background", "system")  # of a turn: a person, a job of the clock, the end of a command, any other program
_MOST = 2**63 - 1
_TOKENS_MOST = 10**9  # of one request: what tells of more tells nothing
_AT = re.compile(rb'\{"id":"[^"\\]*","at":([0-9]+(?:\.[0-9]+)?),')  # how a line of ours begins
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. `id` is the ask, `at` epoch seconds, `job` the id of cron's job; `kind` "answer" or "summary".

    `lost` says why no answer came of a request that was under way ("preempted", "stopped", "failed"): what it cost, nobody told.
    `failed` attempts broke off midway: nobody told what they took, and it is guessed (`guessed` tokens, `guessed_micros`) for budgets alone.
    `cost_micros` are millionths of a US dollar, None where the price is not known.
    """

    id: str
    at: float
    session: str
    turn: str = ""
    origin: str = "user"
    job: str = ""
    kind: str = "answer"
    model: str = ""
    provider: str = ""
    lost: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_micros: int | None = None
    failed: int = 0
    guessed: int = 0
    guessed_micros: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether the provider said how many tokens it was."""
        return bool(self.input or self.output)

    @property
    def is_unattended(self) -> bool:
        return self.origin != "user"

    def told(self) -> dict[str, Any]:
        """As it stands in the file: what holds its default is left out."""
        found = {name: getattr(self, name) for name in _DEFAULTS}
        return {name: value for name, value in found.items() if value != _DEFAULTS[name]}


_DEFAULTS = {item.name: item.default for item in fields(Entry)}
_KINDS: dict[str, tuple[type, ...]] = {"str": (str,), "float": (int, float), "int": (int,), "int | None": (int,)}
_OF_USAGE, _OF_FAILED = (*COUNTS, "cost_micros"), ("failed", "guessed", "guessed_micros")
_NEEDED = {name for name, default in _DEFAULTS.items() if default is MISSING}
_TYPES = {item.name: _KINDS[str(item.type)] for item in fields(Entry)}


def entry(body: dict[str, Any]) -> Entry:
    """The entry that a line holds. Raises DataError where it is none."""
    known = {name: value for name, value in body.items() if name in _TYPES}
    if not _can_be(known):
        known = {name: value for name, value in known.items() if name not in _OF_USAGE}
    for name, value in known.items():
        kind = type(value)
        if kind not in _TYPES[name] or (kind is not str and not 0 <= value <= _MOST):
            raise DataError(f"{name!r} of a request is {value!r}")
    if missing := _NEEDED - known.keys():
        raise DataError(f"a request without {min(missing)!r}")
    if known["at"] > LATEST:  # or no datetime could be made of it
        raise DataError("'at' is no time")
    return Entry(**known)


def counted(usage: Mapping[str, Any]) -> dict[str, int]:
    """The counts of one request, as an entry has them; of its tokens and their cost none where a provider told of more than there can be."""
    found = {name: min(max(0, count), _MOST) for name in (*_OF_USAGE, *_OF_FAILED) if type(count := usage.get(name)) is int}
    return found if _can_be(found) else {name: found[name] for name in _OF_FAILED if name in found}


def _can_be(counts: Mapping[str, Any]) -> bool:
    return not any(type(count := counts.get(name)) is int and count > _TOKENS_MOST for name in COUNTS)


# -- the files -------------------------------------------------------------------------------------


class Pages:
    """The books of a home, as they are now. `damaged` counts the lines that could not be read, `unread` names the files, with the reason."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.damaged = 0
        self.unread: dict[str, str] = {}

    def entries(self, since: float = 0.0, until: float = float("inf"), session: str = "") -> Iterator[Entry]:
        """The requests from `since` to before `until`, as they were booked; of one session, where it is named.

        Raises Misconfigured where a newer program wrote a file.
        """
        holds = f'"session":{json.dumps(session)}'.encode() if session else b""
        first, last = month(max(since, 0.0)), month(min(until, LATEST))
        for path in sorted(self._home.usage.glob("????-??.jsonl")):
            if not first <= path.stem <= last:
                continue
            try:
                with open(path, "rb", opener=regular.opened) as file:
                    for found in self._read(str(path), file, holds, since, until):
                        if since <= found.at < until and (not session or found.session == session):
                            yield found
            except OSError as error:
                self.unread[str(path)] = error.strerror or str(error)

    def _read(self, path: str, lines: Iterable[bytes], holds: bytes, since: float, until: float) -> Iterator[Entry]:
        for number, line in enumerate(lines):
            if not line.endswith(b"\n"):
                return
            at = _AT.match(line)
            if (number and holds not in line) or (at and not since <= float(at[1]) < until):
                continue  # a month has many lines, and a day is asked for most
            try:
                body = from_line(line)
                if "format" in body:
                    check(body, path)
                else:
                    yield entry(body)
            except DataError:
                self.damaged += 1


def check(header: dict[str, Any], path: str) -> None:
    """Raises Misconfigured where a file's first line says that it is of a newer program, or no such file."""
    try:
        migrate(header, VERSION, MIGRATIONS, "a file of usage")
    except (DataError, ProtocolError) as error:
        raise Misconfigured(f"{path}: {error.text}", remedy=error.remedy or f"move {path} away") from error
    if header["format"] != FORMAT:
        raise Misconfigured(f"{path} holds no usage", remedy=f"move {path} away")


def month(at: float) -> str:
    """The file that a time belongs to. By UTC, which no change of a setting or of the clocks moves.

    >>> month(1764500400.0)
    '2025-11'
    """
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


# -- days ------------------------------------------------------------------------------------------


class Days:
    """The days of a time zone, "" for the system's own. A day lasts as long as it does there: 23 hours or 25 where the clocks change."""

    def __init__(self, zone: str = "") -> None:
        self.zone = zone
        self._zone = ZoneInfo(zone) if zone else None

    def of(self, at: float) -> date:
        return datetime.fromtimestamp(at, self._zone).date()

    def start(self, day: date) -> float:
        """When it begins (epoch seconds); where midnight is left out, with what comes in its place."""
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).timestamp()

    def bounds(self, at: float) -> tuple[float, float]:
        """When the day of `at` begins, and when the next one does."""
        day = self.of(at)
        return self.start(day), self.start(day + timedelta(days=1))

    def month(self, at: float) -> float:
        """When the month of `at` begins."""
        return self.start(self.of(at).replace(day=1))

    def clock(self, at: float) -> str:
        """A time of day there, with the zone."""
        there = datetime.fromtimestamp(at, self._zone)
        return f"{there:%H:%M} ({self.zone})" if self.zone else f"{there:%H:%M}"


# -- sums ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sum:
    """What some requests came to. `tokens` are input and output; `unpriced` of them were of models whose price is not known, and are in no cost;
    of `uncounted` requests nobody told how many they were."""

    requests: int = 0
    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_micros: int = 0
    unpriced: int = 0
    unpriced_requests: int = 0
    uncounted: int = 0
    failed: int = 0
    guessed: int = 0
    guessed_micros: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Sum:
        total = cls()
        for each in entries:
            total.add(each)
        return total

    def add(self, each: Entry) -> None:
        self.requests += 1
        self.input += each.input
        self.output += each.output
        self.cached += each.cached
        self.cache_write += each.cache_write
        self.reasoning += each.reasoning
        self.cost_micros += each.cost_micros or 0
        self.failed += each.failed
        self.guessed += each.guessed
        self.guessed_micros += each.guessed_micros
        if not each.is_counted:
            self.uncounted += 1
        elif each.cost_micros is None:
            self.unpriced += each.input + each.output
            self.unpriced_requests += 1

    def __add__(self, other: Sum) -> Sum:
        return Sum(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(Sum)))

    @property
    def tokens(self) -> int:
        return self.input + self.output

    @property
    def is_priced(self) -> bool:
        """Whether a cost says anything: the price of some of it is known."""
        return self.unpriced_requests < self.requests - self.uncounted

    def told(self) -> dict[str, Any]:
        """As JSON: `cost_usd` is None where no price is known."""
        counts = {name: getattr(self, name) for name in ("requests", "tokens", *COUNTS)}
        cost = self.cost_micros / 1_000_000 if self.is_priced else None
        rest = {"unpriced_requests": self.unpriced_requests, "unpriced_tokens": self.unpriced, "uncounted_requests": self.uncounted}
        rest |= {"failed_requests": self.failed, "guessed_tokens": self.guessed}
        return {**counts, "cost_usd": cost, **rest}


def grouped(entries: Iterable[Entry], key: Callable[[Entry], Key]) -> dict[Key, Sum]:
    """The sum of each group, the groups as they were first met."""
    found: dict[Key, Sum] = {}
    for each in entries:
        found.setdefault(key(each), Sum()).add(each)
    return found


def largest(groups: dict[Key, Sum]) -> dict[Key, Sum]:
    """The groups, those first that cost most, then those of most tokens."""
    return dict(sorted(groups.items(), key=lambda item: (-item[1].cost_micros, -item[1].tokens, str(item[0]))))


def dollars(micros: int) -> str:
    """An amount as a person reads it: cents, and more places where it is less.

    >>> dollars(0), dollars(1_234_567), dollars(4_321), dollars(12)
    ('$0.00', '$1.23', '$0.0043', '$0.000012')
    """
    places = 2 if not micros or micros >= 100_000 else 4 if micros >= 1_000 else 6
    return f"${micros / 1_000_000:,.{places}f}"
