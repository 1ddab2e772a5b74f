"""What a daemon that was killed left running: commands that nobody times out, stops or hears any more.

It does not know what they were. Only a process whose own mark names the home and a daemon that lives no longer is ever ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable

from bubbles import log
from bubbles.paths import Home
from bubbles.sandboxes.mark import Mark, home_of, look
from bubbles.sandboxes.numbers import everyone, last_given

_PATIENCE_S = 3.0  # what forks faster than it is killed, or is held by the kernel, is then left
_LOOKS = 4  # while processes come and go, an empty look proves nothing


def sweep(home: Home) -> int:
    """End every process that a command of `home` started under a daemon that is dead now; how many there were.

    For the one who holds the home's lock, before it starts a command. It blocks: milliseconds where there is nothing, 3 s at most.
    It spares itself and those it descends from, and does nothing where there is no /proc.
    """
    if not sys.platform.startswith("linux"):
        return 0
    return end_of([home_of(home.root)])


def end_of(homes: Iterable[str]) -> int:
    """The same for several homes, each told as its marks tell it (see mark.home_of)."""
    ended = sum(_Sweep(home).all() for home in homes)
    if ended:
        log.event("daemon.warning", f"processes of commands that outlived a killed daemon were ended: {ended}", priority="warning")
    return ended


class _Sweep:
    def __init__(self, home: str) -> None:
        self._home = home
        self._spared = _line()
        self._ended: set[int] = set()

    def all(self) -> int:
        deadline, pause = time.monotonic() + _PATIENCE_S, 0.0005
        while (found := self._members()) and time.monotonic() < deadline:
            self._ended.update(pid for pid in found if self._end(pid))
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return len(self._ended)

    def _members(self) -> list[int]:
        for _ in range(_LOOKS):
            before = last_given()
            found = [pid for pid in everyone() if self._is_left(pid)]
            if found or last_given() == before:
                break
        return found

    def _is_left(self, pid: int) -> bool:
        if pid in self._spared:
            return False
        mark = Mark.of(pid)
        return mark is not None and mark.home == self._home and mark.is_orphan

    def _end(self, pid: int) -> bool:
        """Kill the process that has the number now, if it is one of them: asked only after it is held, as the number may be another's by now."""
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return False
        try:
            if not self._is_left(pid):
                return False
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True


def _line() -> set[int]:
    """This process and all it descends from: a command may have been what started the daemon again."""
    line: set[int] = set()
    pid = os.getpid()
    while pid and pid not in line:
        line.add(pid)
        parent = look(pid)
        pid = parent.parent if parent else 0
    return line
