"""Deliberate faults: the product broken in one place each, so that it is known that the judge would see it.

Each names what the judge must find, and the hop at which a death brings it to light.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_LATE_S = 0.05  # what should have come first comes so long after


@dataclass(frozen=True)
class Fault:
    """`install(program)` breaks the product in this process. `finds`: the kinds of problems of which the judge must name one."""

    install: Callable[[str], None]
    finds: frozenset[str]
    daemon: str
    hop: str
    side: str


def _finish_before_journal(program: str) -> None:
    """A message leaves its queue before it stands in a journal."""
    if program != "agentd":
        return
    from bubbles.spool.queue import Queue

    original = Queue.claim

    def claim(self: Queue, id: str) -> Any:
        item = original(self, id)
        self.finish(id)
        return item

    Queue.claim = claim  # type: ignore[method-assign]


def _started_after_the_tool(program: str) -> None:
    """That a tool began is written down when it has ended."""
    if program != "agentd":
        return
    from bubbles.sessions.journal import Journal

    original = Journal.append
    owed: dict[int, list[bytes]] = {}

    def append(self: Journal, *lines: bytes) -> None:
        if all(line.startswith(b'{"event":"ToolStarted"') for line in lines):
            owed.setdefault(id(self), []).extend(lines)
        elif lines[0].startswith(b'{"event":"ToolFinished"'):
            original(self, *owed.pop(id(self), []), *lines)
        else:
            original(self, *lines)

    Journal.append = append  # type: ignore[method-assign]


def _no_id_is_known(program: str) -> None:
    """Neither queue nor journal nor history knows a message that was there before."""
    from bubbles.spool.files import Files
    from bubbles.spool.queue import Queue

    original = Files.has
    Queue._known = lambda self, state, name: None  # type: ignore[method-assign]
    Files.has = lambda self, state, name: state not in ("cur", "done") and original(self, state, name)  # type: ignore[method-assign]
    if program == "agentd":
        from bubbles.agentd.actor import Actor
        from bubbles.sessions.history import History

        Actor._known = lambda self, id: False  # type: ignore[method-assign]
        History.knows = lambda self, message: False  # type: ignore[method-assign]


def _said_before_put(program: str) -> None:
    """That something was said is written down before it lies in the outbound queue."""
    if program != "agentd":
        return
    from bubbles.spool.queue import Queue

    original = Queue.put

    def put(self: Queue, id: str, body: dict[str, Any], **more: Any) -> bool:
        if self.path.parent.name != "outbound" or self.path.name == "cron":
            return original(self, id, body, **more)
        asyncio.get_running_loop().call_later(_LATE_S, lambda: original(self, id, body, **more))
        return True

    Queue.put = put  # type: ignore[method-assign]
    Queue.sync = lambda self, id: None  # type: ignore[method-assign]


def _confirm_before_put(program: str) -> None:
    """The platform is told that a message arrived before it lies in the inbound queue."""
    if program != "channel":
        return
    from tests.fakes import channel

    kind: Any = channel.TestChannel
    original = kind.listen

    async def listen(self: Any, take: Any) -> Any:
        later.alive = take.alive  # type: ignore[attr-defined]
        takes.append(take)
        return await original(self, later)

    takes: list[Any] = []
    pending: set[asyncio.Future[Any]] = set()

    async def later(inbound: Any) -> None:
        asyncio.get_running_loop().call_later(_LATE_S, lambda: pending.add(asyncio.ensure_future(takes[-1](inbound))))

    kind.listen = listen


FAULTS = {
    "finish before journal": Fault(_finish_before_journal, frozenset({"lost"}), "agentd", "spoke", "before"),
    "ToolStarted after the tool": Fault(_started_after_the_tool, frozenset({"tool twice"}), "agentd", "tool", "amid"),
    "no id is known": Fault(_no_id_is_known, frozenset({"doubled"}), "agentd", "finish", "before"),
    "Said before put": Fault(_said_before_put, frozenset({"unanswered"}), "agentd", "reset", "after"),
    "confirm before put": Fault(_confirm_before_put, frozenset({"lost"}), "channel", "put", "before"),
}
