"""The mark that every process of a command inherits in its environment: whose home, which daemon, which command.

It does not know what a command is, nor how a process is ended.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

MARK = "BUBBLES_RUN"
_TEXT = re.compile(rb"([0-9a-f]{16})\.([0-9]{1,9})\.([0-9]{1,19})\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Seen:
    """A live process as /proc/PID/stat tells of it. `start` is in clock ticks since boot."""

    pid: int
    parent: int
    group: int
    session: int
    start: int


def look(pid: int, *, zombies: bool = False) -> Seen | None:
    """The process `pid`; None where there is none, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return None
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and not zombies):
        return None
    return Seen(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


@dataclass(frozen=True, slots=True)
class Mark:
    """What a mark says of the daemon that gave it: its home (see `home_of`), its process number and its start in clock ticks since boot."""

    home: str
    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Mark | None:
        """The mark of the process `pid`; None where it has none of this form, or may not be asked."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = _mark(file.read())
        except OSError:
            return None
        return cls(found[1].decode(), int(found[2]), int(found[3])) if found else None

    @property
    def is_orphan(self) -> bool:
        """Whether the daemon that gave it lives no longer. Its number alone proves nothing: it may be another's by now."""
        daemon = look(self.pid, zombies=True)
        if daemon is None:
            return not _exists(self.pid)  # /proc may hide a process that is there
        return daemon.start != self.start or look(self.pid) is None


def fresh(root: Path) -> str:
    """A mark for one command that this process starts for the home at `root`."""
    return f"{_ours(root, os.getpid())}.{secrets.token_hex(16)}"


@functools.lru_cache(maxsize=16)
def _ours(root: Path, pid: int) -> str:
    """What all marks of this process, `pid`, for one home have in common."""
    own = look(pid)
    return f"{home_of(root)}.{pid}.{own.start if own else 0}"


def home_of(root: Path) -> str:
    """16 hex digits for the home at `root`, as this process sees it.

    Two containers may have the same path for different homes, and process numbers mean something only inside one: so its name is part of it.
    """
    inside = ""
    with contextlib.suppress(OSError):
        inside = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(os.fsencode(os.path.realpath(root)) + b"\0" + inside.encode()).hexdigest()[:16]


def _mark(environ: bytes) -> re.Match[bytes] | None:
    name = f"{MARK}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(name):
            return _TEXT.fullmatch(entry, len(name))
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return True
