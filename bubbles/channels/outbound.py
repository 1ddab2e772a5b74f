"""What waits in the outbound queue goes out: in each chat one message after the other, all chats side by side.

It does not know how one is sent. A message that waits holds back the later ones of its chat, and of no other. What waits its turn stays in new/; the
first of a chat is claimed and keeps its place in cur/ until it is gone, so that after a restart the order is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from bubbles import log, regular
from bubbles.channels.delivery import Delivery, Desk
from bubbles.errors import BubblesError, DataError
from bubbles.messages import from_line


class Lane:
    """The messages of one chat, first in line first."""

    def __init__(self) -> None:
        self.ids: deque[str] = deque()
        self.delivery: Delivery | None = None
        self.woken = asyncio.Event()
        self.task: asyncio.Task[None]


class Outlet:
    """The way out of a channel, for whoever holds its lock. `once`: what cannot be sent now is left waiting."""

    def __init__(self, desk: Desk, *, once: bool = False) -> None:
        self._desk = desk
        self._once = once
        self._lanes: dict[str, Lane] = {}
        self._known: set[str] = set()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Something may be new."""
        self._rung.set()

    def retry(self) -> None:
        """Something may be new, and what waits may be tried at once: the platform is back, or a person has decided."""
        self._rung.set()
        for lane in self._lanes.values():
            lane.woken.set()

    @property
    def waiting(self) -> int:
        """How many messages are not out yet, as far as we have looked."""
        return len(self._known)

    @property
    def chats(self) -> int:
        """Of how many chats."""
        return len(self._lanes)

    async def run(self) -> None:
        """Send for ever. Never raises but when cancelled."""
        while True:
            self._rung.clear()
            pause_s = None if self.scan() else self._desk.settings.disk_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), pause_s)

    async def drain(self) -> None:
        """Send what can be sent now."""
        self.scan()
        while tasks := [lane.task for lane in self._lanes.values()]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Begin nothing more, let what is being sent be confirmed if it soon is, and put the rest back at its place."""
        self._desk.closing = True
        lanes = list(self._lanes.values())
        for lane in lanes:
            if lane.delivery is None or not lane.delivery.sending:
                lane.task.cancel()
        if lanes:
            await asyncio.wait([lane.task for lane in lanes], timeout=self._desk.settings.stop_s)
        for lane in lanes:
            lane.task.cancel()
        await asyncio.gather(*(lane.task for lane in lanes), return_exceptions=True)
        with contextlib.suppress(BubblesError, OSError):
            self._desk.queue.recover()

    def scan(self) -> bool:
        """Take up what is due, in its order; whether that could be looked for."""
        try:
            for id in self._desk.queue.due(self._desk.now()):
                if id not in self._known:
                    self._take_up(id)
        except (BubblesError, OSError) as error:
            log.event("daemon.warning", f"messages wait: {error}", priority="error", channel=self._desk.channel.name)
            return False
        except Exception as error:  # the loop outlives its bugs; the next ring looks again
            log.error("daemon.bug", "the outbound queue could not be looked at", channel=self._desk.channel.name, error=error)
            return False
        return True

    def _take_up(self, id: str) -> None:
        if (chat := self._chat(id)) is None:
            return
        lane = self._lanes.get(chat)
        if lane is None:
            lane = self._lanes[chat] = Lane()
            lane.task = asyncio.get_running_loop().create_task(self._empty(chat, lane))
        lane.ids.append(id)
        self._known.add(id)

    def _chat(self, id: str) -> str | None:
        """The chat that a waiting message goes to: what cannot be read has a lane of its own, where it will be held. None: it is gone."""
        try:
            chat = from_line(regular.read(self._desk.queue.path / "new" / f"{id}.json")).get("chat")
        except FileNotFoundError:
            return None
        except (OSError, DataError):
            chat = None
        return f"chat {chat}" if isinstance(chat, str) else f"message {id}"

    async def _empty(self, chat: str, lane: Lane) -> None:
        try:
            while lane.ids and not self._desk.closing:
                lane.delivery = Delivery(self._desk, lane.ids[0])
                await self._see_through(lane, lane.delivery)
                self._known.discard(lane.ids.popleft())
        finally:
            self._known.difference_update(lane.ids)
            if self._lanes.get(chat) is lane:
                del self._lanes[chat]

    async def _see_through(self, lane: Lane, delivery: Delivery) -> None:
        """Until the message has left our hands. Never raises but when cancelled."""
        while (pause_s := await delivery.attempt()) is not None:
            if self._once or self._desk.closing:
                raise asyncio.CancelledError
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(lane.woken.wait(), pause_s)
            lane.woken.clear()
