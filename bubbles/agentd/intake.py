"""From the inbound queues to the sessions: a message leaves its queue only when it stands in a journal.

agentd owns every inbound queue. The directory says which channel a message came by and whether a person or the
system sent it; what the message says of itself is not believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bubbles import log
from bubbles.agentd import ends, posting
from bubbles.agentd.apology import WINDOW_S, language_of
from bubbles.agentd.commands import parse
from bubbles.agentd.lanes import Lane, Lanes, Place
from bubbles.agentd.texts import told
from bubbles.errors import PASSING, BubblesError, DataError, Misconfigured, ProtocolError
from bubbles.ids import safe
from bubbles.messages import Inbound, from_dict
from bubbles.spool import Item, Queue

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent

TERMINALS = frozenset({"cli", "shell"})  # producers that are the owner's own
SYSTEM = frozenset({"cron", "agentd", ends.QUEUE, posting.QUEUE})
_ADDRESSED = (ends.QUEUE, posting.QUEUE)  # agentd's own, whose messages keep the address that they name
_AT_ONCE = 256
_TOLD_MOST = 200  # characters of a message that the log has
_REMEMBERED = 1000  # chats
_BREATH_S = 1.0  # between two looks at messages that could not be taken


class Intake:
    """Takes what is due and hands each message to its session."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._root = agent.home.root / "spool" / "inbound"
        self._queues: dict[str, Queue] = {}
        self._rung = asyncio.Event()
        self._lanes = Lanes()
        self._next_at: float | None = None  # when there is something to look at again without a ring, epoch seconds
        self._seen = 0  # when a queue was made last, as the directory of them all says
        self._told_at: dict[str, float] = {}  # by chat: when it was told last that its words wait, or cannot be taken; monotonic
        self._acting: set[asyncio.Task[bool]] = set()  # commands that are being done

    def ring(self) -> None:
        """Something may be new."""
        self._rung.set()

    def recover(self) -> None:
        """Put back what a killed agentd had in its hands."""
        for queue in self._open().values():
            try:
                queue.recover()
            except (OSError, BubblesError) as error:
                self._agent.trouble(f"{queue.path} cannot be recovered: {error}")

    def state(self, message: str) -> str | None:
        """The state of a message in whichever queue holds it."""
        found = (queue.find(message) for queue in self._open().values())
        return next((state for state in found if state), None)

    async def run(self) -> None:
        """Take messages for ever. Never raises but when cancelled."""
        while True:
            self._rung.clear()
            try:
                await self.scan()
                pause_s = self._pause_s()
            except (OSError, BubblesError) as error:
                self._agent.trouble(f"the inbound queues cannot be read: {error}")
                pause_s = self._agent.pause_s
            except Exception:  # the intake is the only way in: it outlives its bugs
                log.error("daemon.bug", "a bug in the intake")
                pause_s = self._agent.pause_s
            await self._pause(pause_s)

    async def _pause(self, pause_s: float | None) -> None:
        """Until somebody rings, or for so long."""
        timer = None if pause_s is None else asyncio.get_running_loop().call_later(pause_s, self._rung.set)
        try:
            await self._rung.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _pause_s(self) -> float | None:
        """Seconds until a message that waits for its time, or could not be taken, is to be looked at; None where none is."""
        return None if self._next_at is None else max(_BREATH_S, self._next_at - time.time())

    def _look_at(self, at: float | None) -> None:
        """Look again at a time, or earlier."""
        if at is not None:
            self._next_at = at if self._next_at is None else min(at, self._next_at)

    async def scan(self) -> int:
        """Take all that is due now; how many messages left their queue."""
        taken = 0
        self._next_at = None
        for name, queue in self._open().items():
            due = self._due(queue)
            for start in range(0, len(due), _AT_ONCE):
                taken += await self._take_all(name, queue, due[start : start + _AT_ONCE])
        return taken

    async def _take_all(self, name: str, queue: Queue, ids: list[str]) -> int:
        """Take messages side by side, in order as far as their first step."""
        if len(ids) == 1:
            return int(await self._take(name, queue, ids[0]))
        return sum(await asyncio.gather(*(self._take(name, queue, id) for id in ids)))

    def _due(self, queue: Queue) -> list[str]:
        """What may be taken from a queue; nothing where it cannot be read, which stops no other."""
        try:
            due, later = queue.survey(time.time(), self._held_back(queue.path.name))
            self._look_at(later)
            return due
        except (OSError, BubblesError) as error:
            self._agent.trouble(f"{queue.path} cannot be read: {error}")
            self._look_at(time.time() + self._agent.pause_s)
            return []

    async def _take(self, name: str, queue: Queue, id: str) -> bool:
        """Whether the message is gone from new/."""
        try:
            item = queue.claim(id)
        except FileNotFoundError:  # dropped by a person meanwhile, or a second copy of what is done
            self._passed((name, id))
            return False
        except DataError as error:  # no message at all; it is held
            self._passed((name, id))
            log.event("message.held", f"{id}: {error.text}", priority="warning", message=id, channel=name)
            return True
        except BubblesError as error:
            self._agent.trouble(f"messages wait: {error}")
            self._look_at(time.time() + self._agent.pause_s)
            return False
        return await self._guarded(queue, item, self._dispatch(queue, item))

    async def _dispatch(self, queue: Queue, item: Item) -> bool:
        name = queue.path.name
        channel = item.body.get("channel", name) if name in _ADDRESSED else name
        inbound = self._believed(name, from_dict(Inbound, {"chat": "", "at": time.time(), **item.body, "id": item.id, "channel": channel}))
        if inbound.origin == "system" or not inbound.wakes or inbound.edit_of or parse(inbound.text) is None:
            return await self._hand_over(queue, inbound)
        task = asyncio.create_task(self._guarded(queue, item, self._act(queue, inbound)))  # it may ask a model: nothing waits for it
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)
        await asyncio.sleep(0)  # but its first step is done before the words behind it are heard
        return True

    async def _guarded(self, queue: Queue, item: Item, work: Coroutine[Any, Any, bool]) -> bool:
        """Whether the message is gone from new/ after `work` on it, whatever became of that."""
        name, id, body = queue.path.name, item.id, {**item.body, "id": item.id, "channel": queue.path.name}
        try:
            return await work
        except (DataError, Misconfigured, ProtocolError) as error:
            self._passed((name, id))
            with contextlib.suppress(OSError, BubblesError):
                queue.hold(id, error.text)
            log.event("message.held", f"{id}: {error.text}", priority="warning", message=id, channel=name)
            self._tell_held(body, "broken" if isinstance(error, Misconfigured) else "failed other", error.remedy)
        except (OSError, BubblesError) as error:
            if isinstance(error, OSError) and error.errno not in PASSING:
                self._give_up(queue, id, error, body)
                return True
            with contextlib.suppress(OSError, BubblesError):
                queue.defer(id, time.time() + self._agent.pause_s)
            self._look_at(time.time() + self._agent.pause_s)
            self._agent.trouble(f"messages wait: {error}")
        except Exception as error:  # one message that cannot be taken is held, and the others go on
            self._give_up(queue, id, error, body)
        return True

    async def _hand_over(self, queue: Queue, inbound: Inbound) -> bool:
        """Give a message to its session, or back to its queue where it has to wait; whether it is gone from there."""
        name = queue.path.name
        lane = Lane(inbound.session, "" if inbound.origin == "system" else f"{inbound.channel}:{inbound.chat}")
        place = name, inbound.id
        actor = self._agent.actor(inbound.session, name=inbound.chat if name in TERMINALS else inbound.session)
        if place not in self._lanes:
            words = f"{name}:{inbound.chat} {log.clipped(inbound.text, _TOLD_MOST)}"
            log.event("message.in", words, session=inbound.session, message=inbound.id, channel=name)
        self._forget_the_gone(lane, place)
        if name != posting.QUEUE and not self._lanes.is_next(lane, place):  # a note has no place among words
            self._wait(queue, inbound, lane)
            return False
        if not inbound.wakes:
            await actor.overhear(inbound, self._finisher(queue, inbound.id))
        elif why := await actor.hear(inbound, self._finisher(queue, inbound.id), lambda: self._lanes.is_next(lane, place)):
            if why != "behind":
                self._lanes.shut(lane, until_idle=why == "busy")
            if why == "full":
                self._tell_of_the_limit(inbound)
            self._wait(queue, inbound, lane)
            return False
        self._passed(place)
        self._agent.outgoing.waiting.forget(inbound.id)
        return True

    def dropped(self, queue: str, message: str) -> None:
        """Somebody here has dropped a message that may have waited; nobody counts it any more, nor waits behind it."""
        self._passed((queue, message))

    def _passed(self, place: Place) -> None:
        """A message does not wait any more; what waited behind it is looked at."""
        if self._lanes.passed(place):
            self.ring()

    def _forget_the_gone(self, lane: Lane, place: Place) -> None:
        """What stands first in a lane and is in no queue any more, because a person dropped it, holds nobody up."""
        while (first := self._lanes.first(lane)) not in (None, place) and first is not None and self._state(*first) not in ("new", "cur"):
            self._lanes.passed(first)

    async def _act(self, queue: Queue, inbound: Inbound) -> bool:
        """Do what a command says, at once and beside whatever runs; it leaves its queue when its answer is on its way."""
        words = log.clipped(inbound.text, _TOLD_MOST)
        log.event("message.in", words, session=inbound.session, message=inbound.id, channel=inbound.channel)
        try:
            actor = self._agent.actor(inbound.session, name=inbound.chat if inbound.channel == "cli" else inbound.session)
        except Misconfigured:
            actor = None
        with actor.in_use() if actor is not None else contextlib.nullcontext():
            text = await self._agent.commands.take(inbound, actor)
        if text:
            self._agent.outgoing.notify(f"{inbound.id}.0.0", text, inbound)
        queue.finish(inbound.id)
        self._agent.outgoing.waiting.end(inbound.id, {"outcome": "command", "text": text, "turn": ""})
        return True

    @property
    def acting(self) -> bool:
        """Whether a command is being done."""
        return bool(self._acting)

    def _wait(self, queue: Queue, inbound: Inbound, lane: Lane) -> None:
        """Give a message back to its queue until its session has room for it."""
        queue.give_back(inbound.id)
        place = queue.path.name, inbound.id
        if place not in self._lanes:
            log.event("message.waits", "its session has no room for it yet", session=inbound.session, message=inbound.id, channel=inbound.channel)
        self._lanes.wait(lane, place)

    def _tell_of_the_limit(self, inbound: Inbound) -> None:
        """Somebody's words have to wait for room: who waits in a terminal is told each time, a chat once a minute."""
        most = self._agent.settings.agents.limits.queued
        self._agent.outgoing.waiting.part([inbound.id], {"waits": self.limit}, streamed=False)
        if self._may_tell(inbound) and (actor := self._agent.awake(inbound.session)):
            self._agent.outgoing.notify(f"{inbound.id}.waits", told("too many", actor.session.language, most=most), inbound)

    def _may_tell(self, inbound: Inbound) -> bool:
        """Whether a chat may be told something that is no answer of a turn: once a minute."""
        now, chat = time.monotonic(), f"{inbound.channel}:{inbound.chat}"
        if len(self._told_at) > _REMEMBERED:
            self._told_at = {each: at for each, at in self._told_at.items() if now - at <= WINDOW_S}
        if now - self._told_at.get(chat, float("-inf")) <= WINDOW_S:
            return False
        self._told_at[chat] = now
        return True

    @property
    def limit(self) -> dict[str, Any]:
        """What a program is told of words that wait for room."""
        return {"limit": "queued", "most": self._agent.settings.agents.limits.queued}

    def is_held_back(self, message: str) -> bool:
        """Whether a person's message waits in its queue because there is no room for it."""
        return any(self._lanes.is_held_back((name, message)) for name in self._queues if name not in SYSTEM)

    def waiting(self, session: str) -> int:
        """How many messages for a session stay in their queues until it can take them in."""
        return self._lanes.count(session)

    def reopen(self, session: str, *, idle: bool) -> None:
        """A session has room again for people's words, and where it is idle for the system's messages."""
        if self._lanes.reopen(session, idle=idle):
            self.ring()

    def _state(self, name: str, id: str) -> str | None:
        with contextlib.suppress(OSError, BubblesError):
            queue = self._queues.get(name)
            return queue.find(id) if queue is not None else None
        return "new"  # it cannot be told now

    def _held_back(self, name: str) -> Callable[[str], bool]:
        return lambda id: self._lanes.is_held_back((name, id))

    def _tell_held(self, body: dict[str, Any], why: str, remedy: str = "") -> None:
        """Tell whoever waits that a message was put aside. What a clock or a program said is put aside in silence."""
        id, name = str(body["id"]), str(body["channel"])
        text = str(body.get("text", ""))
        language = language_of(self._agent.settings.agents.defaults.language, text)
        self._agent.outgoing.waiting.end(id, {"outcome": "held", "text": told(why, language), "remedy": remedy})
        with contextlib.suppress(OSError, BubblesError):
            inbound = from_dict(Inbound, {"chat": "", "at": time.time(), **body})
            if name not in SYSTEM and inbound.wakes and self._may_tell(inbound):
                self._agent.outgoing.notify(f"{id}.held", told(why, language), inbound)

    def _give_up(self, queue: Queue, id: str, error: Exception, body: dict[str, Any]) -> None:
        log.error("daemon.bug", f"{id} could not be taken; it is held", error=error, message=id)
        self._passed((queue.path.name, id))
        with contextlib.suppress(OSError, BubblesError):
            queue.hold(id, "a bug: see the log")
        self._tell_held(body, "failed other")

    def _finisher(self, queue: Queue, id: str) -> Callable[[], object]:
        return lambda: queue.finish(id)

    def _believed(self, name: str, inbound: Inbound) -> Inbound:
        """The message with channel, origin and session as its queue allows."""
        if name in TERMINALS:
            return replace(inbound, channel="cli", origin="user", session=safe(inbound.session or inbound.chat or "main"), wakes=True)
        if name in SYSTEM:
            return replace(inbound, origin="system", session=safe(inbound.session or f"{name}-{inbound.chat}"))
        with contextlib.suppress(BubblesError):  # a disk that refuses is no reason to refuse words; the next ones are noted
            self._agent.chats.meet(inbound)
        return replace(inbound, origin="user", session=self._agent.chats.key(inbound), job="")

    def _open(self) -> dict[str, Queue]:
        try:
            made = os.stat(self._root).st_mtime_ns
            if made == self._seen and time.time_ns() - made > 10**9:  # younger, it may not tell of a queue that was made at the same tick
                return self._queues
            names = [entry.name for entry in os.scandir(self._root) if entry.is_dir()]
        except FileNotFoundError:
            return {}
        self._seen = made
        for name in names:
            if name not in self._queues:
                queue = Queue(self._root / name)
                try:
                    queue.prepare()
                except (OSError, BubblesError) as error:
                    self._agent.trouble(f"{queue.path} cannot be used: {error}")
                    self._seen = 0
                else:
                    self._queues[name] = queue
        return self._queues
