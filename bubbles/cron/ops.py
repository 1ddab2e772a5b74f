"""What can be asked at cron's door: jobs are added, listed, removed, switched and run.

Each operation may be asked again under the same request id, and then does nothing more. The answers are the same whether
the daemon gives them or, while it is down, the tool that holds its lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bubbles import __version__
from bubbles.cron import schedule
from bubbles.cron.jobs import Job
from bubbles.cron.service import Service
from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.messages import scrub

_LATE_S = 60.0  # a time that passed while the question was on its way is not refused
_LONGEST = 100_000  # characters of a message
_SHOWN = ("id", "name", "session", "enabled", "next", "last", "why", "fired_at", "message")

Body = dict[str, Any]


class Ops:
    """The operations on the jobs of one service. `table`: by name, `(body, request id) -> reply`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._jobs = service.jobs
        self.table: dict[str, Callable[[Body, str], Body]] = {
            "status": self.status,
            "job.add": self.add,
            "job.list": self.list,
            "job.remove": self.remove,
            "job.enable": self.enable,
            "job.run": self.run,
        }

    def answer(self, op: str, body: Body, request: str) -> Body:
        """The reply to a question. Raises ProtocolError for an operation that there is not, DataError where there is no such job."""
        if op not in self.table:
            raise ProtocolError(f"cron has no operation {op!r}", remedy="run the same version of Bubbles everywhere")
        return self.table[op](body, request)

    def status(self, body: Body, request: str) -> Body:
        return {"version": __version__, "jobs": len(self._jobs.all), "next": self._service.next, "text": self._service.summary}

    def list(self, body: Body, request: str) -> Body:
        return {"jobs": [told(job) for job in self._jobs.all]}

    def add(self, body: Body, request: str) -> Body:
        """{name, message, schedule, session} → the job. Raises DataError for what is no job, or one whose time is past."""
        id = _digest(request)
        if (known := self._jobs.find(id)) is not None:
            return told(known)
        if body.get("deliver"):
            raise Misconfigured(
                "delivering a job's reply to a chat is not built yet", remedy="leave it out; the reply stands in the session's history"
            )
        name, message, session = (_text(body, key) for key in ("name", "message", "session"))
        if not message.strip():
            raise DataError("a job without a message")
        found, now = schedule.from_dict(body.get("schedule")), self._service.now()
        anchor = float(int(now))
        coming = schedule.next_due(found, now - _LATE_S if found.kind == "at" else now, anchor)
        if coming is None:
            raise DataError("the time of this job is past", remedy="bubbles cron add --at 'in 10m' TEXT")
        job = Job(id, message, found, name, session, next=coming, anchor=anchor, rest=_extra(body["schedule"]))
        self._jobs.add(job)
        return told(job)

    def remove(self, body: Body, request: str) -> Body:
        """{id} → the job that is gone. A message of it that nobody has taken yet goes with it."""
        job = self._named(body)
        self._jobs.remove(job.id)
        self._service.withdraw(job)
        return told(job)

    def enable(self, body: Body, request: str) -> Body:
        """{id, enabled} → the job. One that is switched on goes on at its next beat; one whose time is past raises DataError."""
        job, enabled = self._named(body), body.get("enabled", True)
        if not isinstance(enabled, bool):
            raise DataError("'enabled' is true or false")
        if enabled == job.enabled:
            return told(job)
        coming = schedule.next_due(job.schedule, self._service.now(), job.anchor) if enabled else None
        if enabled and coming is None:
            raise DataError(f"the time of {job.title} is past", remedy=f"bubbles cron run -f {job.id}")
        job = replace(job, enabled=enabled, next=coming)
        self._jobs.change(job)
        return told(job)

    def run(self, body: Body, request: str) -> Body:
        """{id, force} → the job, and the id of its `message`. It runs now, besides its times; one that is switched off only with `force`."""
        job = self._named(body)
        if not job.enabled and body.get("force") is not True:
            raise DataError(f"{job.title} is switched off", remedy=f"bubbles cron run -f {job.id}")
        id = f"cron-{job.id}-run-{_digest(request)}"
        job = self._service.send(job, id)
        self._jobs.change(job)
        self._service.ring()
        return {**told(job), "message_id": id}

    def _named(self, body: Body) -> Job:
        """The job that `id` names: by its id, or by its name if no other has that."""
        id = _text(body, "id")
        if (job := self._jobs.find(id)) is not None:
            return job
        same = [job for job in self._jobs.all if job.name == id] if id else []
        if len(same) > 1:
            raise DataError(f"{len(same)} jobs are called {id!r}", remedy=f"say which by its id: {', '.join(job.id for job in same)}")
        if not same:
            raise DataError(f"there is no job {id!r}", remedy="bubbles cron list")
        return same[0]


def told(job: Job) -> Body:
    """A job as the door tells it."""
    return {name: getattr(job, name) for name in _SHOWN} | {"schedule": {**schedule.to_dict(job.schedule), **job.rest.get("schedule", {})}}


def _digest(request: str) -> str:
    return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _extra(raw: Body) -> Body:
    """The time zone in which the job was made is kept, for whoever shows it."""
    return {"schedule": {"tz": raw["tz"]}} if isinstance(raw.get("tz"), str) and len(raw["tz"]) < 100 else {}


def _text(body: Body, key: str) -> str:
    value = body.get(key, "")
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise DataError(f"{key!r} is a text of at most {_LONGEST} characters")
    return scrub(value)
