"""Everything that leaves a session: replies into a channel's queue, and the live view of whoever waits in a terminal.

A reply is on disk before it is told to anyone. What a terminal is shown on the way (parts) may be missed; the
end of a turn is always told.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Any

from bubbles.bus.door import Request
from bubbles.bus.feed import Feed
from bubbles.kernel.events import UserSpoke
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue

TERMINAL = "cli"
_REMEMBERED = 1000  # ended messages whose outcome is kept in memory


class Waiting:
    """Who waits for which message, by `turn.wait`."""

    def __init__(self) -> None:
        self._by_message: dict[str, list[tuple[Request, bool, asyncio.Future[dict[str, Any]]]]] = {}
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._by_message)

    def ended(self, message: str) -> dict[str, Any] | None:
        """How the turn of a message ended, if it did lately."""
        return self._ended.get(message)

    async def until_end(self, message: str, request: Request, *, stream: bool) -> dict[str, Any]:
        """Return when the turn that `message` is in has ended. Until then `request` gets its parts."""
        done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        entry = (request, stream, done)
        self._by_message.setdefault(message, []).append(entry)
        try:
            return await done
        finally:
            entries = self._by_message.get(message, [])
            if entry in entries:
                entries.remove(entry)
            if not entries:
                self._by_message.pop(message, None)

    def part(self, messages: list[str], part: dict[str, Any], *, streamed: bool) -> None:
        """Show a part to those who wait for one of `messages`; what is streamed, only to those who asked for it."""
        for message in messages:
            for request, stream, _ in self._by_message.get(message, ()):
                if stream or not streamed:
                    request.part(part)

    def streams(self, messages: list[str]) -> bool:
        """Whether somebody wants this turn's text as it comes."""
        return any(stream for message in messages for _, stream, _ in self._by_message.get(message, ()))

    def end(self, message: str, body: dict[str, Any]) -> None:
        self._ended[message] = body
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        for _, _, done in self._by_message.get(message, ()):
            if not done.done():
                done.set_result(body)


class Outgoing:
    """The way out of a turn."""

    def __init__(self, home: Home, feed: Feed) -> None:
        self._home = home
        self._feed = feed
        self._queues: dict[str, Queue] = {}
        self.waiting = Waiting()

    def say(self, id: str, text: str, spoke: UserSpoke, *, session: str, turn: str, origin: str = "reply", sync: bool = True) -> None:
        """Put a reply where its channel finds it. A second time under the same id changes nothing. Raises TryAgain where the disk is full.

        A terminal has no queue: its reply stands in history, and whoever waits is told at once.
        """
        address = spoke.address
        if address.channel in (TERMINAL, "cron"):  # what a job says stands in its session's history
            return
        message = Outbound(
            id=id,
            at=time.time(),
            channel=address.channel,
            chat=address.chat,
            text=text,
            thread=address.thread,
            reply_to=spoke.message,
            session=session,
            turn=turn,
            origin=origin,
        )
        self._queue(address.channel).put(id, to_dict(message), sync=sync)
        self._feed.publish(f"out/{address.channel}", {"id": id})

    def outcome(self, id: str, spoke: UserSpoke, outcome: str, *, session: str, turn: str) -> None:
        """Tell cron what became of the turn that its job woke."""
        chat = spoke.address.chat
        message = Outbound(id=id, at=time.time(), channel="cron", chat=chat, text=outcome, session=session, turn=turn, origin="job", job=spoke.job)
        self._queue("cron").put(id, to_dict(message), sync=False)
        self._feed.publish("out/cron", {"id": id})

    def show(self, spoken: list[UserSpoke], turn: str, kind: str, body: dict[str, Any], *, streamed: bool = True) -> None:
        """Show progress (`kind`: text, tool, say, retry, turn) to waiting terminals and on the feed."""
        self.waiting.part([s.id for s in spoken], {kind: body}, streamed=streamed)
        if spoken:
            address = spoken[-1].address
            self._feed.publish(f"{address.channel}/{address.chat}/{kind}", {"turn": turn, "kind": kind, kind: body})

    def _queue(self, channel: str) -> Queue:
        if channel not in self._queues:
            queue = Queue(self._home.outbound(channel))
            queue.prepare()
            self._queues[channel] = queue
        return self._queues[channel]
