"""Tool exec: a command in the session's shell."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from bubbles.errors import TimedOut
from bubbles.tools import tool


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits that a sandbox reads; this layer is handed a sandbox and may not import that one."""

    timeout_s: float
    output_bytes: int
    keep_bytes: int = 200_000


class Exec:
    """Runs commands in the session's sandbox."""

    name = "exec"
    free = False

    class Arguments(tool.Arguments):
        command: str = Field(min_length=1, description="A command line for bash")
        timeout_s: int = Field(0, ge=0, description="Seconds after which it is ended; 0: the usual")
        cwd: str = Field("", description='Directory to start in; "" is work/')
        background: bool = Field(False, description="Return a job's id at once and let it run on; for what takes minutes, or serves")

    def __init__(self, settings: Any) -> None:
        self._limits = _Limits(float(settings.exec.timeout_s), settings.exec.output_bytes)
        self._most_s = float(settings.exec.timeout_max_s)
        self._job_most_s = float(settings.exec.job_timeout_s)
        self.description = (
            "Run a command in a fresh bash, starting in work/. Returns stdout and stderr together, in the order they came, and the exit code in "
            f"the last line; of long output the middle is left out. Time-out {self._limits.timeout_s:g} s unless timeout_s is given, "
            f"and {self._most_s:g} s at most. There is no terminal and stdin is empty: pass -y or the like. When the shell ends, everything it "
            "started is ended, background processes too: for what shall go on, set background. That needs no waiting: its end is told to you by a "
            f"message of its own, in this turn's chat, also hours later. Time-out then {self._job_most_s:g} s."
        )

    async def run(self, args: Arguments, bench: tool.Bench) -> str:
        """The command's output and how it ended. Raises TimedOut with what it had printed, Refused where it may not be run."""
        if args.background:
            return await self._begun(args, bench)
        limits = replace(self._limits, timeout_s=float(min(args.timeout_s or self._limits.timeout_s, self._most_s)))
        bounded = f"timeout_s was {limits.timeout_s:g}, the most that is allowed" if args.timeout_s > self._most_s else ""
        at_most = limits.timeout_s >= self._most_s
        cwd = await _directory(args, bench)
        outcome = await bench.sandbox.run(args.command, limits, cwd=cwd)
        tool.limits_active.set(" ".join(outcome.limits_active))
        if outcome.timed_out:
            raise TimedOut(
                f"timed out after {limits.timeout_s:g} s{', the most that is allowed' if at_most else ''}; it and all it had started were ended. "
                f"It had printed:\n{outcome.output or '(nothing)'}",
                remedy="do less at once" if at_most else f"give more time (timeout_s, at most {self._most_s:g}) or do less at once",
            )
        output = outcome.output.rstrip("\n")
        return f"{output}\n{_ending(outcome, bounded)}" if output else _ending(outcome, bounded)

    async def _begun(self, args: Arguments, bench: tool.Bench) -> str:
        timeout_s = float(min(args.timeout_s or self._job_most_s, self._job_most_s))
        id = await bench.background.start(args.command, await _directory(args, bench), timeout_s)
        return (
            f"[job {id} has begun in the background; time-out {timeout_s:g} s. job_result reads what it prints, job_stop ends it, "
            "and its end will be told to you without your asking]"
        )


async def _directory(args: Exec.Arguments, bench: tool.Bench) -> Path | None:
    return await asyncio.to_thread(bench.workspace.directory, args.cwd) if args.cwd else None


def _ending(outcome: Any, bounded: str) -> str:
    parts = [_code(outcome), f"{outcome.ms} ms", bounded, outcome.note]
    return f"[{'; '.join(filter(None, parts))}]"


def _code(outcome: Any) -> str:
    if outcome.signal is not None:
        return f"ended by signal {_signal(outcome.signal)}"
    if outcome.exit is None:
        return "no exit code: it could not be ended"
    return f"exit code {outcome.exit}" + (f" (signal {_signal(outcome.exit - 128)})" if 128 < outcome.exit <= 128 + 64 else "")


def _signal(number: int) -> str:
    try:
        return f"{number}, {signal.Signals(number).name}"
    except ValueError:
        return str(number)
