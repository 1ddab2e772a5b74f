"""One session awake: its open turn, the journal behind it, and the task that does what the turn says is next.

Serial by construction: one task a session, one action at a time. What is heard while it works goes into the
journal and the turn at once, and is acted on between two actions.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bubbles import log
from bubbles.agentd import ends, posting
from bubbles.agentd.outgoing import has_queue
from bubbles.agentd.perform import Perform
from bubbles.errors import PASSING, DataError, ProtocolError, TryAgain
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
from bubbles.kernel.turn import Turn, last_of_each_address
from bubbles.messages import Inbound
from bubbles.sessions.journal import Journal, Segment

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent
    from bubbles.agentd.session import Session

Finish = Callable[[], object]
BUG = "failed:bug"
_UNREADABLE = b"a header that cannot be read\n"
_TOLD_MOST, _STEP_MOST = 200, 80  # characters of a message, and of a step, that the log has
RESUMES_MOST = 3  # a turn that was resumed this often in a row without getting on is given up


@dataclass(frozen=True, slots=True)
class Left:
    """What a turn that is in history has to hand on: its last words, the notice why there are none, and what became of jobs."""

    turn: Turn
    says: list[Say]
    notice: str
    shown: list[UserSpoke]
    outcome: str


class Actor:
    """The life of one session in agentd."""

    def __init__(self, agent: Agent, session: Session) -> None:
        self.agent = agent
        self.session = session
        self.journal = Journal(agent.home.turns / f"{session.key}.jsonl")
        self.turn: Turn | None = None
        self.used_at = time.monotonic()
        self.lock = asyncio.Lock()  # words on their way in, and the close of a turn, exclude each other
        self._task: asyncio.Task[None] | None = None
        self._effect: asyncio.Task[None] | None = None
        self._perform = Perform(self)
        self._left: list[Left] = []  # of turns that were in history when we were killed
        self._following: list[UserSpoke] = []  # words behind the open turn in the journal: the next one's
        self._bugs = 0
        self._users = 0

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """While this lasts, the session is not let go of: somebody is about to write into its files."""
        self.used_at = time.monotonic()
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1

    # -- hearing ---------------------------------------------------------------------------------

    async def hear(self, inbound: Inbound, finish: Finish, is_next: Callable[[], bool] = lambda: True) -> str:
        """Take a message into custody: it is in the journal, on disk, before `finish` lets it leave its queue.

        Returns "", or why it was not taken: "full", until the model was shown some words; "busy", until the session is idle; "behind", where
        it is not its turn (`is_next`) when all that came before it was heard.
        """
        with self.in_use():
            async with self.lock:
                why = await self._hear(inbound, finish) if is_next() else "behind"
        if self.turn is not None and self.turn.preempt and self._effect is not None:
            self._effect.cancel()
        return why

    async def _hear(self, inbound: Inbound, finish: Finish) -> str:
        if inbound.origin == "system" and self.agent.jobs.is_seen(inbound.id):
            finish()
            return ""
        known = self._known(inbound.id)
        if inbound.edit_of and not known and not self._is_unanswered(inbound.edit_of):
            await self._overhear(inbound, finish)  # what was answered, or never asked, is no new question
            return ""
        if self.turn is None:
            self.session.refresh()
        elif not known and (why := self._keeps_out(inbound)):
            return why
        if not known:
            self._take_in(self.session.spoke(inbound, fresh=self.turn is None))
        try:
            await self.agent.commit.sync(self.journal.fd)  # also for one that is known: its first sync may have failed
            finish()
        finally:
            self.start()
        return ""

    def _keeps_out(self, inbound: Inbound) -> str:
        """Why a message may not join the open turn. People's words may, as many as the limit allows; but what is said in a group is not for
        those outside it, nor theirs for the group, and one answer goes to all whose words are in a turn."""
        spoken = [*(self.turn.spoken if self.turn is not None else ()), *self._following]
        answered = [one for one in spoken if one.origin == "user" or has_queue(one)]  # the end of a job is answered where it began
        mixed = any((one.is_group or inbound.is_group) and one.address != inbound.address for one in answered)
        if inbound.origin == "system" or mixed:
            return "busy"
        return "" if self.waiting < self.session.limits.queued else "full"

    async def overhear(self, inbound: Inbound, finish: Finish) -> None:
        """Keep words that wake nobody: they are in the history, on disk, before `finish` lets them leave their queue."""
        with self.in_use():
            async with self.lock:
                await self._overhear(inbound, finish)

    async def _overhear(self, inbound: Inbound, finish: Finish) -> None:
        if not self._known(inbound.id):
            self.session.refresh()
            self.session.overhear(inbound)
        await self.agent.commit.sync(self.session.history.fd)
        finish()

    def _is_unanswered(self, message: str) -> bool:
        """Whether a message, by its platform's id, is in the open turn or waits behind it."""
        spoken = [*(self.turn.spoken if self.turn is not None else ()), *self._following]
        return any(spoke.message == message for spoke in spoken)

    def _take_in(self, spoke: UserSpoke) -> None:
        now = time.time()
        turn = self.turn or self._new_turn(spoke.id, spoke.origin)
        heard = [] if self._following else [one for one in self.session.heard(now) if not turn.knows(one.id)]
        events: list[Event] = [*heard, spoke]
        lines = [to_line(event, now) for event in events]
        if self.turn is None:
            self.journal.append(header(spoke.id, self.session.key, spoke.origin), *lines)
            self.turn = turn
            about = {"message": spoke.id, "channel": spoke.address.channel}
            log.event("turn.start", log.clipped(spoke.text, _TOLD_MOST), session=self.session.key, turn=spoke.id, **about)
        else:
            self.journal.append(*lines)
        for one in heard:
            turn.apply(one)
        if self._following:
            self._following.append(spoke)
        else:
            turn.apply(spoke)
            self.agent.outgoing.tell([spoke], turn.id, "state", {"now": "begin"})

    def _known(self, id: str) -> bool:
        return id in self.known or self.session.history.knows(id)

    def _new_turn(self, id: str, origin: str) -> Turn:
        return Turn(id, origin=origin, rules=self.session.rules(self.agent.tools))

    def start(self) -> None:
        """Act, if there is something to do."""
        if (self.turn is not None or self._left) and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(), name=f"actor {self.session.key}")

    @property
    def busy(self) -> bool:
        return self.turn is not None or bool(self._left or self._users) or (self._task is not None and not self._task.done())

    @property
    def waiting(self) -> int:
        """How many messages were taken in and not shown to the model yet."""
        return (len(self.turn.waiting) if self.turn is not None else 0) + len(self._following)

    @property
    def messages(self) -> list[str]:
        """The ids of the messages in the open turn."""
        return [s.id for s in self.turn.spoken] if self.turn is not None else []

    @property
    def known(self) -> set[str]:
        """The ids of all messages that wait here for a turn's end."""
        return {*self.messages, *(s.id for s in self._following)}

    # -- a restart -------------------------------------------------------------------------------

    def resume(self) -> bool:
        """Read the journal that a killed agentd left and go on where it was. False if nothing was open.

        Raises Misconfigured where a newer program wrote it; the file is then left as it is.
        """
        segments = [*self.journal.read()]
        if self.journal.stray:
            segments.insert(0, self._headless(self.journal.stray))
        over = max((n for n, segment in enumerate(segments, 1) if self.session.history.ended_turn(segment.header.turn)), default=0)
        self._left = [self._left_by(segments[over - 1])] if over else []  # those before it had handed on all when it began
        segments = segments[over:][-2:]
        if not segments:
            if not self._left:
                self.journal.reset()
            return False
        try:
            events = [[from_line(line) for line in segment.lines] for segment in segments]
            if len(segments) == 2 and all(isinstance(event, UserSpoke) for event in events[1]):
                # The first was about to close, and has put the words that came too late behind itself.
                self.turn = self._fold(segments[0].header, events[0])
                self._following = [event for event in events[1] if isinstance(event, UserSpoke)]
                self._carry(self.turn)  # the write may have been cut short between them
            else:
                self.turn = self._fold(segments[-1].header, events[-1])
                resumed: list[Event] = [*posting.settled(self.agent, self.session.key, self.turn), Resumed()]
                for event in resumed:
                    self.turn.apply(event)
                    self.journal.append(to_line(event, time.time()))
        except (DataError, ProtocolError) as error:
            self._give_up(segments[-1], f"its journal cannot be read: {error.text}")
        else:
            if self.turn.resumed_in_a_row > RESUMES_MOST:
                self._give_up(segments[-1], "it was resumed again and again and never got on")
        assert self.turn is not None
        log.event("turn.resume", f"after a restart: {log.clipped(repr(self.turn.next()), _STEP_MOST)}", session=self.session.key, turn=self.turn.id)
        return True

    def _headless(self, lines: list[bytes]) -> Segment:
        """A turn whose header cannot be read: one that will be given up under the id of the first words in it."""
        first = next((spoke.id for spoke in _readable(lines)), f"{self.session.key}-without-words")
        return Segment(Header(first, self.session.key, "user"), [_UNREADABLE, *lines])

    def _left_by(self, segment: Segment) -> Left:
        """What a turn that is in history may not have handed on, if it was killed between the two.

        Of the journal only the words that were spoken are sure to have outlasted a power cut: what was answered is in the history.
        """
        end = self.session.history.end_of_turn(segment.header.turn) or {}
        try:
            turn = self._fold(segment.header, [from_line(line) for line in segment.lines])
        except (DataError, ProtocolError):  # it was given up: all that it left is the notice
            turn = self._new_turn(*segment.header[::2])
            for event in _readable(segment.lines):
                turn.apply(event)
        said = {m.get("id"): m.get("said") for m in end.get("messages", ())}
        shown = [spoke for spoke in turn.spoken if spoke.id in said]
        answers = [[spoke for spoke in shown if said[spoke.id] == n] for n in range(len(end.get("says", ())))]
        says = [Say(n, text, last_of_each_address(answers[n])) for n, text in enumerate(end.get("says", ()))]
        return Left(turn, says, str(end.get("notice", "")), shown, str(end.get("outcome", "")))

    def _fold(self, header: Header, events: list[Event]) -> Turn:
        turn = self._new_turn(header.turn, header.origin)
        for event in events:
            turn.apply(event)
        for spoke in turn.spoken:
            if not ends.is_end(spoke):
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

    async def durable(self) -> None:
        """Return when all that was journalled is on the disk."""
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
        if self._left:
            await self._hand_on_what_is_left()
        if self.turn is not None and self.turn.resumed_in_a_row:
            self.agent.outgoing.tell(self.turn.spoken, self.turn.id, "state", {"now": "begin"})
        while self.turn is not None:
            with log.context(session=self.session.key, turn=self.turn.id):
                await self._step_safely(self.turn)
            self.agent.intake.reopen(self.session.key, idle=self.turn is None)

    async def _step_safely(self, turn: Turn) -> None:
        """One action. Trouble with the disk is waited out; a bug ends the turn and is told as no more than that."""
        try:
            if not turn.outcome:
                await self._cancellable(self._perform.prepare(turn))
            await self._step(turn)
        except Exception as error:  # a bug ends this turn, and no other session's
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
            case Say() if turn.outcome:
                await self._close(turn, turn.outcome)  # the last words are in history before anybody sees them
            case Say() as say:
                await self._perform.say(turn, say)
            case AskApproval(call):
                await self.record(ApprovalGiven(call.id, False))
            case action:
                await self._interruptible(turn, action)

    async def _interruptible(self, turn: Turn, action: AskModel | RunTools | Compact) -> None:
        """Do something that `stop`, or words under `preempt`, may cancel. The limit is on doing, not on hearing."""

        async def perform() -> None:
            async with self.agent.performing:
                await self._perform.effect(turn, action)

        await self._cancellable(perform())

    async def _cancellable(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something, or as much of it as is done when somebody cancels it."""
        self._effect = asyncio.create_task(work)
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
        notice = self._perform.notice(turn, outcome)
        async with self.lock:
            self._carry(turn)
            late = {spoke.id for spoke in self._following}
            shown = [spoke for spoke in turn.spoken if spoke.id not in late]
            last = [(say, self._perform.cover(turn, say.n)) for say in turn.unsaid]
            if outcome != "silent":
                self.session.close_turn(turn, outcome, shown, self._perform.said, notice, time.time())
                await self._durable(self.session.history.fd)
            await self._hand_on(Left(turn, turn.unsaid, notice, shown, outcome))
            if not outcome.startswith("failed:"):
                self.agent.jobs.settle_shown(turn, self.session.key)
            for say, covered in last:
                self._perform.show_said(turn, say, covered)
            log.event("turn.close", outcome, limit=turn.limit, steps=turn.iterations)
            self._tell_ending(turn, shown, outcome, notice)
            await self._next_turn()

    def _tell_ending(self, turn: Turn, shown: list[UserSpoke], outcome: str, notice: str) -> None:
        for spoke in shown:
            body = ending(turn, self._perform.said, spoke.id, outcome, notice)
            self.agent.outgoing.waiting.end(spoke.id, {**body, "remedy": self._perform.remedy} if self._perform.remedy else body)
        self.agent.outgoing.show(shown, turn.id, "end", {"outcome": outcome})
        self.agent.outgoing.tell(shown, turn.id, "state", {"now": "end"})
        self._perform.forget()

    async def _hand_on(self, left: Left) -> None:
        """Put what a turn that is in history leaves to others where they find it. However long the disk refuses: it is closed once."""
        while True:
            try:
                await self._perform.hand_on(left.turn, left.says, left.notice)
                return self._tell_jobs(left.turn, left.shown, left.outcome)
            except (TryAgain, OSError) as error:
                self.agent.trouble(f"what {self.session.key} says cannot be sent on: {error}")
                await asyncio.sleep(self.agent.pause_s)

    async def _hand_on_what_is_left(self) -> None:
        while self._left:
            try:
                await self._hand_on(self._left[0])
            except Exception:  # a bug here must not keep the session from its next turn
                log.error("daemon.bug", "the last words of a turn could not be sent on; they stand in its history", session=self.session.key)
            del self._left[0]
        async with self.lock:
            if self.turn is None:
                await self._empty_journal()

    def _carry(self, turn: Turn) -> None:
        """Words too late for this turn are the next one's: they stand behind it in the journal before it ends."""
        if turn.outcome == BUG:
            return
        behind = {spoke.id for spoke in self._following}
        late = [spoke for spoke in turn.waiting if spoke.id not in behind]
        if late:
            head = [] if behind else [header(late[0].id, self.session.key, late[0].origin)]
            self.journal.append(*head, *(to_line(spoke, time.time()) for spoke in late))
            self._following += late

    async def _next_turn(self) -> None:
        """Begin the turn of the words that came too late for the last, with what was overheard before them; or be idle."""
        self._bugs = 0
        if not self._following:
            self.turn = None
            await self._empty_journal()
            return
        first = self._following[0]
        turn = self._new_turn(first.id, first.origin)
        for event in [*self._overheard(), *self._following]:
            turn.apply(event)
        self.agent.outgoing.tell(self._following, turn.id, "state", {"now": "begin"})
        self.turn, self._following = turn, []

    def _overheard(self) -> list[Event]:
        """What was overheard and not shown yet, journalled; none of it where the disk refuses: then it waits for the next words."""
        now = time.time()
        heard: list[Event] = [*self.session.heard(now)]
        if heard:
            try:
                self.journal.append(*(to_line(one, now) for one in heard))
            except OSError:
                return []
        return heard

    async def _empty_journal(self) -> None:
        """Forget the turns in it. A disk may take its time over that, and nothing depends on it: they are in history."""
        try:
            await self.agent.commit.sync(self.journal.reset)
        except OSError as error:
            self.agent.trouble(f"the journal of {self.session.key} cannot be emptied: {error.strerror}")

    def _tell_jobs(self, turn: Turn, spoken: list[UserSpoke], outcome: str) -> None:
        """cron is one more channel: what became of a job goes back to it."""
        for spoke in spoken:
            if spoke.job:
                self.agent.outgoing.outcome(f"{turn.id}.outcome", spoke, outcome, session=self.session.key, turn=turn.id)
                self.agent.alerts.job_ended(spoke.job, outcome)

    # -- from outside ----------------------------------------------------------------------------

    async def compact(self) -> str:
        """Summarise the past now; see Perform.compact. A turn that runs meanwhile goes on."""
        with self.in_use():
            return await self._perform.compact(keep_tokens=self.session.base_tokens // 4)

    async def begin_anew(self) -> None:
        """Send nothing any more of what was said so far; it stays in history. A turn that runs meanwhile goes on, and is the first of what is new."""
        with self.in_use():
            self.session.history.begin_anew(time.time())
            self.session.forget_prompt()
            await self.agent.commit.sync(self.session.history.fd)

    async def offers_tools(self) -> bool:
        with self.in_use():
            return await self._perform.offers_tools()

    def abandon(self) -> None:
        """The daemon ends: leave everything as a SIGKILL would."""
        self._perform.compaction.close()
        for task in (self._effect, self._task):
            if task is not None:
                task.cancel()

    def close(self) -> None:
        """Let go of the files of an idle session."""
        self._perform.compaction.close()
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
