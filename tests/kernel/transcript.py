"""Transcripts: a turn told line by line. The first line says why; a line is an event, or after "=" what must hold then.

    spoke u1 [@CHANNEL:CHAT] TEXT · system s1 TEXT · heard h1 TEXT · asked · answered [TEXT] [| ID NAME ARGUMENTS]… · failed CATEGORY
    started c1 · finished c1 TEXT · said · compacted TOKENS · wanted c1 · given c1 yes|no · stopped · resumed

`asked`, `started`, `said`, `compacted` and `wanted` also demand that the turn wanted just that. A call is named by its id without the turn's mark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles.kernel.actions import Action, AskApproval, AskModel, Close, Compact, RunTools, Say
from bubbles.kernel.events import (
    ApprovalAsked,
    ApprovalGiven,
    Call,
    Compacted,
    Event,
    Heard,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Resumed,
    Said,
    Stopped,
    ToolFinished,
    ToolStarted,
    UserSpoke,
)
from bubbles.kernel.turn import Rules, Turn, words
from bubbles.messages import Address

CASES = sorted((Path(__file__).parent / "cases").glob("*.txt"))


@dataclass
class Case:
    lines: list[tuple[str, str]]
    origin: str = "user"
    rules: dict[str, Any] = field(default_factory=dict)

    def turn(self) -> Turn:
        return Turn("t", self.origin, Rules(**self.rules))


def load(path: Path) -> Case:
    case = Case([])
    for line in path.read_text().splitlines()[1:]:
        word, _, rest = line.partition(" ")
        if word == "turn":
            case.origin = rest
        elif word == "rules":
            case.rules = {key: _rule(key, value) for key, value in (pair.split("=") for pair in rest.split())}
        elif word:
            case.lines.append((word, rest))
    return case


def _rule(key: str, value: str) -> Any:
    return frozenset(value.split(",")) if key in ("free", "consent") else int(value) if value.isdigit() else value


def event(word: str, rest: str, turn: Turn) -> Event:
    """The event that a line tells of, at this point of the turn."""
    name, _, text = rest.partition(" ")
    if word in ("started", "finished", "wanted", "given"):
        name = calls_of(turn)[name]
    match word:
        case "spoke" | "system":
            address, _, said = text.partition(" ") if text.startswith("@") else ("@cron:job" if word == "system" else "@cli:a", "", text)
            return UserSpoke(name, said, address=Address.parse(address[1:]), origin="user" if word == "spoke" else "system")
        case "heard":
            return Heard(name, text)
        case "asked":
            due = turn.next()
            assert isinstance(due, AskModel), due
            return ModelAsked(f"t.{due.n}")
        case "answered":
            text, *calls = rest.split(" | ") if not rest.startswith("| ") else ["", *rest[2:].split(" | ")]
            return ModelAnswered(text, tuple(Call(*_call(call)) for call in calls))
        case "failed":
            return ModelFailed(name, 1)
        case "started":
            assert name in ids(turn.next())
            return ToolStarted(name)
        case "finished":
            return ToolFinished(name, text)
        case "said":
            due = turn.next()
            assert isinstance(due, Say), due
            return Said(due.n)
        case "compacted":
            assert isinstance(turn.next(), Compact), turn.next()
            return Compacted(int(name))
        case "wanted":
            assert name in ids(turn.next())
            return ApprovalAsked(name)
        case "given":
            return ApprovalGiven(name, text == "yes")
        case "stopped":
            return Stopped("owner")
        case "resumed":
            return Resumed()
    raise AssertionError(f"no event {word!r}")


def _call(told: str) -> tuple[str, str, str]:
    id, name, arguments = told.split(" ", 2)
    return "" if id == "-" else id, name, arguments


def ids(action: Action) -> list[str]:
    """The calls that an action names."""
    if isinstance(action, RunTools):
        return [call.id for call in action.calls]
    return [action.call.id] if isinstance(action, AskApproval) else []


def short(id: str) -> str:
    """A call's id without the turn's mark (and with the number behind it)."""
    return re.sub(r"-[0-9a-f]{6}(?=_\d+$|$)", "", id)


def calls_of(turn: Turn) -> dict[str, str]:
    """The ids of the turn's calls by their short form."""
    return {short(call["id"]): call["id"] for message in turn.messages for call in message.get("tool_calls", ())}


def told(action: Action) -> str:
    match action:
        case AskModel(n):
            return f"ask {n}"
        case RunTools():
            return " ".join(["run", *map(short, ids(action))])
        case Say(n, text, to):
            return " ".join([f"say {n} {text} >", *(str(word.address) for word in to)])
        case Compact(why):
            return f"compact {why}"
        case AskApproval(call):
            return f"approve {short(call.id)}"
        case Close(outcome):
            return f"close {outcome}"


def holds(turn: Turn, key: str) -> str:
    """What a line after "=" may ask about."""
    kind, _, name = key.partition(":")
    id = calls_of(turn).get(name, name)
    last = (turn.request() or [{"role": "", "content": ""}])[-1]
    calls = {call["id"]: call["function"]["arguments"] for message in turn.messages for call in message.get("tool_calls", ())}
    return str(
        {
            "next": lambda: told(turn.next()),
            "last": lambda: last["role"],
            "waiting": lambda: " ".join(word.id for word in turn.waiting),
            "shown": lambda: " ".join(word.id for word in turn.spoken if words(word) in turn.messages),
            "to": lambda: " ".join(word.id for word in turn.says[-1].to),
            "says": lambda: " / ".join(say.text for say in turn.says),
            "messages": lambda: len(turn.messages),
            "preempt": lambda: "yes" if turn.preempt else "no",
            "result": lambda: next((m["content"] for m in turn.messages if m.get("tool_call_id") == id), "none"),
            "arguments": lambda: calls[id],
        }.get(kind, lambda: getattr(turn, kind))()
    )


def play(case: Case, turn: Turn) -> list[Event]:
    """Take the turn through the case; its journal."""
    journal = []
    for word, rest in case.lines:
        if word == "=":
            key, _, value = rest.partition(" ")
            if key == "last":
                assert turn.request()[-1] == {"role": value.partition(": ")[0], "content": value.partition(": ")[2]}
            else:
                assert holds(turn, key) == value, rest
        else:
            happened = event(word, rest, turn)
            journal.append(happened)
            turn.apply(happened)
    return journal
