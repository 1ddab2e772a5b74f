"""Looking for processes by what stands in their command lines."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
from pathlib import Path

_numbers = itertools.count(os.getpid() * 1000)


def tag() -> str:
    """Seconds to sleep that no other process sleeps: an hour and a number of its own."""
    return f"3600.{next(_numbers)}"


def alive(tagged: str) -> list[str]:
    """The command lines of live processes in which `tagged` stands."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if tagged in line:
                    found.append(line)
    return found


def left(tagged: str) -> list[str]:
    """As `alive`, less those that have been killed and only have to be given the time to go."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                if tagged in line and not _is_doomed((entry / "status").read_text()):
                    found.append(line)
    return found


def _is_doomed(status: str) -> bool:
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    pending = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    return fields["State"][0] in "ZX" or bool(pending & 1 << signal.SIGKILL - 1)
