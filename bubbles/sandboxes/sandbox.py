"""The one method that every sandbox has, what bounds a command, and what comes of it.

It does not know which backend a session has, nor who asked for the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may take: seconds, bytes of output before it is killed, bytes of output that are kept."""

    timeout_s: float = 120.0
    output_bytes: int = 50_000_000
    keep_bytes: int = 200_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all that a command starts may take together: bytes of memory, processes and threads, percent of one processor (0: as much as there is),
    bytes of one file, bytes of the jail's /tmp; and how many bytes it must leave free on the disk.
    """

    memory_bytes: int = 2 << 30
    processes: int = 256
    cpu_percent: int = 0
    file_bytes: int = 2 << 30
    tmp_bytes: int = 256 << 20
    free_bytes: int = 1 << 30

    @classmethod
    def of(cls, settings: Any) -> Bounds:
        """Those of the section tools.sandbox.limits; of memory half of what the machine has at most."""
        found = {field.name: getattr(settings, field.name) for field in fields(cls)}
        return cls(**found | {"memory_bytes": min(found["memory_bytes"], _ram() // 2 or found["memory_bytes"])})


def _ram() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left. Exactly one of `exit` and `signal` is set, unless it could not be reaped (both None).

    `output` is stdout and stderr as they came, decoded; where `truncated`, its middle is replaced by a line that counts what is missing.
    `ms` is wall time. `note` says in a sentence what else the reader should know ("" if nothing): that processes left behind were ended.
    `oom`: it was ended for the memory it took; `ended_for`: the name of the bound that it was ended for, "" for none.
    `limits_active`: what bounded it, and how: "memory:cgroup", "processes:rlimit", "time", …
    """

    output: str
    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    ms: int = 0
    note: str = ""
    oom: bool = False
    limits_active: tuple[str, ...] = ()
    ended_for: str = ""


class Sandbox(Protocol):
    """Where a session's commands run."""

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None, output: Callable[[bytes], None] | None = None) -> Outcome:
        """Run `command` in a shell at `cwd` (an absolute directory inside the session or a grant; None: the session's work/).

        `output` is given every byte of its output as it comes, up to Limits.output_bytes.
        When it returns, or when CancelledError leaves it, the processes it started are gone as far as the backend can promise.
        Raises Refused where policy forbids the command, ToolError where it cannot be started.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What this sandbox promises and what a command sees in it, as plain JSON values, for people."""
        ...
