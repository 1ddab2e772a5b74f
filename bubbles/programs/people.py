"""Who may speak on a channel: listed, let in by a code, and put out again.

A channel's daemon does it where one runs, since it alone writes the list then; else we do, holding its lock.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from bubbles import config
from bubbles.bus.dial import Dial
from bubbles.bus.lock import Lock, is_running
from bubbles.channels import gate, pairing
from bubbles.channels.pairing import Book
from bubbles.channels.policy import Rules
from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.spool import Queue

_ANSWER_S = 10.0


def asking(home: Home, code: str) -> str:
    """The channel that gave somebody this code, "" where none did or it is good no more. Raises Misconfigured where a list cannot be read."""
    return next((name for name in pairing.channels(home) if Book(home, name).find(code) is not None), "")


def let_in(home: Home, name: str, code: str, owner: bool | None) -> dict[str, Any] | None:
    """Let in whose code that is on the channel `name`, and say who it is; `owner` None: as the owner where it has none yet.

    Raises TryAgain where the disk refuses.
    """

    def by_hand() -> dict[str, Any] | None:
        book, queue = Book(home, name), Queue(home.outbound(name))
        queue.prepare()
        person = gate.let_in(name, gate.with_people(rules(home, name), book), book, queue, code, owner, time.time())
        return asdict(person) if person else None

    return _done(home, name, "pair", {"code": code, "owner": owner}, by_hand)


def put_out(home: Home, name: str, id: str) -> dict[str, Any] | None:
    """Let somebody in no more, and say who it was; None where nobody of that id was paired. Raises TryAgain where the disk refuses."""

    def by_hand() -> dict[str, Any] | None:
        person = Book(home, name).put_out(id)
        return asdict(person) if person else None

    return _done(home, name, "unpair", {"id": id}, by_hand)


def listed(home: Home, names: list[str]) -> Iterator[dict[str, Any]]:
    """Those who may speak on each channel, and by what: `settings`, or `paired`, with when (epoch seconds)."""
    for name in names:
        book, own = Book(home, name), rules(home, name)
        for id in sorted(own.owners | own.guests):
            if id not in book.people:
                yield {"channel": name, "id": id, "name": "", "owner": id in own.owners, "by": "settings", "at": None}
        if own.everybody:
            yield {"channel": name, "id": "*", "name": "", "owner": False, "by": "settings", "at": None}
        for person in book.people.values():
            owner = person.owner or person.id in own.owners
            yield {"channel": name, "id": person.id, "name": person.name, "owner": owner, "by": "paired", "at": person.at}


def rules(home: Home, name: str) -> Rules:
    """The rules of a channel's settings; of one that has none, those that hold without any. Raises Misconfigured."""
    section = getattr(config.load(home, "channels").channels, name, None)
    return Rules.of(section) if section is not None and hasattr(section, "allow_from") else Rules()


def _done(home: Home, name: str, op: str, body: dict[str, Any], by_hand: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    daemon = f"channel-{name}"
    if is_running(home, daemon) is None:
        lock, ours = Lock(home, daemon), False
        with contextlib.suppress(TryAgain):  # it has just begun
            lock.acquire()
            ours = True
        if ours:
            try:
                return by_hand()
            finally:
                lock.release()
    with Dial(home, daemon) as dial:
        answer, _ = dial.call(op, body, timeout_s=_ANSWER_S)
    person = answer.get("person")
    return person if isinstance(person, dict) else None
