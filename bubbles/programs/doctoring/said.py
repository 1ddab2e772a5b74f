"""What a program of the machine says: run with a bound on its time, in plain English, and never asked for a password."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """How it ended (below 0: by a signal), and what it wrote."""

    code: int
    out: str
    err: str


def said(*argv: str, timeout_s: float = 5.0) -> Said | None:
    """Run `argv` to its end; None where there is no such program, it cannot be run, or it did not end in time."""
    env = {**os.environ, "LC_ALL": "C", "SYSTEMD_PAGER": "cat", "SYSTEMD_COLORS": "0"}
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, env=env)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Said(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace").strip())


def fields(text: str) -> dict[str, str]:
    """The `NAME=value` lines of what systemd's tools show."""
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
