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

from bubbles.sandboxes.mark import MARK, Seen, look
from bubbles.sandboxes.numbers import Since, last_given

_LOOKS = 4  # while processes come and go, an empty look proves nothing
_PATIENCE_S = 1.0  # a process that the kernel holds may take so long to go, and is then left to it


class Tree:
    """What hangs on `leader`, which was started in a session of its own with `mark` in its environment and is not reaped by others."""

    def __init__(self, leader: subprocess.Popen[bytes], mark: str) -> None:
        self._leader = leader
        self._mark = f"{MARK}={mark}".encode()
        self._since = Since(leader.pid)

    def end(self) -> int:
        """Kill everything and reap the leader. Returns how many processes beside the leader were still there.

        It blocks, normally for a few milliseconds, at most a second where a process cannot die.
        """
        if not has_ended(self._leader):
            self._signal(signal.SIGSTOP)  # what forks without end leaves no time to look; who started whom can still be seen
        left = self._members()
        if left or not has_ended(self._leader):
            self._kill_all(left)
        if self._leader.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._leader.wait(0.05)
        return len(left)

    def _kill_all(self, members: list[Seen]) -> None:
        """Kill, and look again, until a look finds nobody: what forks while it is being looked for is found next time."""
        self._signal(signal.SIGKILL)
        deadline, pause = time.monotonic() + _PATIENCE_S, 0.0005
        while True:
            for seen in members:
                _kill(seen)
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
            members = self._members()
            if not members or time.monotonic() > deadline:
                return

    def _signal(self, signum: int) -> None:
        """Send it to the whole process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._leader.pid, signum)  # the leader is not reaped yet: the number is still its own

    def _members(self) -> list[Seen]:
        """Every live process that belongs to the command, but for the leader. Looks again where it found none while others were being born."""
        if self._since.is_nothing:
            return []
        for _ in range(_LOOKS):
            before = last_given()
            found = self._look()
            if found or last_given() == before:
                break
        return found

    def _look(self) -> list[Seen]:
        numbers = self._since.numbers()
        if not numbers:
            return []
        leader = look(self._leader.pid, zombies=True)
        start = leader.start if leader else 0
        young = {seen.pid: seen for seen in map(look, [self._leader.pid, *numbers]) if seen and seen.start >= start}
        ours = {pid for pid, seen in young.items() if self._leader.pid in (seen.group, seen.session) or self._is_marked(pid)}
        more = ours
        while more:
            more = {pid for pid, seen in young.items() if seen.parent in more} - ours
            ours |= more
        return [young[pid] for pid in ours if pid != self._leader.pid]

    def _is_marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return self._mark in file.read()
        except OSError:
            return False


def has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether `child` has come to its end; without reaping it where that can be helped, so that its number stays its own."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(seen: Seen) -> None:
    """Kill that very process, not another that has got its number since."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(seen.pid)
        try:
            now = look(seen.pid)
            if now is not None and now.start == seen.start:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        finally:
            os.close(fd)
