"""What the journals of open turns and the histories of sessions tell of a message: in which turn it was shown, and how that ended.

It does not know queues. A journal or a history is read as it stands, whether a daemon writes it meanwhile or not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.errors import DataError, ProtocolError
from bubbles.ids import safe, session_key
from bubbles.kernel.events import Heard, ModelAsked, Said, UserSpoke, from_line, read_header
from bubbles.messages import from_line as from_json
from bubbles.paths import Home

TERMINALS = ("cli", "shell")  # producers whose messages name their session


@dataclass(frozen=True, slots=True)
class Trace:
    """`shown`: whether the model was asked with it. `says`: how many sayings its turn may have had; `together`: how many messages were in it."""

    session: str
    turn: str
    shown: bool = False
    shown_at: float | None = None
    outcome: str = ""
    closed_at: float | None = None
    says: int = 0
    together: int = 1


def in_journals(home: Home, id: str) -> Trace | None:
    """What the journal of an open turn tells of a message."""
    for path in sorted(home.turns.glob("*.jsonl")):
        with contextlib.suppress(OSError):
            if (data := regular.read(path)) and id.encode() in data and (trace := in_journal(data, id)):
                return trace
    return None


def in_journal(data: bytes, id: str) -> Trace | None:
    """As `in_journals`, of the lines of one."""
    found: Trace | None = None
    session = turn = ""
    for line in data.splitlines(keepends=True):
        with contextlib.suppress(DataError, ProtocolError):
            if line.startswith(b'{"format":'):
                turn, session, _ = read_header(line)
                continue
            match from_line(line):
                case UserSpoke(id=other) | Heard(id=other) if other == id:
                    found = Trace(session, turn)
                case ModelAsked() if found and not found.shown and found.turn == turn:
                    found = replace(found, shown=True, shown_at=from_json(line).get("written"))
                case UserSpoke() if found and found.turn == turn:
                    found = replace(found, together=found.together + 1)
                case Said(n) if found and found.turn == turn:
                    found = replace(found, says=n + 1)
    return found and replace(found, says=found.says + 1)  # the next may be out, and not noted yet


def likely(channel: str, body: dict[str, Any]) -> list[str]:
    """The keys of the sessions that a message of a channel is in, unless its chat was bound elsewhere or sessions are a person's."""
    named, chat = str(body.get("session") or ""), str(body.get("chat") or "")
    if channel in TERMINALS:
        return [safe(named or chat or "main")]
    return [safe(named)] if named else [session_key(channel, chat), safe(f"{channel}-{chat}")]


def histories(home: Home, keys: Iterable[str], *, everywhere: bool) -> Iterator[Path]:
    """The histories of these sessions, and then, `everywhere`, all others, the latest first. Those are only looked for when they are asked for."""
    first = [home.session(key) / "session.jsonl" for key in dict.fromkeys(keys)]
    yield from first
    if everywhere:
        others = {path: _mtime(path) for path in home.sessions.glob("*/session.jsonl")}
        yield from sorted(others.keys() - set(first), key=lambda path: -others[path])


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def in_histories(paths: Iterable[Path], id: str) -> Trace | None:
    """What the first of the histories that knows a message tells of it."""
    return next((trace for path in paths if (trace := in_history(path, id))), None)


def in_history(path: Path, id: str) -> Trace | None:
    """The turn that a message was in; of words that were overheard, the one in which they were shown."""
    session, overheard = path.parent.name, None
    for meta in _metas(path, id):
        match meta.get("meta"):
            case "heard" if meta.get("id") == id:
                overheard = Trace(session, "")
            case "turn" if any(isinstance(each, dict) and each.get("id") == id for each in _list(meta, "messages")):
                return _closed(session, meta)
            case "turn" if id in _list(meta, "heard"):
                return Trace(session, str(meta.get("turn")), shown=True)
    return overheard


def closing(path: Path, turn: str) -> Trace | None:
    """How a turn closed, as its session's history tells."""
    return next((_closed(path.parent.name, meta) for meta in _metas(path, turn) if meta.get("turn") == turn), None)


def _closed(session: str, end: dict[str, Any]) -> Trace:
    says = _list(end, "says")
    return Trace(
        session,
        str(end.get("turn")),
        shown=bool(end.get("usage") or says),  # a model has answered in it
        outcome=str(end.get("outcome")),
        closed_at=end.get("at"),
        says=len(says),
        together=max(1, len(_list(end, "messages"))),
    )


def _list(meta: dict[str, Any], name: str) -> list[Any]:
    found = meta.get(name)
    return found if isinstance(found, list) else []


def _metas(path: Path, word: str) -> Iterator[dict[str, Any]]:
    """The lines about messages in a history that have `word` in them."""
    try:
        with open(path, "rb", opener=regular.opened) as file:
            for line in file:
                if line.startswith(b'{"meta":') and word.encode() in line and line.endswith(b"\n"):
                    with contextlib.suppress(DataError):
                        yield from_json(line)
    except OSError:
        return
