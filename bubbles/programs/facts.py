"""The five facts of a message, each from the file that alone knows it.

    accepted    its queue       since when it has its place there
    shown       its turn        the turn in which the model was asked with it
    answered    its turn        how that turn closed, and the messages that went out of it to the same chat
    delivered   the receipts    what the platform has, part by part, under its own id
    uncertain   the receipts    what was begun to be sent, and nobody knows whether it arrived

None is inferred from another; what is not known is null. Of a message that came in, the last two are those of its replies.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from bubbles.channels.receipts import Receipts
from bubbles.errors import DataError
from bubbles.ids import safe
from bubbles.kernel.clean import clean
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.programs import traces
from bubbles.programs.traces import TERMINALS, Trace
from bubbles.spool import Queue
from bubbles.spool.files import Files
from bubbles.spool.queue import Item

Fact = dict[str, Any]
NAMES = ("accepted", "shown", "answered", "delivered", "uncertain")
_TRAVEL = ("new", "cur", "done", "held")


def look(queue: Queue, id: str) -> tuple[str, Item] | None:
    """A message of a queue and its state, found by its id: nothing is listed. What cannot be read has an empty body."""
    files, name = Files(queue.path, os), safe(id)
    for state in _TRAVEL:
        try:
            content, at_ns = files.read(state, f"{name}.json")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            content, at_ns = b"}\n", files.mtime(state, f"{name}.json") or 0
        if content.endswith(b"}\n") or state == "done":
            return state, Item(name, _body(content), at_ns, _why(files, name) if state == "held" else "")
    return None


def of_inbound(home: Home, channel: str, state: str, item: Item) -> dict[str, Any]:
    """The facts of a message that came in."""
    paths = traces.histories(home, traces.likely(channel, item.body) if state != "new" else (), everywhere=state == "done")
    trace = traces.in_journals(home, item.id) or traces.in_histories(paths, item.id)
    facts = _of_turn(trace) if trace else _of_silence(home, item.id)
    sends = list(_replies(home, channel, item.body, trace)) if trace else []
    if facts["answered"]:
        facts["answered"]["replies"] = [id for _, id in sends]
    return {"accepted": {"at": item.at_ns / 1e9}, **facts, **_of_sends(sends)}


def of_outbound(home: Home, queue: Queue, item: Item) -> dict[str, Any]:
    """The facts of a message that goes out: how its turn closed, and its own receipts."""
    session, turn = (str(item.body.get(name) or "") for name in ("session", "turn"))
    trace = traces.closing(home.session(safe(session)) / "session.jsonl", turn) if session and turn else None
    answered = _of_turn(trace)["answered"] if trace else None
    return {"accepted": {"at": item.at_ns / 1e9}, "shown": None, "answered": answered, **_of_sends([(queue, item.id)])}


def of_gone(home: Home, id: str) -> dict[str, Any] | None:
    """The facts of a message that is in no queue any more; None where no history knows it."""
    trace = traces.in_journals(home, safe(id)) or traces.in_histories(traces.histories(home, (), everywhere=True), safe(id))
    return {**dict.fromkeys(NAMES), **_of_turn(trace)} if trace else None


def unconfirmed(receipts: Receipts, id: str) -> list[Fact]:
    """The parts that were begun to be sent, of which nobody knows whether they arrived, and of which no person has decided."""
    found: dict[int, Fact] = {}
    for fact in receipts.facts(id):
        match fact:
            case {"begun": int(part)}:
                found[part] = {"part": part, "key": fact.get("key"), "at": fact.get("at")}
            case {"uncertain": int(part)}:
                found.setdefault(part, {"part": part, "key": None, "at": fact.get("at")})
            case {"delivered": int(part)} | {"refused": int(part)}:
                found.pop(part, None)
            case {"settled": "delivered" | "lost"}:
                found.clear()
    return list(found.values())


def is_undecided(receipts: Receipts, id: str) -> bool:
    """Whether a person may decide about a send: something of it is unconfirmed, or what was decided has had no effect yet."""
    known = receipts.facts(id)
    return bool(known) and (bool(unconfirmed(receipts, id)) or "settled" in known[-1])


def _body(content: bytes) -> dict[str, Any]:
    try:
        return from_line(content)
    except DataError:
        return {}


def _why(files: Files, name: str) -> str:
    try:
        return files.read("held", f"{name}.why")[0].decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _of_turn(trace: Trace) -> dict[str, Any]:
    where: Fact = {"turn": trace.turn, "session": trace.session}
    shown = where | ({"at": trace.shown_at} if trace.shown_at is not None else {})
    answered = where | {"outcome": trace.outcome, "at": trace.closed_at}
    return {"shown": shown if trace.shown else None, "answered": answered if trace.outcome else None}


def _of_silence(home: Home, id: str) -> dict[str, Any]:
    """A turn that stayed silent leaves nothing in a history; what became of a job's is told to cron."""
    told = look(Queue(home.outbound("cron")), f"{id}.outcome")
    body = told[1].body if told else {}
    answered = {"turn": id, "session": body.get("session"), "outcome": body.get("text"), "at": body.get("at")} if body else None
    return {"shown": None, "answered": answered}


def _replies(home: Home, channel: str, body: dict[str, Any], trace: Trace) -> Iterator[tuple[Queue, str]]:
    """The messages that went out of a message's turn to its own chat."""
    queue = Queue(home.outbound(channel))
    if channel in TERMINALS or not queue.path.is_dir():
        return
    for n in (*range(trace.says), "end"):
        for k in range(trace.together):
            found = look(queue, id := f"{trace.turn}.{n}.{k}")
            if found and found[1].body.get("chat") == body.get("chat"):
                yield queue, id


def _of_sends(sends: list[tuple[Queue, str]]) -> dict[str, Any]:
    delivered: list[Fact] = []
    uncertain: list[Fact] = []
    for queue, id in sends:
        receipts = Receipts(queue.path)
        facts = [fact for fact in receipts.facts(id) if isinstance(fact.get("delivered"), int)]
        delivered += [{"message": id, "part": fact["delivered"], "id": fact.get("id"), "at": fact.get("at")} for fact in facts]
        uncertain += [{"message": id, **fact} for fact in unconfirmed(receipts, id)]
    return {"delivered": delivered or None, "uncertain": uncertain or None}


# -- for people --------------------------------------------------------------------------------------


def table(line: dict[str, Any]) -> str:
    """A message with its facts, as some lines for a person at a terminal."""
    head = "  ".join(str(line[name]) for name in ("id", "queue", "state", "why") if line.get(name))
    rows = [(name, _said(name, line.get(name))) for name in NAMES]
    text = line.get("text") or (line.get("message") or {}).get("text") or ""
    shown = [head, *(f"  {name:<10} {said}" for name, said in rows), *([f"  {'text':<10} {text}"] if text else [])]
    return "\n".join(" ⏎ ".join(clean(each).splitlines()) for each in shown)


def _said(name: str, fact: Any) -> str:
    match name, fact:
        case _, None:
            return "-"
        case "delivered" | "uncertain", list():
            return ", ".join(f"{_at(each)}part {each['part']} of {each['message']}{_as(each)}" for each in fact)
        case "answered", dict():
            replies = f": {', '.join(fact['replies'])}" if fact.get("replies") else ""
            return f"{_at(fact)}{fact['outcome']}, turn {fact['turn']} in {fact['session']}{replies}"
        case "shown", dict():
            return f"{_at(fact)}turn {fact['turn']} in {fact['session']}"
    return _at(fact).rstrip()


def _as(each: Fact) -> str:
    return f" as {each['id']}" if each.get("id") else ""


def _at(fact: Fact) -> str:
    at = fact.get("at")
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))}  " if isinstance(at, int | float) and 0 <= at < 1e11 else ""
