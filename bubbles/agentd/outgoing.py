"""Everything that leaves a session: replies into a channel's queue, and the live view of whoever waits in a terminal.

A reply is on disk before it is told to anyone. What a terminal is shown on the way (parts) may be missed; the
end of a turn is always told.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any

from bubbles import log
from bubbles.bus.door import Request
from bubbles.bus.feed import Feed
from bubbles.kernel.events import UserSpoke
from bubbles.kernel.turn import last_of_each_address
from bubbles.messages import Inbound, Outbound, to_dict
from bubbles.paths import Home
from bubbles.sessions.commit import Commit
from bubbles.spool import Queue

TERMINAL = "cli"
_TOLD_MOST = 200  # characters of a message that the log has
_REMEMBERED, _REMEMBERED_MOST = 1000, 4_000_000  # ended messages whose outcome is kept in memory, and the characters of all


def has_queue(spoke: UserSpoke) -> bool:
    """Whether a reply to these words has a queue. To a terminal it stands in history, and whoever waits is told; of a job likewise."""
    return spoke.address.channel not in (TERMINAL, "cron")


def _topic(spoke: UserSpoke, kind: str) -> str:
    return f"{spoke.address.channel}/{spoke.address.chat}/{kind}"


class Waiting:
    """Who waits for which message, by `turn.wait`."""

    def __init__(self) -> None:
        self._by_message: dict[str, list[tuple[Request, bool, asyncio.Future[dict[str, Any]]]]] = {}
        self._ended: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._size = 0  # characters of their texts

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

    def forget(self, message: str) -> None:
        """How a message ended before counts for nothing: it is taken up again."""
        if (body := self._ended.pop(message, None)) is not None:
            self._size -= len(str(body.get("text", "")))

    @property
    def messages(self) -> list[str]:
        """The messages whose end is waited for."""
        return list(self._by_message)

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
        self.forget(message)
        self._ended[message] = body
        self._size += len(str(body.get("text", "")))
        while len(self._ended) > _REMEMBERED or (self._size > _REMEMBERED_MOST and len(self._ended) > 1):
            self.forget(next(iter(self._ended)))
        for _, _, done in self._by_message.get(message, ()):
            if not done.done():
                done.set_result(body)


class Outgoing:
    """The way out of a turn."""

    def __init__(self, home: Home, feed: Feed, commit: Commit) -> None:
        self._home = home
        self._commit = commit
        self._feed = feed
        self._queues: dict[str, Queue] = {}
        self.waiting = Waiting()

    async def say(self, id: str, text: str, spoke: UserSpoke, *, session: str, turn: str, origin: str = "reply") -> None:
        """Put a reply where its channel finds it, and on the disk. Under an id that is known nothing changes. Raises TryAgain where it is full."""
        address = spoke.address
        if not has_queue(spoke):
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
        self.send(message, sync=False)
        await self._commit.sync(partial(self._queue(address.channel).sync, id))

    def progress(self, id: str, text: str, spoke: UserSpoke, *, session: str, turn: str) -> None:
        """Tell a chat in the middle of a turn what the model says beside its calls; without haste. Raises TryAgain where the disk is full."""
        if has_queue(spoke):
            at, address = time.time(), spoke.address
            place = address.channel, address.chat, text, address.thread
            self.send(Outbound(id, at, *place, session=session, turn=turn, origin="progress"), sync=False)

    def notify(self, id: str, text: str, inbound: Inbound) -> None:
        """Answer a message with words of the program's own, which belong to no turn. Raises TryAgain where the disk is full."""
        if inbound.channel in (TERMINAL, "cron"):
            return
        at, thread, answers = time.time(), inbound.thread, inbound.message
        self.send(Outbound(id, at, inbound.channel, inbound.chat, text, thread, answers, session=inbound.session, origin="notice"))

    def outcome(self, id: str, spoke: UserSpoke, outcome: str, *, session: str, turn: str) -> None:
        """Tell cron what became of the turn that its job woke."""
        chat = spoke.address.chat
        message = Outbound(id=id, at=time.time(), channel="cron", chat=chat, text=outcome, session=session, turn=turn, origin="job", job=spoke.job)
        self.send(message, sync=False)

    def send(self, message: Outbound, *, sync: bool = True) -> None:
        """Put a message where its channel finds it, and ring. Raises TryAgain where the disk is full."""
        if self._queue(message.channel).put(message.id, to_dict(message), sync=sync):
            about = {"session": message.session, "turn": message.turn, "channel": message.channel, "origin": message.origin}
            told = f"{message.channel}:{message.chat} {log.clipped(message.text, _TOLD_MOST)}"
            log.event("message.out", told, message=message.id, **about)
        self._feed.publish(f"out/{message.channel}", {"id": message.id})

    async def durable(self, message: Outbound) -> None:
        """Return when a message that was sent without is on the disk."""
        await self._commit.sync(partial(self._queue(message.channel).sync, message.id))

    def show(self, spoken: list[UserSpoke], turn: str, kind: str, body: Any, *, streamed: bool = True, to: Sequence[UserSpoke] = ()) -> None:
        """Show progress (`kind`: text, tool, say, retry, turn) to waiting terminals, and on the feed to the chats of `to`, else of `spoken`."""
        self.waiting.part([s.id for s in spoken], {kind: body}, streamed=streamed)
        self.tell(to or spoken, turn, kind, body)

    def tell(self, words: Sequence[UserSpoke], turn: str, kind: str, body: Any) -> None:
        """Tell the feed of a turn, once in each place where these words were said."""
        for spoke in last_of_each_address(words):
            where = {"thread": spoke.address.thread, "message": spoke.message}
            event = {"turn": turn, "kind": kind, **where, kind: body}
            self._feed.publish(_topic(spoke, kind), event)
            if kind == "state":  # once more, for those who want to hear of nothing dearer
                self._feed.publish(f"state/{spoke.address.channel}/{spoke.address.chat}", event)

    def streams(self, messages: list[str], words: Sequence[UserSpoke]) -> bool:
        """Whether somebody wants to see text as it comes: a terminal that waits for one of `messages`, or who listens to a chat of `words`."""
        return self.waiting.streams(messages) or any(self._feed.wanted(_topic(spoke, "text")) for spoke in words)

    def _queue(self, channel: str) -> Queue:
        if channel not in self._queues:
            queue = Queue(self._home.outbound(channel))
            queue.prepare()
            self._queues[channel] = queue
        return self._queues[channel]
