"""Commands in the background: a turn begins one and goes on; it ends beside that turn or long after it.

    HOME/jobs/KEY/jN.json   the record: there, synced, before the command begins; replaced when it has ended, and when that was told
    HOME/jobs/KEY/jN.out    what it prints, as it comes

The order is: record, command, end noted, message put, record closed. So whatever kills us, the successor finds a record that is not closed,
and does what is left: a job without an end is lost with us, and its loss is an end like any other. The message has the job's own id, and
its queue takes it once. It does not know what a model makes of all this.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbles import log
from bubbles.agentd import ends
from bubbles.agentd.job import Job, boot, loaded
from bubbles.agentd.pages import page
from bubbles.errors import BubblesError, Refused, ToolError
from bubbles.kernel.clean import clean
from bubbles.kernel.turn import Turn
from bubbles.messages import to_dict
from bubbles.sandboxes import Limits, Outcome, Sandbox
from bubbles.spool import Queue

if TYPE_CHECKING:
    from bubbles.agentd.agent import Agent

_GRACE_S = 0.1  # within which a command that may not be run says so
_KEEP_BYTES = 4096  # of its output in memory, which nobody reads
_STOP_S = 10.0  # how long is waited for the end of what is stopped
_CHAIN_MOST = 50  # jobs that begin each other without a word of a person's
_KEPT, _KEPT_BYTES = 50, 256 << 20  # ended jobs of a session, and the bytes of their outputs
_LATELY_S, _LATELY = 1800.0, 5  # which ended ones the ledger names
_FRAME_TOKENS = 80  # of a result, for what we say about it
_SEEN_MOST = 1000


class _Run:
    """A job that this process runs."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.command: asyncio.Task[Outcome] | None = None
        self.stopped = ""  # by what
        self.quiet = False  # whoever stopped it tells of it
        self.size = 0
        self.closed = asyncio.Event()
        self._fd = -1
        self._failed = ""

    def open(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def take(self, part: bytes) -> None:
        """Keep what it prints. A disk that refuses it loses that part, and the command goes on."""
        self.size += len(part)
        try:
            while part:
                part = part[os.write(self._fd, part) :]
        except OSError as error:
            self._failed = f"some of its output could not be kept: {error.strerror}"

    def sync(self) -> None:
        """Have its output on the disk. A disk that refuses keeps no end back."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def note(self, output_bytes: int) -> None:
        """How it ended, into the job."""
        job = self.job
        job.ended_at = time.time()
        if self.command is None or self.command.cancelled():
            job.how, job.note = "stopped", self.stopped
        elif (error := self.command.exception()) is not None:
            job.how, job.note = "failed", error.text if isinstance(error, BubblesError) else "it failed inside; the log has the details"
            if not isinstance(error, BubblesError):
                log.error("daemon.bug", f"the job {job.id} failed inside", error=error, session=job.session)
        else:
            self._note(self.command.result(), output_bytes)
        job.note = "; ".join(filter(None, (job.note, self._failed)))

    def _note(self, outcome: Outcome, output_bytes: int) -> None:
        job = self.job
        job.exit, job.signal, job.note = outcome.exit, outcome.signal, outcome.note
        job.limits = list(outcome.limits_active)
        if outcome.timed_out:
            job.how = "timeout"
        elif outcome.oom:
            job.how = "oom"
        elif self.size > output_bytes or (self.size == output_bytes and outcome.exit != 0):
            job.how = "output"
        else:
            job.how = "signal" if outcome.signal is not None else "unknown" if outcome.exit is None else "exit"


class Jobs:
    """The jobs of one agent's sessions."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._queue = Queue(agent.home.inbound(ends.QUEUE))
        self._known: dict[str, dict[str, Job]] = {}  # by session, as far as somebody asked
        self._runs: dict[tuple[str, str], _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: dict[str, None] = {}  # messages of ends that their session knows

    # -- what others ask -------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a job runs, or its end is not told yet."""
        return bool(self._tasks)

    def running(self, session: str) -> list[Job]:
        """Those that have not ended."""
        return [run.job for (key, _), run in self._runs.items() if key == session and not run.job.how]

    def of(self, session: str) -> dict[str, Job]:
        """All jobs of a session that are remembered, by id."""
        if session not in self._known:
            jobs, wrong = loaded(self._agent.home.background / session)
            for what in wrong:
                log.event("daemon.warning", f"a job's record cannot be used: {what}", priority="warning", session=session)
            self._known[session] = {job.id: job for job in jobs}
        return self._known[session]

    def forget(self, session: str) -> None:
        """The session is let go of; what is on the disk is read again when somebody asks."""
        self._known.pop(session, None)

    def within(self, session: str, turn: Turn, sandbox: Sandbox) -> Desk:
        """The jobs as the tools of a turn see them."""
        return Desk(self, session, turn, sandbox)

    def output(self, job: Job) -> Path:
        return self._agent.home.background / job.session / f"{job.id}.out"

    def ledger(self, session: str) -> str:
        """A line on what runs in the background and what ended lately; "" where nothing does. It stands behind a request and is kept nowhere."""
        if not self.of(session):
            return ""
        now = time.time()
        lately = [job for job in self.of(session).values() if job.told and not job.forgotten and now - job.ended_at < _LATELY_S]
        said = [f"{job.id} runs for {job.lasted(now)}: {job.line}" for job in self.running(session)]
        said += [f"{job.id} {job.ending}: {job.line}" for job in lately[-_LATELY:]]
        return f"[Background jobs now (job_result reads their output): {'; '.join(said)}]" if said else ""

    def began(self, session: str, messages: Iterable[str]) -> list[Job]:
        """The jobs of whose ends these messages tell."""
        ids = set(messages)
        return [job for job in self.of(session).values() if job.message in ids]

    # -- beginning -------------------------------------------------------------------------------

    async def start(self, job: Job, sandbox: Sandbox, cwd: Path | None) -> Job:
        """Begin a job, whose number is given here. Raises ToolError where it may not begin, OSError or TryAgain where the disk refuses.

        Once begun it goes on, whatever becomes of whoever asked.
        """
        self._check(job)
        known = self.of(job.session)
        job.number = max((each.number for each in known.values()), default=0) + 1
        job.boot = boot()
        self._make_room(job.session)
        run = self._runs[job.session, job.id] = _Run(job)
        known[job.id] = job
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begun.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever asked may be gone
        self._spawn(self._life(run, sandbox, cwd, begun), f"job {job.session} {job.id}")
        await asyncio.shield(begun)
        return job

    def _check(self, job: Job) -> None:
        most, running = self._agent.settings.tools.exec.jobs, self.running(job.session)
        if not most:
            raise Refused("there is no background work here: tools.exec.jobs is 0")
        if job.chain > _CHAIN_MOST:
            raise Refused(f"{_CHAIN_MOST} jobs have begun one after the other without a person's word; tell what there is, and wait for one")
        if len(running) >= most:
            named = ", ".join(each.id for each in running)
            raise ToolError(f"{len(running)} jobs run already, the most at once: {named}", remedy="wait for one (job_result) or end one (job_stop)")

    async def _life(self, run: _Run, sandbox: Sandbox, cwd: Path | None, begun: asyncio.Future[None]) -> None:
        job = run.job
        try:
            await self._agent.commit.sync(partial(self._begin, run))
            if not run.stopped:
                await self._begun(run, sandbox, cwd)
        except (OSError, BubblesError) as error:
            await self._unbegun(run)
            begun.set_exception(error)
            return
        begun.set_result(None)
        log.event("job.start", job.command, session=job.session, turn=job.turn, job=job.id)
        if run.command is not None:
            await asyncio.wait({run.command})
        run.note(self._agent.settings.tools.exec.output_bytes)
        await self._settle(job, run)

    def _begin(self, run: _Run) -> None:
        job = run.job
        job.store(self._record(job))
        run.open(self.output(job))

    async def _begun(self, run: _Run, sandbox: Sandbox, cwd: Path | None) -> None:
        """Start the command. Raises what it says at once, if it says so."""
        job = run.job
        limits = Limits(job.timeout_s, self._agent.settings.tools.exec.output_bytes, _KEEP_BYTES)
        run.command = asyncio.create_task(sandbox.run(job.command, limits, cwd=cwd, output=run.take))
        await asyncio.wait({run.command}, timeout=_GRACE_S)
        if run.command.done() and not run.command.cancelled() and isinstance(error := run.command.exception(), BubblesError | OSError):
            raise error

    async def _unbegun(self, run: _Run) -> None:
        """Nothing was begun: it is as if nobody had asked."""
        run.sync()
        self._drop(run.job)
        del self._runs[run.job.session, run.job.id]
        run.closed.set()

    # -- ending ----------------------------------------------------------------------------------

    async def _settle(self, job: Job, run: _Run | None = None) -> None:
        """Note the end, tell of it, note that: each on the disk before the next, and each may be done again."""
        log.event("job.end", f"{job.id} {job.ending}", session=job.session, turn=job.turn, job=job.id, limits=" ".join(job.limits))
        if run is not None:
            await self._agent.commit.sync(run.sync)
            job.told = run.quiet
        await self._surely(partial(job.store, self._record(job)), job)
        if not job.told:
            if self._agent.home.session(job.session).is_dir():  # else its owner has removed it
                await self._surely(partial(self._put, job), job)
            job.told = True
            await self._surely(partial(job.store, self._record(job)), job)
        if run is not None:
            del self._runs[job.session, job.id]
            run.closed.set()
        self._agent.intake.ring()

    def _put(self, job: Job) -> None:
        self._queue.put(job.message, to_dict(ends.message(job, self.output(job))))

    async def _surely(self, what: Callable[[], object], job: Job) -> None:
        """Do it, however long the disk refuses."""
        while True:
            try:
                return await self._agent.commit.sync(what)
            except (OSError, BubblesError) as error:
                self._agent.trouble(f"the end of the job {job.id} of {job.session} cannot be noted: {error}")
                await asyncio.sleep(self._agent.pause_s)

    async def stop(self, jobs: Iterable[Job], why: str, *, by: str = "", quiet: bool = False, wakes: bool = True) -> list[Job]:
        """End jobs that run, with all that they started; those that were ended by this. `why` is told as "was stopped (why)".

        `quiet`: nobody is told, for who asked tells it; `wakes` False: it is told with the next words.
        """
        runs = [run for job in jobs if (run := self._runs.get((job.session, job.id))) is not None and not job.how and not run.stopped]
        for run in runs:
            run.stopped, run.quiet, run.job.by, run.job.wakes = why, quiet, by, wakes
            if run.command is not None:
                run.command.cancel()
        await self.wait((run.job for run in runs), _STOP_S)
        return [run.job for run in runs]

    async def begin_anew(self, session: str, by: str) -> list[Job]:
        """The session begins anew: its jobs are stopped and not spoken of any more. Those that `by` stopped, also when it comes a second time."""
        running = self.running(session)
        await self.stop(running, "by /new", by=by, quiet=True)
        known = self.of(session).values()
        for job in known:
            if job.told and not job.forgotten:
                job.forgotten = True
                await self._agent.commit.sync(partial(job.store, self._record(job)))
        return [job for job in known if job.by == by]

    async def wait(self, jobs: Iterable[Job], s: float) -> None:
        """Until all of them have ended and that is told, or so many seconds have passed."""
        waits = [asyncio.ensure_future(run.closed.wait()) for job in jobs if (run := self._runs.get((job.session, job.id))) is not None]
        if waits:
            try:
                await asyncio.wait(waits, timeout=s)
            finally:
                for each in waits:
                    each.cancel()

    # -- what a session knows already --------------------------------------------------------------

    def settle_shown(self, turn: Turn, session: str) -> None:
        """A turn that is in the history has shown some ends to the model, because it asked: nothing has to wake it for them again."""
        for id in ends.shown(turn.messages):
            job = self.of(session).get(id)
            if job is not None and job.told:
                self._seen[job.message] = None
                with contextlib.suppress(OSError, BubblesError):
                    self._queue.drop(job.message)
                self._agent.intake.dropped(ends.QUEUE, job.message)
        while len(self._seen) > _SEEN_MOST:
            del self._seen[next(iter(self._seen))]

    def is_seen(self, message: str) -> bool:
        """Whether the end that a message tells of was shown, and the message was on its way in meanwhile."""
        return message in self._seen

    # -- a restart -------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take up what a killed agentd left: its jobs are lost, and of each end that was not told it is told now."""
        for session in _directories(self._agent.home.background):
            left = [job for job in self.of(session).values() if not job.told]
            for job in left:
                job.lose(time.time())
                self._spawn(self._settle(job), f"job {job.session} {job.id}")
            if not left:
                self.forget(session)

    def close(self) -> None:
        """The daemon ends: leave all as a SIGKILL would."""
        for task in (*self._tasks, *(run.command for run in self._runs.values() if run.command is not None)):
            task.cancel()

    def _spawn(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("daemon.bug", "a bug with a job; the next start tells what is left of it", error=error)

    # -- files -----------------------------------------------------------------------------------

    def _record(self, job: Job) -> Path:
        return self._agent.home.background / job.session / f"{job.id}.json"

    def _make_room(self, session: str) -> None:
        """Forget the oldest jobs that are over, where there are many or their outputs are large."""
        room = _KEPT_BYTES
        over = [job for job in reversed(self._known[session].values()) if job.told]
        for place, job in enumerate(over):
            room -= _size(self.output(job))
            if place >= _KEPT or (room < 0 and place):
                self._drop(job)

    def _drop(self, job: Job) -> None:
        for path in (self.output(job), self._record(job)):  # the record last: without one nobody knows of the other
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        self._known.get(job.session, {}).pop(job.id, None)


class Desk:
    """The jobs of one session, as the tools of one of its turns may use them."""

    def __init__(self, jobs: Jobs, session: str, turn: Turn, sandbox: Sandbox) -> None:
        self._jobs, self._session, self._turn, self._sandbox = jobs, session, turn, sandbox

    async def start(self, command: str, cwd: Path | None, timeout_s: float) -> str:
        """Begin a command; its job's id. Raises ToolError where it may not."""
        turn, spoke = self._turn, (self._turn.to or tuple(self._turn.spoken))[-1]
        before = self._jobs.began(self._session, (spoke.id for spoke in turn.spoken))
        job = Job(
            self._session,
            0,
            command,
            time.time(),
            timeout_s,
            spoke.address,
            is_group=any(each.is_group for each in turn.spoken),
            owner=any(each.owner for each in turn.spoken),
            awaited=turn.origin == "user" or any(each.awaited for each in before),
            chain=0 if turn.origin == "user" else max((each.chain + 1 for each in before), default=0),
            turn=turn.id,
        )
        try:
            return (await self._jobs.start(job, self._sandbox, cwd)).id
        except ToolError:
            raise
        except BubblesError as error:
            raise ToolError(error.text, remedy=error.remedy) from error

    async def result(self, id: str, offset: int, wait_s: float, most_tokens: int) -> str:
        """What it printed from byte `offset` on, after waiting for its end. Raises ToolError where there is no such job."""
        job = self._job(id)
        await self._jobs.wait([job], wait_s)
        found = page(self._jobs.output(job), offset, max(most_tokens - _FRAME_TOKENS, most_tokens // 2), grows=not job.told)
        text = clean(found.text) or ("(nothing)" if job.told else "(nothing yet)")
        more = f"[more: offset={found.end}]" if found.end < found.size or not job.told else ""
        return "\n".join(filter(None, [ends.head(job, time.time(), f"bytes {found.start} to {found.end} of {found.size}"), text.rstrip("\n"), more]))

    async def stop(self, id: str) -> str:
        """End it. Raises ToolError where there is no such job."""
        job = self._job(id)
        was = "it had ended already" if job.how else "with all that it had started"
        await self._jobs.stop([job], "by the assistant")
        if not job.told:
            raise ToolError(f"{job.id} has not ended yet", remedy="look again with job_result")
        return ends.head(job, time.time(), was)

    def _job(self, id: str) -> Job:
        known = self._jobs.of(self._session)
        if (job := known.get(id)) is None:
            raise ToolError(f"there is no job {id!r}; there are: {', '.join(known) or 'none'}")
        return job


def _directories(path: Path) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as found:
        return sorted(entry.name for entry in found if entry.is_dir(follow_symlinks=False))
    return []


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
