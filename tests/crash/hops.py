"""The hops of a message, and how the product is wrapped so that a process can die right before or right after one.

Each hop is a step of the product's own: a rename in the spool, a line in a journal, an answer. It is found from outside by the
function that makes the step, so the product knows nothing of it. `HOPS` is the table; `install` wraps what one daemon runs.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.doom import Doom

AMID_S = 0.02  # so long after its beginning something is killed in its midst
_ROUND = ("before", "after")


@dataclass(frozen=True)
class Hop:
    """`step`: its number in the walk of a message that was designed; `sides`: the moments at which a daemon can be killed there."""

    step: str
    daemon: str
    what: str
    sides: tuple[str, ...] = _ROUND


HOPS = {
    "put": Hop("1", "channel", "the message, from tmp/ into inbound/NAME/new/"),
    "confirm": Hop("2", "channel", "the platform is asked with a higher offset, and lets go"),
    "rings": Hop("3", "channel", "the channel rings agentd"),
    "ring": Hop("3", "agentd", "agentd is rung"),
    "claim": Hop("4", "agentd", "the message, from new/ into cur/"),
    "spoke": Hop("4", "agentd", "UserSpoke in an empty journal", (*_ROUND, "torn")),
    "finish": Hop("4", "agentd", "the message, from cur/ into done/"),
    "asked": Hop("5", "agentd", "ModelAsked in the journal", (*_ROUND, "torn")),
    "question": Hop("5", "modeld", "modeld is asked", (*_ROUND, "amid")),
    "called": Hop("6", "agentd", "ModelAnswered with calls in the journal", (*_ROUND, "torn")),
    "answered": Hop("6", "agentd", "ModelAnswered with words alone in the journal"),
    "started": Hop("7", "agentd", "ToolStarted in the journal", (*_ROUND, "torn")),
    "tool": Hop("8", "agentd", "the tool runs", (*_ROUND, "amid")),
    "finished": Hop("9", "agentd", "ToolFinished in the journal", (*_ROUND, "torn")),
    "joined": Hop("10", "agentd", "words that come in the midst of a turn, in its journal", (*_ROUND, "torn")),
    "carried": Hop("10", "agentd", "words too late for a turn that closes, behind it in its journal", (*_ROUND, "torn")),
    "say": Hop("11", "agentd", "the reply, from tmp/ into outbound/NAME/new/"),
    "said": Hop("12", "agentd", "Said in the journal", (*_ROUND, "torn")),
    "history": Hop("13", "agentd", "the turn, appended to session.jsonl", (*_ROUND, "torn")),
    "reset": Hop("13", "agentd", "the journal is emptied"),
    "published": Hop("14", "agentd", "the channel is rung, by the feed"),
    "take": Hop("15", "channel", "the reply, from new/ into cur/"),
    "begun": Hop("15", "channel", "the receipt: a send is begun"),
    "send": Hop("15", "channel", "the reply is sent to the platform", (*_ROUND, "amid")),
    "delivered": Hop("15", "channel", "the receipt: it was delivered"),
    "settle": Hop("15", "channel", "the reply, from cur/ into done/"),
    "enqueue": Hop("cron", "cron", "a job's message, from tmp/ into inbound/cron/new/"),
    "advance": Hop("cron", "cron", "jobs.json is saved"),
    "outcome": Hop("cron", "agentd", "what became of a job, into outbound/cron/new/"),
    "heard": Hop("cron", "cron", "what became of a job, from new/ into cur/"),
    "noted": Hop("cron", "cron", "what became of a job, from cur/ into done/"),
}

# The steps of a command in the background, which belong to no message's way; tests/crash/test_jobs.py goes through them.
JOB_HOPS = {
    "job.record": "its record, before it begins",
    "job.run": "its command begins",
    "job.noted": "its end, in its record",
    "job.put": "the message of its end, from tmp/ into inbound/jobs/new/",
    "job.closed": "its record is closed",
    "job.shown": "the turn that has shown its end is in the history; the message of it is dropped",
}

# The steps of a compaction, which are on no message's way either; tests/crash/test_compactions.py goes through them.
COMPACTION_HOPS = {
    "compaction.ask": ("a model is asked for a summary", _ROUND),
    "compaction.mark": ("the mark, appended to session.jsonl", (*_ROUND, "torn")),
    "compaction.put": ("the mark is synced, and the summary in its place", ("after",)),
}

_MOVES = {
    ("agentd", "inbound", "new", "cur"): "claim",
    ("agentd", "inbound", "cur", "done"): "finish",
    ("agentd", "outbound", "tmp", "new"): "say",
    ("channel", "inbound", "tmp", "new"): "put",
    ("channel", "outbound", "new", "cur"): "take",
    ("channel", "outbound", "cur", "done"): "settle",
    ("cron", "inbound", "tmp", "new"): "enqueue",
    ("cron", "outbound", "new", "cur"): "heard",
    ("cron", "outbound", "cur", "done"): "noted",
}
_EVENTS = {b"UserSpoke": "joined", b"ModelAsked": "asked", b"ModelAnswered": "answered", b"ToolStarted": "started"}
_EVENTS |= {b"ToolFinished": "finished", b"Said": "said"}


def install(program: str, doom: Doom) -> None:
    """Wrap what the daemon runs: its classes, not the names by which others call them, so it does not matter what is imported already."""
    _wrap_renames(program, doom)
    if program == "agentd":
        _wrap_journal(doom)
        _wrap_history(doom)
        _around("bubbles.agentd.intake:Intake.ring", "ring", doom)
        _wrap_feed(doom)
        _around_async("bubbles.tools.exec:Exec.run", "tool", doom)
        _wrap_jobs(doom)
        _wrap_compactions(doom)
    elif program == "modeld":
        _around_async("bubbles.providers.service:Service.ask", "question", doom)
    elif program == "channel":
        _wrap_receipts(doom)
        _wrap_polls(doom)
        _around("bubbles.bus.caller:Caller.ring", "rings", doom)
        _around_async("tests.fakes.channel:TestChannel.deliver", "send", doom)


def _wrap_renames(program: str, doom: Doom) -> None:
    original = os.rename

    def rename(source: Any, target: Any, **more: Any) -> None:
        hop = _move(program, str(source), str(target))
        doom.passes(hop, "before")
        original(source, target, **more)
        doom.passes(hop, "after")

    os.rename = rename  # type: ignore[assignment]


def _move(program: str, source: str, target: str) -> str:
    """The hop that a rename is; "" where it is none."""
    if program == "cron" and target.endswith("/jobs.json"):
        return "advance"
    parts = source.split("/")
    if len(parts) < 5 or parts[-5] != "spool":
        return ""
    direction, queue, state = parts[-4:-1]
    hop = _MOVES.get((program, direction, state, target.split("/")[-2]), "")
    return "outcome" if hop == "say" and queue == "cron" else hop


def _wrap_journal(doom: Doom) -> None:
    from bubbles.sessions.journal import Journal

    original = Journal.append

    def append(self: Journal, *lines: bytes) -> None:
        hop = _line(self, lines)
        if doom.is_due(hop, "torn"):
            data = b"".join(lines)
            os.write(self.fd, data[: len(data) // 2])
            doom.die()
        doom.passes(hop, "before")
        original(self, *lines)
        doom.passes(hop, "after")

    Journal.append = append  # type: ignore[method-assign]
    _around("bubbles.sessions.journal:Journal.reset", "reset", doom)


def _line(journal: Any, lines: tuple[bytes, ...]) -> str:
    """The hop that lines of a journal are; "" where they are none."""
    if lines[0].startswith(b'{"format"'):
        return "spoke" if os.fstat(journal.fd).st_size == 0 else "carried"
    found = re.match(rb'{"event":"(\w+)"', lines[0])
    hop = _EVENTS.get(found[1], "") if found else ""
    return "called" if hop == "answered" and b'"calls":[{' in lines[0] else hop


def _wrap_history(doom: Doom) -> None:
    history: Any = importlib.import_module("bubbles.sessions.history")
    original = history.append

    def append(fd: int, data: bytes) -> None:
        if b'"meta":"turn"' in data and doom.is_due("history", "torn"):
            os.write(fd, data[: len(data) // 2])
            doom.die()
        original(fd, data)

    history.append = append
    _around("bubbles.sessions.history:History.add_turn", "history", doom)


def _wrap_compactions(doom: Doom) -> None:
    history: Any = importlib.import_module("bubbles.sessions.history")
    original = history.append

    def append(fd: int, data: bytes) -> None:
        if data.startswith(b'{"meta":"compaction"') and doom.is_due("compaction.mark", "torn"):
            os.write(fd, data[: len(data) // 2])
            doom.die()
        original(fd, data)

    history.append = append
    _around("bubbles.sessions.history:History.compact", "compaction.mark", doom)
    _around_async("bubbles.agentd.compaction:Compaction._attempt", "compaction.ask", doom)
    _around_async("bubbles.agentd.compaction:Compaction._put", "compaction.put", doom)


def _wrap_feed(doom: Doom) -> None:
    from bubbles.bus.feed import Feed

    original = Feed.publish

    def publish(self: Feed, topic: str, *more: Any, **named: Any) -> None:
        hop = "published" if topic.startswith("out/") else ""
        doom.passes(hop, "before")
        original(self, topic, *more, **named)
        doom.passes(hop, "after")

    Feed.publish = publish  # type: ignore[method-assign]


def _wrap_jobs(doom: Doom) -> None:
    from bubbles.agentd.job import Job

    original = Job.store

    def store(self: Job, path: Path) -> None:
        hop = "job.record" if not self.how else "job.closed" if self.told else "job.noted"
        doom.passes(hop, "before")
        original(self, path)
        doom.passes(hop, "after")

    Job.store = store  # type: ignore[method-assign]
    _around_async("bubbles.agentd.jobs:Jobs._begun", "job.run", doom)
    _around("bubbles.agentd.jobs:Jobs._put", "job.put", doom)
    _around("bubbles.agentd.jobs:Jobs.settle_shown", "job.shown", doom)


def _wrap_receipts(doom: Doom) -> None:
    from bubbles.channels.receipts import Receipts

    original = Receipts.note

    def note(self: Receipts, id: str, /, **fact: Any) -> None:
        hop = next((name for name in ("begun", "delivered") if name in fact), "")
        doom.passes(hop, "before")
        original(self, id, **fact)
        doom.passes(hop, "after")

    Receipts.note = note  # type: ignore[method-assign]


def _wrap_polls(doom: Doom) -> None:
    """A poll with a higher offset than the one before confirms what lies between."""
    from tests.fakes.channel import TestChannel

    original = TestChannel._ask
    offsets = [0]

    async def ask(self: TestChannel, path: str, **more: Any) -> Any:
        offset = (more.get("body") or {}).get("offset", 0) if path == "/poll" else 0
        hop = "confirm" if offset > offsets[0] else ""
        offsets[0] = max(offset, offsets[0])
        doom.passes(hop, "before")
        answer = await original(self, path, **more)
        doom.passes(hop, "after")
        return answer

    TestChannel._ask = ask  # type: ignore[method-assign]


def _around(place: str, hop: str, doom: Doom) -> None:
    """Wrap a method, named `module:Class.method`."""
    owner, name, original = _found(place)

    def wrapped(*args: Any, **more: Any) -> Any:
        doom.passes(hop, "before")
        answer = original(*args, **more)
        doom.passes(hop, "after")
        return answer

    setattr(owner, name, wrapped)


def _around_async(place: str, hop: str, doom: Doom) -> None:
    owner, name, original = _found(place)

    async def wrapped(*args: Any, **more: Any) -> Any:
        doom.passes(hop, "before")
        if doom.is_due(hop, "amid"):
            asyncio.get_running_loop().call_later(AMID_S, doom.die)
        answer = await original(*args, **more)
        doom.passes(hop, "after")
        return answer

    setattr(owner, name, wrapped)


def _found(place: str) -> tuple[Any, str, Callable[..., Any] | Callable[..., Awaitable[Any]]]:
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    return owner, name, getattr(owner, name)
