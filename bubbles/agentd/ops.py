"""What agentd answers at its door. Every operation may be asked again."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from bubbles import __version__, config
from bubbles.agentd.outgoing import Waiting
from bubbles.agentd.overrides import Overrides
from bubbles.bus.door import Op, Request
from bubbles.config.section import plain
from bubbles.errors import DataError, Usage
from bubbles.ids import safe
from bubbles.messages import from_line
from bubbles.sessions.lent import lent

if TYPE_CHECKING:
    from bubbles.agentd.actor import Actor
    from bubbles.agentd.agent import Agent

_GOES_ON_S = 180.0  # what goes on is met, and noted, once a minute or two; what has not been for so long is over
_PAGE = 512 << 10  # bytes of history in one answer, or a single turn


class Ops:
    """The operations, by name in `table`."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.table: dict[str, Op] = {
            "status": self.status,
            "turn.wait": self.wait,
            "turn.stop": self.stop,
            "session.show": self.show,
            "session.set": self.set,
            "session.prompt": self.prompt,
            "session.compact": self.compact,
            "session.history": self.history,
        }

    async def status(self, request: Request) -> dict[str, Any]:
        """Which sessions are awake, and what they do."""
        sessions = []
        for actor in self._agent.actors():
            turn = actor.turn
            doing = type(turn.next()).__name__ if turn is not None else ""
            waiting = actor.waiting + self._agent.intake.waiting(actor.session.key)
            told = {"session": actor.session.key, "state": "working" if turn else "idle", "turn": turn.id if turn else "", "doing": doing}
            sessions.append({**told, "waiting": waiting, "jobs": [job.id for job in self._agent.jobs.running(actor.session.key)]})
        held = self._agent.home.turns / "held"
        return {
            "pid": os.getpid(),
            "version": __version__,
            "open": sum(s["state"] == "working" for s in sessions),
            "sessions": sessions,
            "held_turns": sorted(p.stem for p in held.glob("*.jsonl")),
            "troubles": [what for what, at in self._agent.troubles.items() if time.monotonic() - at < _GOES_ON_S],
            "broken": dict(self._agent.broken),
        }

    async def wait(self, request: Request) -> dict[str, Any]:
        """Answer when the turn that a message is in has ended; on the way, its parts."""
        message = _text(request, "message")
        waiting: Waiting = self._agent.outgoing.waiting
        if ended := waiting.ended(message):
            return ended
        self._agent.intake.ring()
        if not any(message in actor.known for actor in self._agent.actors()):
            state = self._agent.intake.state(message)
            if state in (None, "done") and (ended := await self._in_history(message, request.body.get("session"))):
                return ended
            if state is None:
                raise DataError(f"no message {message!r} is known here", remedy="send it again")
            if state == "done":
                return {"outcome": "silent", "text": ""}  # its turn is over and has left no line
            if state == "held":
                return {"outcome": "held", "text": "the message could not be read; see: bubbles queue list inbound"}
            if self._agent.intake.is_held_back(message):
                request.part({"waits": self._agent.intake.limit})
        return await waiting.until_end(message, request, stream=bool(request.body.get("stream")))

    async def _in_history(self, message: str, session: Any) -> dict[str, Any] | None:
        if not isinstance(session, str) or not self._agent.exists(safe(session)):
            return None
        actor = self._agent.actor(safe(session))
        with actor.in_use():  # a long one is read beside everything else
            end = await asyncio.to_thread(actor.session.history.end_of, message)
        if end is None:
            return None
        said = next((m.get("said", -1) for m in end["messages"] if m["id"] == message), -1)
        text = end["says"][said] if end.get("says") and end["outcome"] == "replied" else end.get("notice", "")
        return {"outcome": end["outcome"], "text": text, "turn": end["turn"]}

    async def stop(self, request: Request) -> dict[str, Any]:
        key = safe(_text(request, "session"))
        return {"stopped": await self._agent.actor(key).stop("terminal") if self._agent.exists(key) else False}

    async def show(self, request: Request) -> dict[str, Any]:
        """A session's settings: what holds, and what of it the session itself says."""
        key = safe(_text(request, "session"))
        loans = [{"path": str(grant.path), "mode": grant.mode} for grant in lent(self._agent.home, key)]
        if not self._agent.exists(key):
            shown = config.session_settings(self._agent.settings, {})
            return {"session": key, "exists": False, "settings": _shown(shown), "overrides": {}, "lent": loans, "messages": 0, "tokens": 0}
        session = self._agent.actor(key).session
        session.refresh()
        return {
            "session": key,
            "exists": True,
            "settings": _shown(session.effective),
            "overrides": {key: value for key, value in session.folder.overrides().items() if key != "version"},
            "lent": loans,
            "messages": session.history.count,
            "tokens": session.base_tokens,
        }

    async def set(self, request: Request) -> dict[str, Any]:
        """Set one setting of a session, or with value null take it back to the owner's."""
        actor = self._actor(request)
        key, value = _text(request, "key"), request.body.get("value")
        if key not in config.SESSION_KEYS:
            raise Usage(f"{key!r} is no setting of a session", remedy=f"one of: {', '.join(config.SESSION_KEYS)}")
        session = actor.session
        Overrides(self._agent.home, session.key, self._agent.settings).change(key, value)
        session.refresh()
        return {"session": session.key, "key": key, "value": _shown(session.effective)[key]}

    def _actor(self, request: Request) -> Actor:
        return self._agent.actor(safe(_text(request, "session")), name=str(request.body.get("session")))

    async def prompt(self, request: Request) -> dict[str, Any]:
        """The system prompt as the next request would carry it, and the tools beside it."""
        actor = self._actor(request)
        tools = await actor.offers_tools()
        return {"text": actor.session.prompt(tools=tools), "tools": list(self._agent.tools) if tools else []}

    async def compact(self, request: Request) -> dict[str, Any]:
        """Summarise the session's past now."""
        actor = self._actor(request)
        before = actor.session.base_tokens
        how = await actor.compact()
        return {"session": actor.session.key, "how": how, "before_tokens": before, "after_tokens": actor.session.base_tokens}

    async def history(self, request: Request) -> dict[str, Any]:
        """The turns that ended after the turn `after` ("" for all): their words and replies, oldest first, a page of them."""
        key = safe(_text(request, "session"))
        after, limit = request.body.get("after") or "", request.body.get("limit") or 0
        if not isinstance(after, str) or type(limit) is not int or limit < 0:
            raise Usage(f"{request.op}: 'after' is a turn's id, 'limit' a number", remedy="see bus/PROTOCOL.md")
        if not self._agent.exists(key):
            return {"turns": [], "more": False}
        lines = self._agent.actor(key).session.history.file_lines()
        turns, more = await asyncio.to_thread(_page, lines, after, limit)
        return {"turns": turns, "more": more}


def _page(lines: Iterable[bytes], after: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """The first of the turns in a history that ended after the turn `after`, or of the newest `limit` (0: all) of these; whether there are more."""
    ended: deque[tuple[dict[str, Any], int]] = deque(maxlen=limit or None)
    for line in lines:
        turn = _ended(line)
        if turn is not None and turn["turn"] == after:
            ended.clear()
        elif turn is not None:
            ended.append((turn, len(line)))
    room = _PAGE
    for place, (_, size) in enumerate(ended):
        if place and size > room:
            return [turn for turn, _ in islice(ended, place)], True
        room -= size
    return [turn for turn, _ in ended], False


def _ended(line: bytes) -> dict[str, Any] | None:
    """The turn that a line of a history closes; None for any other, and for one that is damaged or not yet written whole."""
    if not line.startswith(b'{"meta":"turn"'):
        return None
    try:
        turn = from_line(line)
    except DataError:
        return None
    return turn if isinstance(turn.get("turn"), str) else None


def _text(request: Request, name: str) -> str:
    value = request.body.get(name)
    if not isinstance(value, str) or not value:
        raise Usage(f"{request.op} needs {name!r}", remedy="see bus/PROTOCOL.md")
    return value


def _shown(effective: config.Effective) -> dict[str, Any]:
    return {key: plain(getattr(effective, key)) for key in config.SESSION_KEYS}
