"""The daemon's inside: its sessions, and what they share.

One instance a process. It starts sessions when something is said to them and lets idle ones go again.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bubbles import log, sandboxes
from bubbles.agentd.actor import Actor
from bubbles.agentd.intake import Intake
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

_AWAKE_MOST = 200  # idle sessions that keep their files open


class Agent:
    """All that the actors of one home share."""

    def __init__(self, home: Home, settings: Any) -> None:
        self.home = home
        self.settings = settings
        self.commit = Commit()
        self.feed = Feed(home)
        self.models = Models(home)
        self.outgoing = Outgoing(home, self.feed)
        self.tools: dict[str, Tool] = load(settings.tools)
        self.tool_schemas = Tools.of(schemas(self.tools))
        self.performing = asyncio.Semaphore(settings.agents.defaults.slots)
        self.intake = Intake(self)
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
        except Exception as error:
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

    def actors(self) -> list[Actor]:
        return list(self._actors.values())

    async def open(self) -> None:
        """Take up what a killed agentd left: its commands are ended, then come its turns, then the messages it had in its hands, and only then act.

        A session that cannot be used is named and left alone; the others go on.
        """
        sandboxes.sweep(self.home)
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

    def trouble(self, what: str) -> None:
        """Something outside hinders the work, and is waited out."""
        if time.monotonic() - self.troubles.get(what, float("-inf")) > 60:
            self.troubles[what] = time.monotonic()
            log.event("daemon.warning", what, priority="warning")

    @property
    def busy(self) -> bool:
        return any(actor.busy for actor in self._actors.values()) or bool(self.outgoing.waiting)

    def tidy(self, keep: str = "") -> None:
        """Let go of sessions that nobody has spoken to for longest, where many are awake; `keep` stays."""
        idle = sorted((a for a in self._actors.values() if not a.busy and a.session.key != keep), key=lambda a: a.used_at)
        for actor in idle[: max(0, len(idle) - _AWAKE_MOST)]:
            actor.close()
            del self._actors[actor.session.key]

    def close(self) -> None:
        """Leave the work as a SIGKILL would: everything is on disk already."""
        for actor in self._actors.values():
            actor.abandon()
        self.models.close()
        self.feed.close()
        self.commit.close()
