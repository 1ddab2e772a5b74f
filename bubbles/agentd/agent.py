"""The daemon's inside: its sessions, and what they share.

One instance a process. It starts sessions when something is said to them and lets idle ones go again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bubbles import log, sandboxes
from bubbles.agentd.actor import Actor
from bubbles.agentd.alerts import Alerts
from bubbles.agentd.books import Books
from bubbles.agentd.chats import Chats
from bubbles.agentd.commands import Commands
from bubbles.agentd.intake import Intake
from bubbles.agentd.jobs import Jobs
from bubbles.agentd.models import Models
from bubbles.agentd.outgoing import Outgoing
from bubbles.agentd.request import Tools
from bubbles.agentd.session import Session
from bubbles.bus.feed import Feed
from bubbles.errors import PASSING, BubblesError, Misconfigured, TryAgain
from bubbles.paths import Home
from bubbles.sessions.commit import Commit
from bubbles.tools import load, schemas
from bubbles.tools.tool import Tool

_AWAKE_MOST, _AWAKE_BYTES = 200, 24 << 20  # idle sessions that stay open, and the bytes of their histories, of which memory holds three copies


class Agent:
    """All that the actors of one home share."""

    def __init__(self, home: Home, settings: Any) -> None:
        self.home = home
        self.settings = settings
        self.commit = Commit()
        self.books = Books(home, settings.agents, self.commit)
        self.feed = Feed(home)
        self.models = Models(home)
        self.chats = Chats(home, settings.channels)
        self.outgoing = Outgoing(home, self.feed, self.commit)
        self.tools: dict[str, Tool] = load(settings.tools)
        self.tool_schemas = Tools.of(schemas(self.tools))
        self.performing = asyncio.Semaphore(settings.agents.defaults.slots)
        to, language = settings.gateway.alerts, settings.agents.defaults.language
        self.alerts = Alerts(home, to, language, self.outgoing.send, lambda: self.broken, is_wanted=self._is_wanted, day=self.books.day)
        self.intake = Intake(self)
        self.commands = Commands(self)
        self.jobs = Jobs(self)
        self.pause_s = 5.0  # before something is tried again that the disk refused
        self.troubles: dict[str, float] = {}
        self.broken: dict[str, str] = {}  # sessions that cannot be used, and why
        self._actors: dict[str, Actor] = {}
        self._open = False

    def actor(self, key: str, *, name: str = "") -> Actor:
        """The session `key`, awake, with the turn that it was in. Raises Misconfigured where a file of it is newer than this program, or broken."""
        actor = self._actors.get(key)
        if actor is None:
            actor = self._actors[key] = self._wake(key, name)
            if len(self._actors) > 2 * _AWAKE_MOST:
                self.tidy(keep=key)
            if self._open:
                actor.start()
        return actor

    def _wake(self, key: str, name: str) -> Actor:
        try:
            session = Session(self.home, key, self.settings, name=name)
            try:
                actor = Actor(self, session)
                actor.resume()
            except BaseException:
                session.close()
                raise
        except Misconfigured as error:
            self.broken[key] = error.text
            raise
        except Exception as error:  # one session that cannot be opened stops no other
            if isinstance(error, TryAgain) or (isinstance(error, OSError) and error.errno in PASSING):
                raise
            log.error("daemon.bug", f"the session {key} cannot be opened", session=key)
            self.broken[key] = f"it cannot be opened: {error}"
            raise Misconfigured(f"the session {key} cannot be opened: {error}", remedy=f"look at: ls -la {self.home.session(key)}") from error
        self.broken.pop(key, None)
        return actor

    def exists(self, key: str) -> bool:
        """Whether there is such a session, awake or not."""
        return key in self._actors or self.home.session(key).is_dir()

    def awake(self, key: str) -> Actor | None:
        """The session `key`, if it is awake."""
        return self._actors.get(key)

    def actors(self) -> list[Actor]:
        return list(self._actors.values())

    async def open(self) -> None:
        """Take up what a killed agentd left: its commands are ended, then come its turns, then the messages it had in its hands, and only then act.

        A session that cannot be used is named and left alone; the others go on.
        """
        sandboxes.sweep(self.home)
        self.books.recover()
        self.jobs.recover()
        self.feed.open()
        for path in sorted(self.home.turns.glob("*.jsonl")):
            if not path.is_file() or path.stat().st_size:
                try:
                    self.actor(path.stem)
                except (BubblesError, OSError) as error:
                    log.event("daemon.warning", f"the session {path.stem} cannot be used: {error}", priority="error", session=path.stem)
        self.intake.recover()
        await self.intake.scan()
        self._open = True
        for actor in self.actors():
            actor.start()

    def _is_wanted(self, channel: str) -> bool:
        """Whether a channel is switched on; one that has no settings is somebody's own."""
        section = getattr(self.settings.channels, channel, None)
        return getattr(section, "enabled", True)

    def trouble(self, what: str) -> None:
        """Something outside hinders the work, and is waited out."""
        if len(self.troubles) > _AWAKE_MOST:
            self.troubles.clear()
        if time.monotonic() - self.troubles.get(what, float("-inf")) > 60:
            self.troubles[what] = time.monotonic()
            log.event("daemon.warning", what, priority="warning")

    @property
    def busy(self) -> bool:
        return any(actor.busy for actor in self._actors.values()) or bool(self.outgoing.waiting) or self.intake.acting or self.jobs.busy

    def end_the_gone(self) -> None:
        """Whoever waits for a message that a person has dropped is told so."""
        known = {id for actor in self._actors.values() for id in actor.known}
        for message in self.outgoing.waiting.messages:
            if message not in known and self.intake.state(message) in ("done", None):
                self.outgoing.waiting.end(message, {"outcome": "dropped", "text": "", "turn": ""})

    def tidy(self, keep: str = "") -> None:
        """Let go of sessions that nobody has spoken to for longest, where many are awake; `keep` stays."""
        staying = [key for key in self._actors if key == keep or self.commands.is_busy(key) or self.jobs.running(key)]
        idle = sorted((a for key, a in self._actors.items() if not a.busy and key not in staying), key=lambda a: a.used_at)
        room = _AWAKE_BYTES
        for place, actor in enumerate(reversed(idle)):
            room -= actor.session.past.size
            if place >= _AWAKE_MOST or (room < 0 and place):
                actor.close()
                del self._actors[actor.session.key]
                self.jobs.forget(actor.session.key)

    def close(self) -> None:
        """Leave the work as a SIGKILL would: everything is on disk already."""
        for actor in self._actors.values():
            actor.abandon()
        self.jobs.close()
        self.models.close()
        self.commands.close()
        self.feed.close()
        self.books.close()
        self.commit.close()
