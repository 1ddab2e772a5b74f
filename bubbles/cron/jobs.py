"""The file that holds the jobs, `cron/jobs.json`: read whole or refused, replaced in one step or not at all.

It has one writer, whoever holds cron's lock. What it cannot read it leaves alone, and what it does not know (keys of a
newer version, or the owner's own) it keeps.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bubbles.cron import schedule
from bubbles.cron.schedule import Schedule
from bubbles.errors import DataError, Misconfigured, ProtocolError, TryAgain
from bubbles.ids import safe
from bubbles.messages import migrate
from bubbles.spool.disk import Disk

VERSION = 1
MIGRATIONS: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # n: what makes a file of version n one of n + 1


@dataclass(frozen=True, slots=True)
class Job:
    """Words that come back. Times are epoch seconds.

    `next`: when it is due, None if it is not. `anchor`: from where its beats are counted. `fired`: the id of the last message
    it sent, at `fired_at`. `last`: what became of that: "" (nothing yet), begun, replied, silent, stopped, limit or failed; `why` it failed.
    """

    id: str
    message: str
    schedule: Schedule
    name: str = ""
    session: str = ""
    enabled: bool = True
    next: float | None = None
    anchor: float = 0.0
    fired: str = ""
    fired_at: float = 0.0
    last: str = ""
    why: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)  # keys that we do not know

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.name or self.id


class JobFile:
    """The jobs of one home, in the order in which they were added."""

    def __init__(self, path: Path, *, disk: Disk = os) -> None:
        self.path = path
        self._disk = disk
        self._rest: dict[str, Any] = {}
        self.all: tuple[Job, ...] = ()
        self.was_open = False  # the file could be read by others

    def load(self) -> None:
        """Read the file; no file holds no jobs. Raises Misconfigured, naming the place, where it cannot be understood."""
        try:
            with open(self.path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)) as file:
                mode = os.fstat(file.fileno()).st_mode
                data = file.read() if stat.S_ISREG(mode) else b""
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._wrong(f"it cannot be read: {error.strerror}", remedy=f"chown $USER {self.path}; chmod 600 {self.path}") from error
        if mode & 0o077:
            self.was_open = True
            with suppress(OSError):
                os.chmod(self.path, 0o600)
        raw = self._migrated(self._parsed(data))
        jobs = raw.get("jobs")
        if not isinstance(jobs, list):
            raise self._wrong("'jobs' is not a list")
        self.all = tuple(self._job(number, each) for number, each in enumerate(jobs, 1))
        if len({job.id for job in self.all}) < len(self.all):
            raise self._wrong("two jobs have one id")
        self._rest = {key: value for key, value in raw.items() if key not in ("version", "jobs")}

    def find(self, id: str) -> Job | None:
        """The job of that id."""
        return next((job for job in self.all if job.id == id), None)

    def add(self, job: Job) -> None:
        """Add it and save. Like all changes: raises TryAgain where the disk refuses, and then nothing has changed."""
        self._save((*self.all, job))

    def change(self, *changed: Job) -> None:
        """Put these in the place of those of the same ids, and save if that changes anything."""
        by_id = {job.id: job for job in changed}
        jobs = tuple(by_id.get(job.id, job) for job in self.all)
        if jobs != self.all:
            self._save(jobs)

    def remove(self, id: str) -> None:
        """Forget it, and save."""
        self._save(tuple(job for job in self.all if job.id != id))

    def _parsed(self, data: bytes) -> dict[str, Any]:
        try:
            raw = json.loads(data.decode())
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise self._wrong(f"line {line}: not UTF-8") from error
        except json.JSONDecodeError as error:
            raise self._wrong(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
        except (ValueError, RecursionError) as error:
            raise self._wrong(str(error)[:200]) from error
        if not isinstance(raw, dict):
            raise self._wrong("line 1: not a JSON object")
        return raw

    def _migrated(self, raw: dict[str, Any]) -> dict[str, Any]:
        try:
            return migrate({"version": None, **raw}, VERSION, MIGRATIONS, "the file")
        except (DataError, ProtocolError) as error:
            raise self._wrong(error.text, remedy=error.remedy) from error

    def _job(self, number: int, raw: Any) -> Job:
        where = f"job {number}" + (f" ({raw['id']})" if isinstance(raw, dict) and isinstance(raw.get("id"), str) else "")
        if not isinstance(raw, dict):
            raise self._wrong(f"{where}: not an object")
        try:
            return job_from(raw)
        except (DataError, Misconfigured) as error:
            raise self._wrong(f"{where}: {error.text}") from error

    def _wrong(self, what: str, remedy: str = "") -> Misconfigured:
        return Misconfigured(f"{self.path}: {what}", remedy=remedy or f"mend it, or begin anew without its jobs: mv {self.path} {self.path}.old")

    def _save(self, jobs: Sequence[Job]) -> None:
        raw = {"version": VERSION, "jobs": [job_to(job) for job in jobs], **self._rest}
        self._replace((json.dumps(raw, indent=1, ensure_ascii=True) + "\n").encode())
        self.all = tuple(jobs)

    def _replace(self, data: bytes) -> None:
        written = f"{self.path}.tmp"  # there is one writer
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = self._disk.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                while data:
                    data = data[self._disk.write(fd, data) :]
                self._disk.fsync(fd)
            finally:
                self._disk.close(fd)
            self._disk.rename(written, str(self.path))
        except OSError as error:
            with suppress(OSError):
                self._disk.unlink(written)
            where = self.path.parent
            raise TryAgain(f"{self.path} cannot be written: {error.strerror}", remedy=f"look at: df -h {where}; ls -ld {where}") from error
        with suppress(OSError):  # some filesystems cannot, and the file itself is synced
            self._sync_directory()

    def _sync_directory(self) -> None:
        fd = self._disk.open(str(self.path.parent), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)


_FIELDS = {item.name: item for item in fields(Job) if item.name not in ("schedule", "rest")}
_TYPES: dict[str, tuple[type, ...]] = {"enabled": (bool,), "next": (int, float, type(None)), "anchor": (int, float), "fired_at": (int, float)}


def job_from(raw: dict[str, Any]) -> Job:
    """The job that a JSON object tells. Raises DataError saying what is wrong with it."""
    known: dict[str, Any] = {}
    for name in _FIELDS.keys() & raw.keys():
        types = _TYPES.get(name, (str,))
        value = raw[name]
        if not isinstance(value, types) or isinstance(value, bool) != (types == (bool,)) or (isinstance(value, float) and not math.isfinite(value)):
            raise DataError(f"{name!r} is {json.dumps(value)[:60]}")
        known[name] = value
    for name in ("id", "message"):
        if not known.get(name):
            raise DataError(f"it has no {name!r}")
    if safe(known["id"]) != known["id"]:
        raise DataError("'id' is not a plain name")
    rest = {key: value for key, value in raw.items() if key not in _FIELDS and key != "schedule"}
    found = schedule.from_dict(raw.get("schedule"))
    extra = {key: value for key, value in raw["schedule"].items() if key not in schedule.to_dict(found)}
    job = Job(schedule=found, rest=rest | ({"schedule": extra} if extra else {}), **known)
    return job if job.enabled else replace(job, next=None)


def job_to(job: Job) -> dict[str, Any]:
    """Its JSON object."""
    raw = {name: getattr(job, name) for name in _FIELDS}
    return {**raw, **job.rest, "schedule": {**schedule.to_dict(job.schedule), **job.rest.get("schedule", {})}}


def advanced(job: Job, now: float) -> Job:
    """The job once what is due now has been sent: on its next beat, or, if it was to come once, switched off."""
    coming = schedule.next_due(job.schedule, now, job.anchor)
    return replace(job, next=coming, enabled=job.enabled and coming is not None)
