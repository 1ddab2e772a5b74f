"""Turns that were given up: their journals in turns/held/, until a person lets their words be said again, or not.

It does not know why one was given up; the log does. Nothing is deleted: what was decided on lies in turns/released/.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.agentd import ends
from bubbles.errors import DataError, ProtocolError
from bubbles.ids import safe
from bubbles.kernel.events import UserSpoke, from_line, read_header
from bubbles.messages import Inbound, Sender, from_dict, to_dict
from bubbles.paths import Home
from bubbles.programs.facts import look
from bubbles.spool import Queue

NAME = "turns"
STATES = {"held": "held", "done": "released"}  # by the word of the queues: the directory
_FIRST_WORDS = 200  # characters
_TERMINAL = "cli"
_STAMP = re.compile(r"\[([^]\n]*)\]")  # kernel/prompt.py writes both
_QUOTE = re.compile(r"\n\[in answer to: (.*?)\](?=\n\[|\Z)", re.DOTALL)


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
    """Say a turn's words again, and return why that cannot be; "" where it was done.

    Words from a terminal are one message in that session. All others come again by the way they came, with the rank that
    their sender had, so that a stranger's words are a stranger's, and the reply goes where it belongs. The ids of the
    messages follow from the old ones: one who is killed in between and begins anew says nothing twice.
    """
    turn = find(home, id)
    if turn is None:
        return "not held"
    if turn.why or not turn.words:
        return turn.why or "no words can be read in it"
    if nowhere := next((spoke.id for spoke in turn.words if safe(spoke.address.channel) != spoke.address.channel), None):
        return f"its words {nowhere} do not say which channel they came by"
    for message in _again(home, turn):
        queue = Queue(home.inbound(ends.QUEUE if ends.is_end(message) else message.channel))
        queue.prepare()
        queue.put(message.id, to_dict(message))
    _put_away(home, turn)
    return ""


def _again(home: Home, turn: Turn) -> Iterator[Inbound]:
    """The messages that say a turn's words again, in their order."""
    typed = [spoke for spoke in turn.words if spoke.address.channel == _TERMINAL and not ends.is_end(spoke)]
    for spoke in turn.words:
        if spoke not in typed:
            yield _as_it_came(home, spoke, turn.session)
        elif spoke is typed[0]:
            yield _typed_again(turn, typed)


def _typed_again(turn: Turn, typed: list[UserSpoke]) -> Inbound:
    return Inbound(
        id=safe(f"released-{turn.id}"),
        at=time.time(),
        channel=_TERMINAL,
        chat=turn.session,
        text="\n\n".join(spoke.text for spoke in typed if spoke.text),
        sender=Sender("owner", owner=True),
        media=tuple(each for spoke in typed for each in spoke.media),
        session=turn.session,
    )


def _as_it_came(home: Home, spoke: UserSpoke, session: str) -> Inbound:
    """Its words as their channel would put them again. agentd believes no session of a channel's message, and finds it by chat and sender."""
    first = _kept(home, spoke)
    return Inbound(
        id=safe(f"{spoke.id}.again"),
        at=time.time(),
        channel=spoke.address.channel,
        chat=spoke.address.chat,
        thread=spoke.address.thread,
        text=spoke.text,
        message=spoke.message,
        is_group=spoke.is_group,
        mentioned=spoke.is_group,  # in a group too somebody waits for the answer: it was asked for a second time
        sender=Sender(first.sender.id, first.sender.name, owner=spoke.owner),
        media=spoke.media,
        quote=first.quote,
        origin=spoke.origin,
        job=spoke.job,
        session=session if spoke.origin == "system" else "",
    )


def _kept(home: Home, spoke: UserSpoke) -> Inbound:
    """The message of these words, which its queue keeps for a week; later, what their header tells of it. Its rank is the journal's alone."""
    if found := look(Queue(home.inbound(ends.QUEUE if ends.is_end(spoke) else spoke.address.channel)), spoke.id):
        with contextlib.suppress(DataError, ProtocolError):
            return from_dict(Inbound, {"at": 0, "chat": "", **found[1].body, "id": spoke.id, "channel": spoke.address.channel})
    name, quote = _headed(spoke)
    return Inbound(spoke.id, spoke.at, spoke.address.channel, spoke.address.chat, sender=Sender(name=name), quote=quote)


def _headed(spoke: UserSpoke) -> tuple[str, str]:
    """The sender's name, and what the words answer, as far as their header tells of them."""
    stamp = _STAMP.match(spoke.header)
    names = [part for part in stamp[1].split(" · ")[2:] if part != "guest" or spoke.owner] if stamp else []
    quote = _QUOTE.search(spoke.header)
    return (names[0] if names else ""), (quote[1] if quote else "")


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
    try:
        first, *lines = regular.read(path).splitlines(keepends=True) or [b""]
        header = read_header(first)
    except OSError as error:
        return Turn(path.stem, path, "", (), f"it cannot be read: {error.strerror}")
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
