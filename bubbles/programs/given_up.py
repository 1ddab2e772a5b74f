"""Turns that were given up: their journals in turns/held/, until a person lets their words be said again, or not.

It does not know why one was given up; the log does. Nothing is deleted: what was decided on lies in turns/released/.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles.errors import DataError, ProtocolError
from bubbles.ids import safe
from bubbles.kernel.events import UserSpoke, from_line, read_header
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue

NAME = "turns"
STATES = {"held": "held", "done": "released"}  # by the word of the queues: the directory
_FIRST_WORDS = 200  # characters


@dataclass(frozen=True, slots=True)
class Turn:
    """One of them. `session` is "" where its file cannot be read; `why` says so then."""

    id: str
    path: Path
    session: str
    words: tuple[UserSpoke, ...]
    why: str = ""

    @property
    def text(self) -> str:
        return "\n\n".join(spoke.text for spoke in self.words if spoke.text)

    def told(self, state: str, *, whole: bool = False) -> dict[str, Any]:
        """It as a line: its first words, or all of them."""
        at = self.words[0].at if self.words else 0
        line = {"id": self.id, "queue": NAME, "state": state, "session": self.session, "at": at or self.path.stat().st_mtime}
        return line | {"text": self.text if whole else self.text[:_FIRST_WORDS]} | ({"why": self.why} if self.why else {})


def turns(home: Home, state: str = "held") -> Iterator[Turn]:
    """Those in a state, by their ids, which sort by time."""
    for path in sorted((home.turns / STATES[state]).glob("*.jsonl")) if state in STATES else ():
        yield _read(path)


def find(home: Home, id: str, state: str = "held") -> Turn | None:
    path = home.turns / STATES[state] / f"{safe(id)}.jsonl"
    return _read(path) if path.is_file() else None


def release(home: Home, id: str) -> str:
    """Say a turn's words again, as one message of the owner's in that session, and return why that cannot be; "" where it was done.

    The message's id follows from the turn's, so that one who is killed in between and begins anew says them once.
    """
    turn = find(home, id)
    if turn is None:
        return "not held"
    if turn.why or not turn.words:
        return turn.why or "no words can be read in it"
    media = tuple(each for spoke in turn.words for each in spoke.media)
    message = Inbound(
        id=safe(f"released-{turn.id}"), at=time.time(), channel="cli", chat=turn.session, text=turn.text,
        sender=Sender("owner", owner=True), media=media, session=turn.session,
    )  # fmt: skip
    queue = Queue(home.inbound("cli"))
    queue.prepare()
    queue.put(message.id, to_dict(message))
    _put_away(home, turn)
    return ""


def drop(home: Home, id: str) -> str:
    """Let a turn's words never be said again; as `release`."""
    turn = find(home, id)
    if turn is None:
        return "not held"
    _put_away(home, turn)
    return ""


def _put_away(home: Home, turn: Turn) -> None:
    directory = home.turns / STATES["done"]
    directory.mkdir(mode=0o700, exist_ok=True)
    target = directory / turn.path.name
    os.replace(turn.path, target.with_stem(f"{target.stem}.{time.time_ns()}") if target.exists() else target)


def _read(path: Path) -> Turn:
    first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    try:
        header = read_header(first)
    except (DataError, ProtocolError) as error:
        return Turn(path.stem, path, "", (), f"{error.text}{error.remedy and f'; {error.remedy}'}")
    return Turn(header.turn, path, header.session, tuple(_spoken(lines)))


def _spoken(lines: list[bytes]) -> Iterator[UserSpoke]:
    for line in lines:
        try:
            event = from_line(line)
        except (DataError, ProtocolError):
            continue
        if isinstance(event, UserSpoke):
            yield event
