"""The way out of a channel, on a disk of its own, in a clock's time; it may die and come back."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

from bubbles.channels.delivery import Desk
from bubbles.channels.outbound import Outlet
from bubbles.channels.receipts import Receipts
from bubbles.channels.settings import Settings
from bubbles.messages import Outbound, to_dict
from bubbles.spool import Queue
from tests.channels.clock import Clock
from tests.channels.memory import Memory


class Office:
    """One outbound queue with its channel. Nothing runs before `start`."""

    def __init__(self, root: Path, channel: Memory, clock: Clock, settings: Settings | None = None) -> None:
        self.path, self.channel, self.clock = root / "outbound" / "memory", channel, clock
        self.settings = settings or Settings()
        self.queue = self._queue(os)
        self.queue.prepare()
        self.receipts = Receipts(self.path, now=clock)
        self.put_at: dict[str, int] = {}

    def _queue(self, disk: Any) -> Queue:
        return Queue(self.path, disk=disk, clock=lambda: int(self.clock.now * 1e9))

    def put(self, id: str, text: str, chat: str = "a", *, at: float | None = None, **more: Any) -> None:
        message = Outbound(id=id, at=self.clock.now if at is None else at, channel="memory", chat=chat, text=text, **more)
        self.queue.put(id, to_dict(message))
        self.put_at.setdefault(id, len(self.put_at))

    def start(self, disk: Any = os, *, once: bool = False) -> Outlet:
        """A new process: nothing of the last one is left but its files."""
        self.channel.died = asyncio.Event()
        queue = self._queue(disk)
        desk = Desk(self.channel, queue, Receipts(self.path, disk=disk, now=self.clock), self.settings, self.clock)
        queue.recover()
        self.outlet = Outlet(desk, once=once)
        self.running = asyncio.ensure_future(self.outlet.run()) if not once else None
        return self.outlet

    async def die(self) -> None:
        """SIGKILL: nothing is tidied."""
        lanes = [lane.task for lane in self.outlet._lanes.values()]
        for task in [*lanes, *filter(None, [self.running])]:
            task.cancel()
            with contextlib.suppress(BaseException):
                await task

    async def until_done(self, most_s: float = 3 * 86_400) -> None:
        """Let time pass until nothing waits; a process that died is followed by another."""
        end = self.clock.now + most_s
        while self.states() & {"new", "cur"}:
            assert self.clock.now < end, "it never ends"
            self.outlet.ring()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.channel.died.wait(), 60)
            if self.channel.died.is_set():
                await self.die()
                self.start()

    def states(self) -> set[str]:
        return {state for id in self.put_at if (state := self.queue.find(id))}

    def why(self, id: str) -> str:
        return next((item.why for item in self.queue.list("held") if item.id == id), "")
