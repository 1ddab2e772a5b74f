"""From the inbound queues to the sessions: a message leaves its queue only when it stands in a journal.

agentd owns every inbound queue. The directory says which channel a message came by and whether a person or the
system sent it; what the message says of itself is not believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from bubbles import log
from bubbles.errors import PASSING, BubblesError, DataError, Misconfigured, ProtocolError
from bubbles.ids import safe, session_key
from bubbles.messages import Inbound, from_dict
from bubbles.spool import Queue

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent

TERMINALS = frozenset({"cli", "shell"})  # producers that are the owner's own
SYSTEM = frozenset({"cron", "agentd"})
_AT_ONCE = 256
_BREATH_S = 1.0  # between two looks at messages that could not be taken


class Intake:
    """Takes what is due and hands each message to its session."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._root = agent.home.root / "spool" / "inbound"
        self._queues: dict[str, Queue] = {}
        self._rung = asyncio.Event()

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
                while await self.scan():
                    pass
                pause_s = self._pause_s()
            except (OSError, BubblesError) as error:
                self._agent.trouble(f"the inbound queues cannot be read: {error}")
                pause_s = self._agent.pause_s
            except Exception:
                log.error("daemon.bug", "a bug in the intake")
                pause_s = self._agent.pause_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._rung.wait(), pause_s)

    def _pause_s(self) -> float | None:
        """Seconds until a message that waits for its time, or could not be taken, is to be looked at; None where none is."""
        due = []
        for queue in self._queues.values():
            with contextlib.suppress(OSError, BubblesError):
                due += [at] if (at := queue.next_due()) is not None else []
        return max(_BREATH_S, min(due) - time.time()) if due else None

    async def scan(self) -> int:
        """Take all that is due now; how many messages left their queue."""
        taken = 0
        for name, queue in self._open().items():
            due = self._due(queue)
            for start in range(0, len(due), _AT_ONCE):
                taken += sum(await asyncio.gather(*(self._take(name, queue, id) for id in due[start : start + _AT_ONCE])))
        return taken

    def _due(self, queue: Queue) -> list[str]:
        """What may be taken from a queue; nothing where it cannot be read, which stops no other."""
        try:
            return queue.due(time.time())
        except (OSError, BubblesError) as error:
            self._agent.trouble(f"{queue.path} cannot be read: {error}")
            return []

    async def _take(self, name: str, queue: Queue, id: str) -> bool:
        """Whether the message is gone from new/."""
        try:
            item = queue.claim(id)
        except FileNotFoundError:  # dropped by a person meanwhile, or a second copy of what is done
            return False
        except DataError as error:  # no message at all; it is held
            log.event("message.held", f"{id}: {error.text}", priority="warning", message=id, channel=name)
            return True
        except BubblesError as error:
            self._agent.trouble(f"messages wait: {error}")
            return False
        try:
            inbound = self._believed(name, from_dict(Inbound, {"chat": "", "at": time.time(), **item.body, "id": item.id, "channel": name}))
            if not inbound.wakes:
                raise DataError("words that wake nobody are not taken in yet", remedy="drop it")
            key = inbound.session
            actor = self._agent.actor(key, name=inbound.chat if name in TERMINALS else key)
            log.event("message.in", f"{name}:{inbound.chat} {inbound.text[:200]}", session=key, message=inbound.id, channel=name)
            await actor.hear(inbound, self._finisher(queue, id))
        except (DataError, Misconfigured, ProtocolError) as error:
            with contextlib.suppress(OSError, BubblesError):
                queue.hold(id, error.text)
            log.event("message.held", f"{id}: {error.text}", priority="warning", message=id, channel=name)
            self._agent.outgoing.waiting.end(id, {"outcome": "held", "text": error.text, "remedy": error.remedy})
        except (OSError, BubblesError) as error:
            if isinstance(error, OSError) and error.errno not in PASSING:
                self._give_up(queue, id, error)
                return True
            with contextlib.suppress(OSError, BubblesError):
                queue.defer(id, time.time() + self._agent.pause_s)
            self._agent.trouble(f"messages wait: {error}")
        except Exception as error:
            self._give_up(queue, id, error)
        return True

    def _give_up(self, queue: Queue, id: str, error: Exception) -> None:
        log.error("daemon.bug", f"{id} could not be taken; it is held", error=error, message=id)
        with contextlib.suppress(OSError, BubblesError):
            queue.hold(id, "a bug: see the log")
        self._agent.outgoing.waiting.end(id, {"outcome": "held", "text": "the message could not be taken; the log has the details"})

    def _finisher(self, queue: Queue, id: str) -> Callable[[], object]:
        return lambda: queue.finish(id)

    def _believed(self, name: str, inbound: Inbound) -> Inbound:
        """The message with channel, origin and session as its queue allows."""
        if name in TERMINALS:
            return replace(inbound, channel="cli", origin="user", session=safe(inbound.session or inbound.chat or "main"), wakes=True)
        if name in SYSTEM:
            return replace(inbound, origin="system", session=safe(inbound.session or f"{name}-{inbound.chat}"))
        return replace(inbound, origin="user", session=session_key(name, inbound.chat), job="")

    def _open(self) -> dict[str, Queue]:
        try:
            names = [entry.name for entry in os.scandir(self._root) if entry.is_dir()]
        except FileNotFoundError:
            return {}
        for name in names:
            if name not in self._queues:
                queue = Queue(self._root / name)
                try:
                    queue.prepare()
                except (OSError, BubblesError) as error:
                    self._agent.trouble(f"{queue.path} cannot be used: {error}")
                else:
                    self._queues[name] = queue
        return self._queues
