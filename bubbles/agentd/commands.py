"""What a person's slash commands do: in every chat and in the terminal the same, at once, and beside whatever turn is running.

A message may come here twice, because it leaves its queue only after it was acted upon: each command does the second time
what makes no difference. None of them is ever shown to a model, and none becomes words of a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from bubbles import log
from bubbles.agentd import ends
from bubbles.agentd.asked import Asked, asked, last_of_a_person
from bubbles.agentd.configuring import choose_model, configure
from bubbles.agentd.pairing import pair
from bubbles.agentd.spelling import COMMANDS, Command, parse
from bubbles.agentd.standing import status
from bubbles.agentd.usage import usage
from bubbles.bus.caller import Caller
from bubbles.errors import BubblesError, Misconfigured, TryAgain
from bubbles.messages import Inbound, to_dict
from bubbles.spool import Queue

if TYPE_CHECKING:
    from bubbles.agentd.actor import Actor
    from bubbles.agentd.agent import Agent
    from bubbles.agentd.job import Job

__all__ = ["Command", "Commands", "parse"]

_REMEMBERED = 64  # answers, against a second coming
_BARE = ("new", "compact", "retry", "help", "status", "usage", "prompt")  # with words after them they were hardly meant; /stop always is
_JOBS = ("jobs", "job", "后台任务", "任务")  # behind /stop
_PATIENCE_S = 0.5
_QUOTED = 60  # characters of words that are said again


class Commands:
    """The commands of one agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._modeld = Caller(agent.home, "modeld")
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._summaries: dict[str, asyncio.Task[str]] = {}  # those that are being made for a person, by session
        self._compacting: dict[str, float] = {}  # sessions, and since when (epoch seconds)

    def close(self) -> None:
        self._modeld.close()

    def is_busy(self, session: str) -> bool:
        """Whether a summary of a session is being made for a person."""
        return session in self._compacting

    async def take(self, inbound: Inbound, actor: Actor | None) -> str:
        """Do what the command says that a person's message is, and return what is to be answered; "" where the turn itself will tell.

        `actor` is its session, None where that cannot be used: what does not need it works all the same. Raises OSError or TryAgain where
        the disk refuses; nothing has been done then. It may take as long as a model does.
        """
        if (answer := self._answers.get(inbound.id)) is not None:
            return answer
        command = parse(inbound.text)
        assert command is not None, "whoever calls has asked parse()"
        answer = self._answers[inbound.id] = await self._answer(asked(self._agent, inbound, command, actor))
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return answer

    async def _answer(self, ask: Asked) -> str:
        name = ask.command.name
        if ask.command.typed:
            return ask.told("near", typed=ask.command.typed, name=name)
        if not COMMANDS[name].everybody and not ask.owner:
            return ask.told("owner only", name=name)
        if ask.arguments and name in _BARE:
            return ask.told("no words", name=name)
        if ask.awake is None and name not in ("help", "config", "pair"):
            return ask.told("broken")
        try:
            return await self._do(name, ask)
        except TryAgain:
            raise
        except BubblesError as error:
            log.event("daemon.warning", f"/{name}: {error.text}", priority="warning", message=ask.inbound.id)
            return ask.told("broken" if isinstance(error, Misconfigured) else "cannot")

    async def _do(self, name: str, ask: Asked) -> str:
        match name:
            case "help":
                return _help(ask)
            case "status":
                return await status(ask, self._compacting.get(ask.actor.session.key))
            case "stop":
                return await self._stop(ask)
            case "retry":
                return self._retry(ask)
            case "new":
                return await self._new(ask)
            case "usage":
                return await usage(ask)
            case "model":
                return await choose_model(ask, self._modeld)
            case "config":
                return await configure(ask)
            case "session":
                return self._session(ask)
            case "prompt":
                return await _prompt(ask)
            case "compact":
                return await self._compact(ask)
            case "pair":
                return await pair(ask)
        raise AssertionError(name)

    def _retry(self, ask: Asked) -> str:
        """Say a person's last words once more, by the way they came. Whoever asks for it is who says them now: rights are not handed on."""
        id = f"{ask.inbound.id}.retry"
        words = _last_words(ask.actor)
        again = _said_again(id, words, ask) if words is not None else ask.inbound
        queue = Queue(self._agent.home.inbound(again.channel))
        if ask.actor.turn is not None and queue.find(id) is None:
            return ask.told("busy", name="retry")
        if words is None:
            return ask.told("nothing to retry")
        here = (again.channel, again.chat) == (ask.inbound.channel, ask.inbound.chat)
        if not here and again.channel != "cli" and self._agent.chats.key(again) != ask.actor.session.key:
            return ask.told("elsewhere")
        queue.put(id, to_dict(again))
        self._agent.intake.ring()
        text = " ".join(again.text.split())
        return ask.told("again", text=text if len(text) <= _QUOTED else text[: _QUOTED - 1] + "…")

    def _session(self, ask: Asked) -> str:
        address, name = ask.inbound.address, ask.arguments
        if not name:
            own = [] if ask.inbound.is_group else [ask.told("session terminal" if address.channel == "cli" else "session help")]
            return "\n".join([ask.told("this session", name=self._agent.chats.session_of(address) or ask.actor.session.key), *own])
        if address.channel == "cli":
            return ask.told("session terminal")
        if ask.inbound.is_group:
            return ask.told("not in a group")
        self._agent.chats.bind(address, None if name == "-" else name)
        return ask.told("unbound") if name == "-" else ask.told("bound", name=name)

    async def _new(self, ask: Asked) -> str:
        """Begin afresh. What runs in the background belongs to what is over: it is ended, and named."""
        with ask.actor.in_use():
            ended = await self._agent.jobs.begin_anew(ask.actor.session.key, by=ask.inbound.id)
        await ask.actor.begin_anew()
        return "\n".join(filter(None, [ask.told("new", name=ask.actor.session.key), _named(ask, "jobs stopped", ended)]))

    async def _stop(self, ask: Asked) -> str:
        if ask.arguments.lower().rstrip(".!。！") in _JOBS:
            return await self._stop_jobs(ask)
        stopped = await self._stop_turn(ask)
        return "\n".join(filter(None, [stopped, _named(ask, "jobs go on", self._agent.jobs.running(ask.actor.session.key))]))

    async def _stop_jobs(self, ask: Asked) -> str:
        """End what runs in the background: for the owner all of it, for others what was begun in their chat. The model hears of it later."""
        jobs, by = self._agent.jobs, ask.inbound.id
        running = jobs.running(ask.actor.session.key)
        await jobs.stop([job for job in running if ask.owner or job.address == ask.inbound.address], "by a person", by=by, wakes=False)
        ended = [job for job in jobs.of(ask.actor.session.key).values() if job.by == by]  # also when this comes a second time
        return _named(ask, "jobs stopped", ended) or ask.told("no jobs")

    async def _stop_turn(self, ask: Asked) -> str:
        """Stop the turn, with all that was said before. Its own notice tells those who spoke in it; who stops it from elsewhere is told here."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S), ask.actor.lock:  # words before it, on their way into the turn, hold it in turn
                pass
        turn = ask.actor.turn
        here = turn is not None and any(spoke.address == ask.inbound.address for spoke in turn.spoken)
        if await ask.actor.stop(f"{ask.inbound.channel}:{ask.inbound.chat}"):
            waiting = self._agent.intake.waiting(ask.actor.session.key)
            more = ask.told("still waiting", n=waiting) if waiting else ""
            return more if here else "\n".join(filter(None, [ask.told("stopped"), more]))
        if turn is not None and turn.outcome == "stopped":  # by this very message, before a restart, or by another
            return ""
        ended = last_of_a_person(ask.actor)
        if ended and ended.get("outcome") == "stopped" and ended.get("at", 0) >= ask.inbound.at:
            return ""
        if (summary := self._summaries.get(ask.actor.session.key)) is not None:
            summary.cancel()
            return ask.told("stopped")
        return ask.told("nothing runs")

    async def _compact(self, ask: Asked) -> str:
        session = ask.actor.session
        if session.key in self._compacting:
            return ask.told("compacting")
        self._compacting[session.key] = time.time()
        before = session.base_tokens
        summary = self._summaries[session.key] = asyncio.create_task(ask.actor.compact())
        try:
            await asyncio.wait({summary})
        finally:
            summary.cancel()
            del self._compacting[session.key], self._summaries[session.key]
        if summary.cancelled():
            return ""  # /stop has said so
        how = summary.result()
        key = {"nothing": "nothing to compact", "outline": "outlined"}.get(how, "compacted")
        return ask.told(key, before=before, after=session.base_tokens)


def _named(ask: Asked, key: str, jobs: list[Job]) -> str:
    """A text that names jobs; "" where there are none."""
    return ask.told(key, jobs=", ".join(f"{job.id} ({job.line})" for job in jobs)) if jobs else ""


def _help(ask: Asked) -> str:
    names = [name for name, kind in COMMANDS.items() if kind.everybody or ask.owner]
    return "\n".join([*(ask.told(f"help {name}") for name in names), ask.told("help words")])


async def _prompt(ask: Asked) -> str:
    try:
        offers = await ask.actor.offers_tools()
    except BubblesError:
        offers = True  # which model it will be is not known now; most take tools
    tools = ask.told("tools", names=", ".join(ask.agent.tools)) if offers and ask.agent.tools else ask.told("no tools")
    return f"{ask.actor.session.prompt(tools=offers)}\n\n{tools}"


def _last_words(actor: Actor) -> dict[str, str] | None:
    """What a person said last: the message as its turn's end tells of it, and with it, where there was no answer, all that got none."""
    ended = last_of_a_person(actor)
    if ended is None:
        return None
    spoken = [m for m in ended["messages"] if not ends.is_of_end(str(m.get("id")))]
    if not spoken:
        return None
    last = spoken[-1]
    same = [m for m in spoken if (m.get("channel"), m.get("chat")) == (last.get("channel"), last.get("chat"))]
    said = [last] if ended.get("outcome") == "replied" else same
    text = "\n\n".join(str(m.get("text", "")) for m in said).strip()
    return {**last, "text": text} if text else None


def _said_again(id: str, words: dict[str, str], ask: Asked) -> Inbound:
    given = ask.inbound
    here = (words.get("channel"), words.get("chat")) == (given.channel, given.chat)
    return Inbound(
        id=id,
        at=time.time(),
        channel=str(words.get("channel")),
        chat=str(words.get("chat")),
        text=words["text"],
        thread=given.thread if here else str(words.get("thread", "")),
        message=given.message if here else str(words.get("message", "")),
        is_group=given.is_group if here else bool(words.get("is_group")),
        mentioned=True,
        sender=given.sender,
        session=ask.actor.session.key,
    )
