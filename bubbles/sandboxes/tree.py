"""The processes that a command started: finding them all, and ending them.

A process is known by the command's process group and session, by its parent, and by a mark in its environment that it inherits
even after it has left both (setsid, a double fork). One that has left them *and* cleared its environment is not found: only a
backend with a process namespace can promise that. It does not know what the command was.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

MARK = "BUBBLES_RUN"
_PATIENCE_S = 1.0  # a process that the kernel holds may take so long to go, and is then left to it


@dataclass(frozen=True, slots=True)
class _Seen:
    """A live process as /proc/PID/stat tells of it. `start` is in clock ticks since boot."""

    pid: int
    parent: int
    group: int
    session: int
    start: int


class Tree:
    """What hangs on `leader`, which was started in a session of its own with `mark` in its environment and is not reaped by others."""

    def __init__(self, leader: subprocess.Popen[bytes], mark: str) -> None:
        self._leader = leader
        self._mark = f"{MARK}={mark}".encode()
        found = _look(leader.pid, zombies=True)
        self._start = found.start if found else 0

    def end(self) -> int:
        """Kill everything and reap the leader. Returns how many processes beside the leader were still there.

        It blocks, normally for a few milliseconds, at most a second where a process cannot die.
        """
        left = [seen for seen in self._members() if seen.pid != self._leader.pid]
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader.pid, signal.SIGKILL)  # not reaped yet: the number is still its own
        deadline, pause = time.monotonic() + _PATIENCE_S, 0.0005
        members = left
        while members and time.monotonic() < deadline:
            for seen in members:
                _kill(seen)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
            members = [seen for seen in self._members() if seen.pid != self._leader.pid]
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._leader.wait(max(0.05, deadline - time.monotonic()))
        return len(left)

    def _members(self) -> list[_Seen]:
        """Every live process that belongs to the command."""
        young = {seen.pid: seen for seen in _all() if seen.start >= self._start}
        ours = {pid for pid, seen in young.items() if self._leader.pid in (seen.group, seen.session) or self._is_marked(pid)}
        more = ours
        while more:
            more = {pid for pid, seen in young.items() if seen.parent in more} - ours
            ours |= more
        return [young[pid] for pid in ours]

    def _is_marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._mark in file.read()
        except OSError:
            return False


def _all() -> Iterator[_Seen]:
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return  # no /proc (macOS): the process group is all there is to go by
    me = os.getpid()
    for name in names:
        if name.isdigit() and int(name) != me and (seen := _look(int(name))) is not None:
            yield seen


def _look(pid: int, *, zombies: bool = False) -> _Seen | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            fields = file.read(1024).rpartition(b")")[2].split()  # the name before it may hold anything
    except OSError:
        return None
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and not zombies):
        return None
    return _Seen(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def _kill(seen: _Seen) -> None:
    """Kill that very process, not another that has got its number since."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(seen.pid)
        try:
            now = _look(seen.pid)
            if now is not None and now.start == seen.start:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
