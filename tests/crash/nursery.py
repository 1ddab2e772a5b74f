"""Daemons as the crash tests see them: started in a moment by a nursery, killed, and waited for by descriptors of their own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_END_S = 20.0


class Daemon:
    """One process of the product. `pid`; it is a nursery's child, not ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1

    def ended(self, within_s: float = 0.0) -> bool:
        """Whether it has ended, by then."""
        if self._fd < 0:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        if not poll.poll(within_s * 1000):
            return False
        os.close(self._fd)
        self._fd = -1
        return True

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """End it and wait for that. False where it had ended by itself."""
        if self.ended():
            return False
        signal.pidfd_send_signal(self._fd, number)
        assert self.ended(_END_S), f"{self.pid} does not end"
        return True


class Nursery:
    """Forks daemons. `failures`: those that ended by anything but SIGKILL or a request."""

    def __init__(self) -> None:
        argv = [sys.executable, "-m", "tests.crash.launch", "--nursery"]
        self._process = subprocess.Popen(argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self.failures: list[str] = []
        self.started = 0

    def start(self, program: str, *args: str, log: Path, **env: str) -> Daemon:
        """A daemon, which may not be ready yet."""
        pid = self._ask({"program": program, "args": args, "log": str(log), "env": env})
        self.started += 1
        self._names[pid] = " ".join([program, *args])
        return Daemon(pid)

    def look(self) -> list[str]:
        """`failures` up to now."""
        self._ask({})
        return self.failures

    def close(self) -> None:
        """The daemons end with it."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def _ask(self, order: dict[str, Any]) -> int:
        assert self._process.stdin
        assert self._process.stdout
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        for pid, status in answer["ended"]:
            if status not in (0, -signal.SIGKILL):
                self.failures.append(f"{self._names.get(pid, pid)} ended with {status}")
        return int(answer["pid"])
