"""Those who were let into a channel, and the codes of those who ask for it: HOME/channels/NAME/paired.json.

It does not know what they may do (policy.py), nor how a code is told. One process writes at a time: the channel's daemon, or whoever holds its lock.

    {"version": 1, "people": {ID: {"name", "owner", "at"}}, "pending": {CODE: {"id", "name", "chat", "thread", "zh", "at"}},
     "told": {ID: at}, "groups": {CHAT: at}}

`told`: when a stranger was last given a code; `groups`: those in which somebody who may speak has spoken. Each change is on the disk before
it counts.
"""

from __future__ import annotations

import os
import secrets
import time
import unicodedata
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.config import file
from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.messages import Inbound, from_line, migrate
from bubbles.paths import Home, typed

VERSION = 1
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # capitals, without those that look like digits
LENGTH = 8
VALID_S = 3600.0
PENDING_MOST = 10
TOLD_MOST = 20  # strangers in an hour
_GROUPS_MOST = 1000
_ID_MOST, _NAME_MOST = 200, 60  # characters
_BYTES_MOST = 8 << 20
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # of names: what moves a terminal's cursor or turns the text around


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who was let in. `at`: when, epoch seconds."""

    id: str
    name: str
    owner: bool
    at: float


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody who was given a code. `chat`, `thread`: where; `zh`: he wrote in Chinese."""

    code: str
    id: str
    name: str
    chat: str
    thread: str
    zh: bool
    at: float


class Book:
    """The people of one channel. `now`: epoch seconds. Raises Misconfigured where the file cannot be used, and leaves it as it is."""

    def __init__(self, home: Home, name: str, now: Callable[[], float] = time.time) -> None:
        self.path = path(home, name)
        self._home, self._now = home, now
        self.people: dict[str, Person] = {}
        self.pending: dict[str, Asking] = {}  # by code
        self._told: dict[str, float] = {}
        self.groups: dict[str, float] = {}
        self._load()

    def asked(self, inbound: Inbound, zh: bool) -> Asking | None:
        """The code of a stranger, the same while it is good; None where none is given now. Raises TryAgain, and has given none then."""
        id = inbound.sender.id
        pending, told = self._good(), {known: at for known, at in self._told.items() if self._is_fresh(at)}
        if (found := next((one for one in pending.values() if one.id == id), None)) is not None:
            return found
        if not id or len(id) > _ID_MOST or id in told or len(pending) >= PENDING_MOST or len(told) >= TOLD_MOST:
            return None
        at = self._now()
        made = Asking(_fresh(pending), id, shown(inbound.sender.name), inbound.chat, inbound.thread, zh, at)
        self._write(self.people, {**pending, made.code: made}, {**told, id: at}, self.groups)
        return made

    def find(self, code: str) -> Asking | None:
        """Whose code that is; None where it is nobody's, or good no more."""
        return self._good().get(spelled(code))

    def let_in(self, code: str, owner: bool) -> tuple[Person, Asking] | None:
        """Let the one in whose code that is. None where it is nobody's. Raises TryAgain where the disk refuses."""
        asking = self.find(code)
        if asking is None:
            return None
        person = Person(asking.id, asking.name, owner, self._now())
        pending = {code: one for code, one in self._good().items() if one.id != asking.id}
        self._write({**self.people, person.id: person}, pending, self._told, self.groups)
        return person, asking

    def put_out(self, id: str) -> Person | None:
        """Let somebody in no more; None where nobody of that id was paired. Raises TryAgain where the disk refuses."""
        person = self.people.get(id)
        if person is not None:
            self._write({known: one for known, one in self.people.items() if known != id}, self.pending, self._told, self.groups)
        return person

    def met(self, chat: str) -> None:
        """Somebody who may speak has spoken in that group. Raises TryAgain where the disk refuses."""
        if chat not in self.groups and len(chat) <= _ID_MOST:
            kept = list(self.groups.items())[-_GROUPS_MOST + 1 :]
            self._write(self.people, self.pending, self._told, dict([*kept, (chat, self._now())]))

    def _good(self) -> dict[str, Asking]:
        return {code: one for code, one in self.pending.items() if self._is_fresh(one.at)}

    def _is_fresh(self, at: float) -> bool:
        return abs(self._now() - at) < VALID_S  # also where the clock was put back since

    def _write(self, people: dict[str, Person], pending: dict[str, Asking], told: dict[str, float], groups: dict[str, float]) -> None:
        for directory in (self._home.root / "channels", self.path.parent):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = {
            "version": VERSION,
            "people": {id: _without(asdict(one), "id") for id, one in people.items()},
            "pending": {code: _without(asdict(one), "code") for code, one in pending.items()},
            "told": told,
            "groups": groups,
        }
        file.write(self.path, body)
        self.people, self.pending, self._told, self.groups = people, pending, told, groups

    def _load(self) -> None:
        try:
            body = migrate(from_line(regular.trusted(self.path, _BYTES_MOST)), VERSION, {}, str(self.path))
            self.people = {id: Person(id, **_checked(one, _PERSON)) for id, one in _objects(body, "people")}
            self.pending = {code: Asking(code, **_checked(one, _ASKING)) for code, one in _objects(body, "pending")}
            self._told, self.groups = dict(_times(body, "told")), dict(_times(body, "groups"))
        except FileNotFoundError:
            return
        except (DataError, ProtocolError, OSError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
            raise Misconfigured(f"{self.path} cannot be used: {why}", remedy=f"mend it or move it away: {typed(self.path)}") from error


_PERSON: dict[str, type] = {"name": str, "owner": bool, "at": float}
_ASKING: dict[str, type] = {"id": str, "name": str, "chat": str, "thread": str, "zh": bool, "at": float}


def path(home: Home, name: str) -> Path:
    """Where the people of the channel `name` are written down."""
    return home.root / "channels" / name / "paired.json"


def channels(home: Home) -> list[str]:
    """The channels that have such a file."""
    return sorted(found.parent.name for found in (home.root / "channels").glob("*/paired.json") if os.path.isfile(found))


def spelled(code: str) -> str:
    """A code as it was given, whatever a person made of it on the way.

    >>> spelled(" abcd-efgh. ")
    'ABCDEFGH'
    """
    return "".join(character for character in code.upper() if character.isascii() and character.isalpha())


def shown(name: str) -> str:
    """A name as it may be shown in a terminal: on one line, without what is invisible, and not endless.

    >>> shown("Ann\\x1b[2J\\u202e  Bo")
    'Ann[2J Bo'
    """
    kept = "".join(" " if character.isspace() else character for character in name[: 8 * _NAME_MOST])
    clean = " ".join("".join(character for character in kept if unicodedata.category(character) not in _HIDDEN).split())
    return clean if len(clean) <= _NAME_MOST else clean[: _NAME_MOST - 1] + "…"


def _fresh(taken: dict[str, Asking]) -> str:
    while (code := "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))) in taken:
        pass
    return code


def _without(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name != key}


def _objects(body: dict[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
    found = body.get(key, {})
    if not isinstance(found, dict) or not all(id and isinstance(one, dict) for id, one in found.items()):
        raise DataError(f"{key!r} is not a map of objects")
    return list(found.items())


def _times(body: dict[str, Any], key: str) -> list[tuple[str, float]]:
    found = body.get(key, {})
    if not isinstance(found, dict) or not all(_is(at, float) for at in found.values()):
        raise DataError(f"{key!r} is not a map of times")
    return list(found.items())


def _checked(body: dict[str, Any], wanted: dict[str, type]) -> dict[str, Any]:
    """The fields that are `wanted`, of their types; others are ignored. Raises DataError."""
    for name, kind in wanted.items():
        if not _is(body.get(name), kind):
            raise DataError(f"{name!r} is {body.get(name)!r}, not {kind.__name__}")
    return {name: body[name] for name in wanted}


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) if kind is float else type(value) is kind
