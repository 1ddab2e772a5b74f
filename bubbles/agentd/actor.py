"""One session awake: its open turn, the journal behind it, and the task that does what the turn says is next.

Serial by construction: one task a session, one action at a time. What is heard while it works goes into the
journal and the turn at once, and is acted on between two actions.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from bubbles import log
from bubbles.agentd.perform import Perform
from bubbles.errors import PASSING, BubblesError, DataError, ProtocolError, TryAgain
from bubbles.ids import safe
from bubbles.kernel.actions import AskApproval, AskModel, Close, Compact, RunTools, Say
from bubbles.kernel.events import (
    ApprovalGiven,
    Event,
    Header,
    ModelAsked,
    ModelFailed,
    Resumed,
    Stopped,
    UserSpoke,
    from_line,
    header,
    to_line,
)
from bubbles.kernel.turn import Turn
from bubbles.messages import Inbound
from bubbles.sessions.journal import Journal, Segment

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent
    from bubbles.agentd.session import Session

Finish = Callable[[], object]
BUG = "failed:bug"
RESUMES_MOST = 3  # a turn that was resumed this often in a row without getting on is given up


class Actor:
    """The life of one session in agentd."""

    def __init__(self, agent: Agent, session: Session) -> None:
        self.agent = agent
        self.session = session
        self.journal = Journal(agent.home.turns / f"{session.key}.jsonl")
        self.turn: Turn | None = None
        self.used_at = time.monotonic()
        self._lock = asyncio.Lock()  # intake's append and Close's truncation exclude each other
        self._later: deque[tuple[Inbound, Finish]] = deque()  # system messages, until the session is idle
        self._task: asyncio.Task[None] | None = None
        self._effect: asyncio.Task[None] | None = None
        self._perform = Perform(self)
        self._following: list[UserSpoke] = []  # words behind the open turn in the journal: the next one's
        self._bugs = 0

    # -- hearing ---------------------------------------------------------------------------------

    async def hear(self, inbound: Inbound, finish: Finish) -> None:
        """Take a message into custody: it is in the journal, on disk, before `finish` lets it leave its queue."""
        self.used_at = time.monotonic()
        async with self._lock:
            if self.turn is None:
                self.session.refresh()
            elif inbound.origin == "system" and not self._known(inbound.id):
                self._later.append((inbound, finish))
                return
            if not self._known(inbound.id):
                self._take_in(self.session.spoke(inbound, fresh=self.turn is None))
            try:
                await self.agent.commit.sync(self.journal.fd)  # also for one that is known: its first sync may have failed
                finish()
            finally:
                self.start()
        if self.turn is not None and self.turn.preempt and self._effect is not None:
            self._effect.cancel()

    def _take_in(self, spoke: UserSpoke) -> None:
        line = to_line(spoke, time.time())
        if self.turn is None:
            self.journal.append(header(spoke.id, self.session.key, spoke.origin), line)
            self.turn = self._new_turn(spoke.id, spoke.origin)
            log.event("turn.start", spoke.text[:200], session=self.session.key, turn=spoke.id)
        else:
            self.journal.append(line)
        if self._following:
            self._following.append(spoke)
        else:
            self.turn.apply(spoke)

    def _known(self, id: str) -> bool:
        return id in self.known or self.session.history.knows(id)

    def _new_turn(self, id: str, origin: str) -> Turn:
        return Turn(id, origin=origin, rules=self.session.rules(self.agent.tools))

    def start(self) -> None:
        """Act, if there is something to do."""
        if self.turn is not None and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=f"actor {self.session.key}")

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self._later) or (self._task is not None and not self._task.done())

    @property
    def messages(self) -> list[str]:
        """The ids of the messages in the open turn."""
        return [s.id for s in self.turn.spoken] if self.turn is not None else []

    @property
    def known(self) -> set[str]:
        """The ids of all messages that wait here for a turn's end."""
        return {*self.messages, *(s.id for s in self._following), *(i.id for i, _ in self._later)}

    # -- a restart -------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Read the journal that a killed agentd left and go on where it was. False if nothing was open.

        Raises Misconfigured where a newer program wrote it; the file is then left as it is.
        """
        segments = [s for s in self.journal.read() if not self.session.history.ended_turn(s.header.turn)][-2:]
        if not segments:
            self.journal.reset()
            return False
        try:
            events = [[from_line(line) for line in segment.lines] for segment in segments]
            if len(segments) == 2 and all(isinstance(event, UserSpoke) for event in events[1]):
                # The first was about to close, and has put the words that came too late behind itself.
                self.turn = self._fold(segments[0].header, events[0])
                self._following = [event for event in events[1] if isinstance(event, UserSpoke)]
            else:
                self.turn = self._fold(segments[-1].header, [*events[-1], Resumed()])
                self.journal.append(to_line(Resumed(), time.time()))
        except (DataError, ProtocolError) as error:
            self._give_up(segments[-1], f"its journal cannot be read: {error.text}")
        else:
            if self.turn.resumed_in_a_row > RESUMES_MOST:
                self._give_up(segments[-1], "it was resumed again and again and never got on")
        assert self.turn is not None
        log.event("turn.resume", f"after a restart: {self.turn.next()!r:.80}", session=self.session.key, turn=self.turn.id)
        return True

    def _fold(self, header: Header, events: list[Event]) -> Turn:
        turn = self._new_turn(header.turn, header.origin)
        for event in events:
            turn.apply(event)
        for spoke in turn.spoken:
            self.session.hear(spoke.text)
        return turn

    def _give_up(self, segment: Segment, why: str) -> None:
        """Set a turn aside whose journal leads nowhere. Its words enter history unanswered, and one notice says so."""
        turn = self._new_turn(segment.header.turn, segment.header.origin)
        log.event("turn.close", f"given up: {why}", priority="error", session=self.session.key, turn=turn.id)
        held = self.agent.home.turns / "held"
        held.mkdir(mode=0o700, exist_ok=True)
        (held / f"{safe(turn.id)}.jsonl").write_bytes(header(*segment.header) + b"".join(segment.lines))
        for event in _readable(segment.lines):
            turn.apply(event)
        turn.apply(ModelAsked(f"{turn.id}.0"))
        turn.apply(ModelFailed("gave_up"))
        self.turn = turn

    # -- acting ----------------------------------------------------------------------------------

    async def begin(self, *events: Event, sync: bool = False) -> None:
        """Journal and apply the events an action begins with. Raises OSError where the disk is full: then nothing began."""
        assert self.turn is not None
        self.journal.append(*(to_line(event, time.time()) for event in events))
        for event in events:
            self.turn.apply(event)
        if sync:
            await self._durable(self.journal.fd)

    async def record(self, event: Event, *, sync: bool = False) -> None:
        """Journal and apply an event. Where the disk is full this waits until it is not: what has happened is never forgotten."""
        assert self.turn is not None
        while True:
            try:
                self.journal.append(to_line(event, time.time()))
                break
            except OSError as error:
                self.agent.trouble(f"the journal of {self.session.key} cannot be written: {error.strerror}")
                await asyncio.sleep(self.agent.pause_s)
        self.turn.apply(event)
        if sync:
            await self._durable(self.journal.fd)

    async def _durable(self, fd: int) -> None:
        """Return when what was written is on the disk, however long the disk refuses: it stands in the file and in the turn already."""
        while True:
            try:
                return await self.agent.commit.sync(fd)
            except OSError as error:
                self.agent.trouble(f"what {self.session.key} wrote does not reach the disk: {error.strerror}")
                await asyncio.sleep(self.agent.pause_s)

    async def stop(self, by: str = "") -> bool:
        """Stop the running turn: quiet at once, its processes gone, whatever comes late fenced off. False if none runs."""
        if self.turn is None or self.turn.outcome:
            return False
        await self.record(Stopped(by), sync=True)
        if self._effect is not None:
            self._effect.cancel()
        return True

    async def _run(self) -> None:
        while self.turn is not None:
            with log.context(session=self.session.key, turn=self.turn.id):
                await self._step_safely(self.turn)
            while self.turn is None and self._later:
                await self._hear_later()

    async def _hear_later(self) -> None:
        """Take up the first message that waited for the session to be idle. Where that cannot be, it waits on."""
        inbound, finish = self._later.popleft()
        try:
            await self.hear(inbound, finish)
        except (OSError, BubblesError) as error:
            self._later.appendleft((inbound, finish))
            self.agent.trouble(f"{self.session.key} waits: {error}")
            await asyncio.sleep(self.agent.pause_s)

    async def _step_safely(self, turn: Turn) -> None:
        """One action. Trouble with the disk is waited out; a bug ends the turn and is told as no more than that."""
        try:
            if not turn.outcome:
                await self._perform.prepare(turn)
            await self._step(turn)
        except Exception as error:
            if isinstance(error, TryAgain) or (isinstance(error, OSError) and error.errno in PASSING):
                self.agent.trouble(f"{self.session.key} waits: {error}")
                await asyncio.sleep(self.agent.pause_s)
                return
            log.error("daemon.bug", "a bug in this turn")
            self._bugs += 1
            if self._bugs > 1:  # it came while closing: not again and again at full speed
                await asyncio.sleep(self.agent.pause_s)
            turn.outcome = turn.outcome or BUG

    async def _step(self, turn: Turn) -> None:
        match turn.next():
            case Close(outcome):
                await self._close(turn, outcome)
            case Say(n, text, to):
                await self._perform.say(turn, n, text, to)
            case AskApproval(call):
                await self.record(ApprovalGiven(call.id, False))
            case action:
                await self._interruptible(turn, action)

    async def _interruptible(self, turn: Turn, action: AskModel | RunTools | Compact) -> None:
        """Do something that `stop`, or words under `preempt`, may cancel. The limit is on doing, not on hearing."""
        async with self.agent.performing:
            if turn.next() != action:
                return
            self._effect = asyncio.create_task(self._perform.effect(turn, action))
            try:
                await asyncio.wait({self._effect})
                if not self._effect.cancelled():
                    self._effect.result()
            except asyncio.CancelledError:
                self._effect.cancel()
                raise
            finally:
                self._effect = None

    # -- closing ---------------------------------------------------------------------------------

    async def _close(self, turn: Turn, outcome: str) -> None:
        notice = await self._perform.apologise(turn, outcome)
        async with self._lock:
            self._carry(turn)
            late = {spoke.id for spoke in self._following}
            shown = [spoke for spoke in turn.spoken if spoke.id not in late]
            if outcome != "silent":
                self.session.close_turn(turn, outcome, shown, self._perform.said, notice, time.time())
                await self._durable(self.session.history.fd)
            log.event("turn.close", outcome)
            self._tell_jobs(turn, shown, outcome)
            self._next_turn()
        for spoke in shown:
            body = ending(turn, self._perform.said, spoke.id, outcome, notice)
            self.agent.outgoing.waiting.end(spoke.id, {**body, "remedy": self._perform.remedy} if self._perform.remedy else body)
        self.agent.outgoing.show(shown, turn.id, "end", {"outcome": outcome})
        self._perform.forget()

    def _carry(self, turn: Turn) -> None:
        """Words too late for this turn are the next one's: they stand behind it in the journal before it ends."""
        if turn.waiting and not self._following and turn.outcome != BUG:
            first = turn.waiting[0]
            lines = [to_line(spoke, time.time()) for spoke in turn.waiting]
            self.journal.append(header(first.id, self.session.key, first.origin), *lines)
            self._following = list(turn.waiting)

    def _next_turn(self) -> None:
        following, self._following = self._following, []
        self._bugs = 0
        if not following:
            self.turn = None
            self.journal.reset()
            return
        self.turn = self._new_turn(following[0].id, following[0].origin)
        for spoke in following:
            self.turn.apply(spoke)

    def _tell_jobs(self, turn: Turn, spoken: list[UserSpoke], outcome: str) -> None:
        """cron is one more channel: what became of a job goes back to it."""
        for spoke in spoken:
            if spoke.job:
                self.agent.outgoing.outcome(f"{turn.id}.outcome", spoke, outcome, session=self.session.key, turn=turn.id)

    # -- from outside ----------------------------------------------------------------------------

    async def compact(self) -> str:
        """Summarise the past now; see Perform.compact. A turn that runs meanwhile goes on."""
        return await self._perform.compact(keep_tokens=self.session.base_tokens // 4)

    async def offers_tools(self) -> bool:
        return await self._perform.offers_tools()

    def abandon(self) -> None:
        """The daemon ends: leave everything as a SIGKILL would."""
        for task in (self._effect, self._task):
            if task is not None:
                task.cancel()

    def close(self) -> None:
        """Let go of the files of an idle session."""
        self.journal.close()
        self.session.close()


def ending(turn: Turn, said: dict[str, int], message: str, outcome: str, notice: str) -> dict[str, str]:
    """What whoever waits for a message is told at the end: the reply that covers it, or why there is none."""
    text = turn.says[said.get(message, -1)].text if turn.says else ""
    return {"outcome": outcome, "text": text if outcome == "replied" else notice, "turn": turn.id}


def _readable(lines: list[bytes]) -> list[UserSpoke]:
    found = []
    for line in lines:
        try:
            event = from_line(line)
        except (DataError, ProtocolError):
            continue
        if isinstance(event, UserSpoke):
            found.append(event)
    return found
