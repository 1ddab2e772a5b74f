"""A command in the background as it stands on disk: what it is, how it ended, and whether that was told.

Its record is replaced whole, and is on the disk before it says so. It does not know how a command is run, nor who is told.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.errors import DataError, ProtocolError
from bubbles.ids import safe
from bubbles.kernel import prompt
from bubbles.kernel.clean import clean
from bubbles.messages import Address, from_line, migrate, to_line

VERSION = 1
PREFIX = "job-"  # of the messages that tell of an end; those of channels and clocks begin with their queue's name
_MIGRATIONS: dict[int, Any] = {}
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_COMMAND_MOST = 60  # characters of a command that a line shows


@dataclass(slots=True)
class Job:
    """One command. Times are epoch seconds; `how` is "" while it runs, else one of HOW.

    `owner`, `is_group`, `address`: of the words that it was started for, and whoever hears of its end has these rights and no others.
    `told`: nothing is left to be done about its end. `chain`: how many ends of jobs, one after the other, led to it without a person's word.
    """

    session: str
    number: int
    command: str
    started_at: float
    timeout_s: float
    address: Address
    is_group: bool = False
    owner: bool = False
    awaited: bool = True
    chain: int = 0
    turn: str = ""
    boot: str = ""  # of the machine, when it began
    how: str = ""
    ended_at: float = 0.0
    exit: int | None = None
    signal: int | None = None
    note: str = ""
    limits: list[str] = field(default_factory=list)
    by: str = ""  # who stopped it: the id of a command, or ""
    wakes: bool = True
    told: bool = False
    forgotten: bool = False

    @property
    def id(self) -> str:
        return f"j{self.number}"

    @property
    def message(self) -> str:
        """The id of the message that tells of its end. Numbers may begin anew where a home was cleared; the time does not."""
        return safe(f"{PREFIX}{self.session}-{self.id}-{int(self.started_at * 1000)}-end")

    @property
    def line(self) -> str:
        """Its command in a line."""
        text = prompt.line(clean(self.command))
        return text if len(text) <= _COMMAND_MOST else f"{text[: _COMMAND_MOST - 1]}…"

    @property
    def ending(self) -> str:
        """How it ended, as it stands behind its name."""
        text = _HOW[self.how](self)
        return f"{text} ({self.note})" if self.note else text

    @property
    def is_lost(self) -> bool:
        """Whether its end is not known: only that it has ended."""
        return self.how in ("lost", "rebooted")

    def lasted(self, now: float) -> str:
        """How long it ran, or has run.

        >>> Job("s", 1, "true", 100.0, 60.0, Address("cli", "s")).lasted(3823.0)
        '1 h 2 min 3 s'
        """
        whole = max(0, int((self.ended_at or now) - self.started_at))
        parts = ((whole // 3600, "h"), (whole % 3600 // 60, "min"), (whole % 60, "s"))
        return " ".join(f"{n} {unit}" for n, unit in parts if n or unit == "s")

    def lose(self, now: float) -> None:
        """Whoever ran it is gone: where no end was noted, that is its end, and `now`, at the restart, is when it is known. How long it ran is not."""
        if self.how:
            return
        self.how = "rebooted" if self.boot and self.boot != boot() else "lost"
        self.ended_at = max(self.started_at, now)

    def store(self, path: Path) -> None:
        """Replace its record. Raises OSError; the old one is then still there."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.tmp")
        data = to_line({"version": VERSION, **asdict(self)})
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)

    @classmethod
    def load(cls, path: Path) -> Job:
        """The job of a record. Raises OSError, DataError for one that cannot be read, ProtocolError for a newer program's."""
        body = migrate(from_line(regular.read(path)), VERSION, _MIGRATIONS, str(path))
        try:
            known = {item.name: body[item.name] for item in fields(cls) if item.name in body}
            job = cls(**known | {"address": Address(**known["address"])})
            if not all(isinstance(value, int | float) for value in (job.number, job.started_at, job.timeout_s)) or (job.how and job.how not in _HOW):
                raise ValueError(job.how)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path}: no record of a job: {error}") from error
        return job


def boot() -> str:
    """Which start of the machine this is; "" where it does not say."""
    with contextlib.suppress(OSError):
        return _BOOT_ID.read_text().strip()
    return ""


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _signal(number: int | None) -> str:
    try:
        return f"{number}, {signal.Signals(number or 0).name}"
    except ValueError:
        return str(number)


def _exit(job: Job) -> str:
    shell = f" (signal {_signal(job.exit - 128)})" if job.exit is not None and 128 < job.exit <= 128 + 64 else ""
    return f"ended with exit code {job.exit}{shell}"


_HOW: dict[str, Callable[[Job], str]] = {
    "exit": _exit,
    "signal": lambda job: f"was ended by signal {_signal(job.signal)}",
    "timeout": lambda job: f"was ended: its time of {job.timeout_s:g} s was over",
    "oom": lambda job: "was ended" if job.note else "was ended: it took more memory than it may",
    "output": lambda job: "was ended: it printed more than it may",
    "stopped": lambda job: "was stopped",
    "failed": lambda job: "could not be run",
    "unknown": lambda job: "ended; how is not known",
    "lost": lambda job: "was lost: the program that ran it was restarted. It may have run in part; check before repeating it",
    "rebooted": lambda job: "was lost: the machine was restarted. It may have run in part; check before repeating it",
}


def loaded(directory: Path) -> tuple[list[Job], list[str]]:
    """The jobs of a session, by number, and what of their records cannot be used."""
    jobs, wrong = [], []
    for path in directory.glob("j*.json"):
        try:
            jobs.append(Job.load(path))
        except FileNotFoundError:  # tidied away just now
            continue
        except (OSError, DataError, ProtocolError) as error:
            wrong.append(f"{path}: {error}")
    return sorted(jobs, key=lambda job: job.number), wrong
