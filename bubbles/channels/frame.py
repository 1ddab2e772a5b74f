"""What is done for every platform: lock and door, the two queues, the connection, and the daemon's life.

It does not know a platform: that is a Channel (channel.py). Who may speak is decided at the gate (gate.py), by the rules that `run` is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from bubbles import __version__, log
from bubbles.bus.caller import Caller
from bubbles.bus.door import Door, Op, Request
from bubbles.bus.follower import CONNECTED, follow
from bubbles.channels.channel import Channel
from bubbles.channels.delivery import Desk
from bubbles.channels.drafts import Drafts
from bubbles.channels.gate import Gate
from bubbles.channels.inbound import Inlet
from bubbles.channels.link import Link
from bubbles.channels.liveness import Liveness
from bubbles.channels.media import Shelf
from bubbles.channels.outbound import Outlet
from bubbles.channels.pairing import Book
from bubbles.channels.policy import Rules
from bubbles.channels.progress import Progress
from bubbles.channels.receipts import Receipts
from bubbles.channels.settings import Settings
from bubbles.daemon import Daemon
from bubbles.errors import OK, TEMPFAIL, DataError, NotNow, TryAgain
from bubbles.spool import Queue

_WHO_S = 20.0
_DUTIES_S, _CLOSE_S = 3.0, 1.0  # with Settings.stop_s, less than a daemon has for its end

_OPEN = 'allow_from has "*" in it, or dm.policy is open'


async def run(daemon: Daemon, channel: Channel, settings: Settings | None = None, rules: Rules | None = None) -> None:
    """Be the daemon of `channel` until it is told to stop; with `--once`, until what waits and can be sent is sent. Without `rules`, nobody
    is heard but those who have been paired.

    Raises Misconfigured where the platform rejects the credentials, TryAgain where only a new process may help.
    """
    await Frame(daemon, channel, settings or Settings(), rules or Rules(pairs=channel.pairs)).serve()


class Frame:
    """One channel's daemon, put together."""

    def __init__(self, daemon: Daemon, channel: Channel, settings: Settings, rules: Rules) -> None:
        home, name = daemon.home, channel.name
        self.daemon, self.channel, self._settings = daemon, channel, settings
        self._agentd = Caller(home, "agentd")
        self._in, self._out = Queue(home.inbound(name)), Queue(home.outbound(name))
        self.desk = Desk(channel, self._out, Receipts(self._out.path), settings)
        self.desk.drafts = self._drafts = Drafts(
            channel,
            home.root / "channels" / name / "drafts.json",
            self.desk.pace,
            asyncio.get_running_loop().time,
            progress=settings.progress,
            hints=settings.hints,
        )
        channel.shelf, channel.outbox = Shelf(home.media(name)), self._out.path / "media"
        self.outlet = Outlet(self.desk, once=daemon.once)
        self.liveness = Liveness(channel.stale_s, asyncio.get_running_loop().time)
        self._book = Book(home, name)
        self.gate = Gate(name, rules, self._book, self._out, self.outlet.ring)
        self.inlet = Inlet(self._in, self.gate, home.media(name), self.liveness, self._agentd.ring)
        self.link = Link(channel, self.inlet, self.liveness, settings, on_up=self._up, told=self._told)
        self._was_up = asyncio.Event()
        self._is_ready = False
        self._progress = Progress(channel, self._drafts)
        self._door = Door(daemon.name, home, self._ops(), on_ring=self.outlet.retry)

    async def serve(self) -> None:
        await self._door.open()
        if self.gate.rules.everybody or self.gate.rules.direct == "open":
            log.event("daemon.warning", f"everybody may speak to {self.channel.name}: {_OPEN}", priority="warning", channel=self.channel.name)
        try:
            self._in.prepare()
            self._out.prepare()
            self._out.recover()
            self.channel.shelf.prepare()
            self.daemon.busy = lambda: self._door.answering > 0 or self.desk.sending > 0
            if self.daemon.once:
                await self._once()
            else:
                await self._for_long()
        finally:
            await self._close()
            if self.link.lingers:
                log.event("daemon.warning", "what listened does not end, so the process does", priority="error", channel=self.channel.name)
                os._exit(OK if self.daemon.stopping.is_set() else TEMPFAIL)

    async def _once(self) -> None:
        try:
            await self.link.open()
        except (NotNow, OSError) as error:
            raise TryAgain(f"{self.channel.name} cannot be reached: {error}", remedy="try again later") from error
        await self._agentd.ring()
        await self.outlet.drain()

    async def _for_long(self) -> None:
        self.daemon.on_tick += [self.outlet.ring, self._drafts.tidy]
        self._agentd.ring()  # the one before us may have been killed before it did
        soon = asyncio.get_running_loop().call_later(self._settings.ready_s, self._told, f"{self.channel.name} has not answered yet")
        tasks = [asyncio.ensure_future(work) for work in self._duties()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # or what it raised
        finally:
            soon.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_DUTIES_S)

    def _duties(self) -> list[Coroutine[Any, Any, object]]:
        return [self.link.run(), self._send(), self._hear_agentd(), self._progress.run(), self.daemon.stopping.wait()]

    async def _send(self) -> None:
        """Nothing is sent before the platform has let us in for the first time."""
        await self._was_up.wait()
        await self.outlet.run()

    async def _hear_agentd(self) -> None:
        """agentd's feed rings when it has left a message for us, and tells of progress where that is wanted."""
        ring, shown = f"out/{self.channel.name}", self._progress.wanted
        async for topic, body in follow(self.daemon.home, ring, *filter(None, [shown])):
            if (topic, body) == CONNECTED or topic == ring:
                self.outlet.ring()
            elif shown and topic.startswith(shown):
                self._progress.tell(topic, body)

    def _up(self) -> None:
        self._was_up.set()
        self.outlet.retry()

    def _told(self, line: str) -> None:
        """How it stands. The first word also says that we are ready: neither a platform that is down nor one that is slow keeps us from it."""
        if self._is_ready:
            self.daemon.status(line)
        else:
            self._is_ready = True
            self.daemon.ready(line)

    async def _close(self) -> None:
        await self.outlet.close()
        await self._progress.close()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self.channel.close()
        self._agentd.close()
        self._door.close()

    # At the door.

    def _ops(self) -> dict[str, Op]:
        return {
            "status": self._status,
            "who": self._who,
            "members.find": self._find,
            "people": self._people,
            "pair": self._pair,
            "unpair": self._unpair,
        }

    async def _status(self, request: Request) -> dict[str, Any]:
        return {
            "name": self.channel.name,
            "pid": os.getpid(),
            "version": __version__,
            "state": self.link.state,
            "why": self.link.why,
            "silent_s": self.liveness.silent_s,
            "stale_s": self.channel.stale_s,
            "rebuilds": self.liveness.rebuilds,
            "last_in": self.inlet.last,
            "last_out": self.desk.last,
            "waiting": self.outlet.waiting,
            "chats": self.outlet.chats,
            "sending": self.desk.sending,
            "keyed": self.channel.keyed,
            "policy": self.gate.rules.told(),
            "dropped": self.gate.dropped,
        }

    async def _who(self, request: Request) -> dict[str, Any]:
        """Who the bot is, for whoever asks whether the credentials are good; "" where the platform does not say."""
        if self.link.state != "up":
            raise TryAgain(f"{self.channel.name} is not connected: {self.link.why or 'it has not answered yet'}", remedy="bubbles channels status")
        async with asyncio.timeout(_WHO_S):
            return {"who": await self.channel.who()}

    async def _people(self, request: Request) -> dict[str, Any]:
        return {"people": [asdict(person) for person in self._book.people.values()]}

    async def _pair(self, request: Request) -> dict[str, Any]:
        """`code`; `owner` true, false, or null: as the owner where the channel has none yet. `person` is null where it is nobody's code."""
        code, owner = request.body.get("code"), request.body.get("owner")
        if not isinstance(code, str) or not (owner is None or isinstance(owner, bool)):
            raise DataError("pair wants a 'code' that is text, and an 'owner' that is true, false or null")
        person = self.gate.let_in(code, owner)
        return {"person": asdict(person) if person else None}

    async def _unpair(self, request: Request) -> dict[str, Any]:
        id = request.body.get("id")
        if not isinstance(id, str):
            raise DataError("unpair wants an 'id' that is text")
        person = self._book.put_out(id)
        if person is not None:
            log.event("person.paired", f"{person.name or id} is let into {self.channel.name} no more", channel=self.channel.name, person=id)
        return {"person": asdict(person) if person else None}

    async def _find(self, request: Request) -> dict[str, Any]:
        chat, query = request.body.get("chat"), request.body.get("query", "")
        if not isinstance(chat, str) or not isinstance(query, str):
            raise DataError("members.find wants a 'chat' and a 'query' that are text")
        return {"members": await self.channel.find(chat, query)}
