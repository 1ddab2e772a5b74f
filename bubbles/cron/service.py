"""Sends what is due, and notes what became of it.

A due job's message is enqueued under the job's id and the time at which it was due, *then* the job goes on to its next
beat and is saved. Killed between the two, the same id comes again and is known: neither lost nor repeated. What is late is
sent once: a job for one time always, a job on a beat once for all the beats that were missed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from bubbles import log
from bubbles.cron.jobs import Job, JobFile, advanced
from bubbles.errors import BubblesError, DataError, ProtocolError
from bubbles.ids import safe
from bubbles.messages import Inbound, Outbound, from_dict, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from bubbles.spool.disk import Disk

_TOLD_MOST = 200  # characters of a message that the log has
_PAUSE_S = 30.0  # before what the disk refused is tried again


class Service:
    """The jobs of one home, sent when they are due. Whoever opens it holds cron's lock.

    `ring` is called when agentd has something to look for; `now` is the clock, epoch seconds.
    """

    def __init__(self, home: Home, ring: Callable[[], object], *, now: Callable[[], float] = time.time, disk: Disk = os) -> None:
        self.jobs = JobFile(home.jobs, disk=disk)
        self.ring = ring
        self.now = now
        self._sent = Queue(home.inbound("cron"), disk=disk, clock=lambda: int(now() * 1e9))
        self._outcomes = Queue(home.outbound("cron"), disk=disk, clock=lambda: int(now() * 1e9))

    def open(self) -> None:
        """Read the jobs. Raises Misconfigured where their file cannot be understood; it is left alone then."""
        self.jobs.load()
        if self.jobs.was_open:
            log.event("daemon.warning", f"{self.jobs.path} could be read by other users; its mode is 0600 now", priority="warning")

    def recover(self) -> None:
        """Put back what a killed cron had in its hands."""
        self._outcomes.recover()

    def look(self) -> float | None:
        """Send what is due, note what became of what was sent. In how many seconds to look again; None: when something changes."""
        try:
            for job in self.jobs.all:
                self._send_if_due(job)
            self._note_outcomes()
        except (BubblesError, OSError) as error:
            log.event("daemon.warning", f"jobs wait: {error}", priority="error")
            return _PAUSE_S
        coming = self.next
        return None if coming is None else max(0.0, coming - self.now())

    @property
    def next(self) -> float | None:
        """When the next job is due, None if none is."""
        return min((job.next for job in self.jobs.all if job.next is not None), default=None)

    @property
    def summary(self) -> str:
        """A line on how it stands."""
        awaited = min(((job.next, job.title) for job in self.jobs.all if job.next is not None), default=None)
        count = f"{len(self.jobs.all)} job{'' if len(self.jobs.all) == 1 else 's'}"
        if awaited is None:
            return f"{count}, none awaited"
        return f"{count}, next {awaited[1]} at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(awaited[0]))}"

    def send(self, job: Job, id: str) -> Job:
        """Enqueue the job's message under `id`; the job as it stands then, still to be saved. A second time under one id, nothing is sent."""
        message = Inbound(
            id=id,
            at=self.now(),
            channel="cron",
            chat=job.id,
            text=job.message,
            origin="system",
            job=job.id,
            session=safe(job.session) if job.session else "",
        )
        # Synced: the file that is saved next says that it was sent, and must not be the one to outlast a power cut.
        if self._sent.put(id, to_dict(message)):
            log.event("job.due", f"{job.title}: {log.clipped(job.message, _TOLD_MOST)}", message=id, **_about(job))
        return job if job.fired == id else replace(job, fired=id, fired_at=self.now(), last="begun", why="")

    def withdraw(self, job: Job) -> None:
        """Take back the message that the job sent last, if nobody has taken it yet."""
        if job.fired and self._sent.find(job.fired) == "new":
            self._sent.drop(job.fired)

    def _send_if_due(self, job: Job) -> None:
        now = self.now()
        if not job.enabled:
            return
        if job.next is None or (job.schedule.kind == "every" and job.next > now + job.schedule.every_s):  # somebody's edit, or the clock stepped back
            self.jobs.change(advanced(job, now))
            return
        if job.next > now:
            return
        id = f"cron-{job.id}-{int(job.next)}"
        if self._would_overtake(job, id):
            log.event("job.due", f"{job.title} is skipped: its last message still waits", message=job.fired, **_about(job))
            self.jobs.change(advanced(job, now))
            return
        self.jobs.change(advanced(self.send(job, id), now))
        self.ring()

    def _would_overtake(self, job: Job, id: str) -> bool:
        """While agentd is down or its session is busy, beats do not pile up."""
        return job.schedule.kind == "every" and job.fired not in ("", id) and self._sent.find(job.fired) in ("new", "cur")

    def _note_outcomes(self) -> None:
        """What agentd tells of the turns that jobs began."""
        found = dict(self._claimed())
        try:
            self.jobs.change(*filter(None, map(self._concluded, found.values())))
            for id in found:
                self._outcomes.finish(id)
        except BubblesError:
            for id in found:
                self._outcomes.defer(id, self.now() + _PAUSE_S)
            raise

    def _claimed(self) -> Iterator[tuple[str, Outbound]]:
        for id in self._outcomes.due(self.now()):
            with suppress(FileNotFoundError, DataError):
                body = self._outcomes.claim(id).body
                try:
                    yield id, from_dict(Outbound, {"channel": "cron", "chat": "", "at": 0.0, **body, "id": id})
                except (DataError, ProtocolError) as error:
                    self._outcomes.hold(id, error.text)

    def _concluded(self, told: Outbound) -> Job | None:
        """The job that an outcome belongs to, with the outcome; None if the job is gone, or has sent another message since."""
        job = self.jobs.find(told.job)
        if job is None or (told.turn.startswith(f"cron-{job.id}-") and told.turn != job.fired):
            return None
        last, _, why = told.text.partition(":")
        return replace(job, last=last, why=why)


def _about(job: Job) -> dict[str, str]:
    """What the log knows a job by."""
    return {"job": job.id, "session": job.session and safe(job.session), "channel": "cron"}
