"""The one method that every sandbox has, what bounds a command, and what comes of it.

It does not know which backend a session has, nor who asked for the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may take: seconds, bytes of output before it is killed, bytes of output that are kept."""

    timeout_s: float = 120.0
    output_bytes: int = 50_000_000
    keep_bytes: int = 200_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left. Exactly one of `exit` and `signal` is set, unless it could not be reaped (both None).

    `output` is stdout and stderr as they came, decoded; where `truncated`, its middle is replaced by a line that counts what is missing.
    `ms` is wall time. `note` says in a sentence what else the reader should know ("" if nothing): that processes left behind were ended.
    """

    output: str
    exit: int | None = None
    signal: int | None = None
    timed_out: bool = False
    truncated: bool = False
    ms: int = 0
    note: str = ""


class Sandbox(Protocol):
    """Where a session's commands run."""

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None) -> Outcome:
        """Run `command` in a shell at `cwd` (an absolute directory inside the session or a grant; None: the session's work/).

        When it returns, or when CancelledError leaves it, the processes it started are gone as far as the backend can promise.
        Raises Refused where policy forbids the command, ToolError where it cannot be started.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What this sandbox promises and what a command sees in it, as plain JSON values, for people."""
        ...
