"""Where a process is to die by its own hand: told by a file, which is read anew whenever it has changed.

    DIR/NAME.order    {"hop": "claim", "side": "after", "n": 2}: at the second passage from now on
    DIR/deaths        a line for each death that was ordered: {"name", "hop", "side", "at", "pid"}

It does not know what a hop is. It dies by SIGKILL, so nothing is caught, flushed or tidied.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn


class Doom:
    """What one daemon has been ordered. An order is used up by the death that it brings."""

    def __init__(self, directory: Path, name: str) -> None:
        self._order_file = str(directory / f"{name}.order")
        self._deaths = str(directory / "deaths")
        self._name = name
        self._read: tuple[int, int] | None = None
        self._order: dict[str, Any] = {}
        self._left = 0

    def passes(self, hop: str, side: str) -> None:
        """A hop is passed: does not return where this is the passage to die at."""
        if self.is_due(hop, side):
            self.die()

    def is_due(self, hop: str, side: str) -> bool:
        """Count a passage; whether it is the one to die at."""
        self._look()
        if (self._order.get("hop"), self._order.get("side")) != (hop, side):
            return False
        self._left -= 1
        return self._left == 0

    def die(self) -> NoReturn:
        """Note it, and be killed."""
        order, self._order = self._order, {}
        death = {"name": self._name, "hop": order["hop"], "side": order["side"], "at": time.time(), "pid": os.getpid()}
        os.unlink(self._order_file)
        fd = os.open(self._deaths, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(fd, json.dumps(death).encode() + b"\n")
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL returned")

    def _look(self) -> None:
        try:
            found = os.stat(self._order_file)
        except FileNotFoundError:
            self._read, self._order = None, {}
            return
        if (found.st_ino, found.st_mtime_ns) != self._read:
            self._read = (found.st_ino, found.st_mtime_ns)
            self._order = json.loads(Path(self._order_file).read_bytes())
            self._left = int(self._order["n"])


def order(directory: Path, name: str, hop: str, side: str, n: int = 1) -> None:
    """Tell the daemon `name`, running or not, to die at its n-th passage from now on."""
    written = directory / f"{name}.order.{time.monotonic_ns()}"
    written.write_text(json.dumps({"hop": hop, "side": side, "n": n}))
    os.replace(written, directory / f"{name}.order")


def revoke(directory: Path, name: str) -> None:
    (directory / f"{name}.order").unlink(missing_ok=True)


def deaths(directory: Path) -> list[dict[str, Any]]:
    """The deaths that were ordered and came, oldest first."""
    path = directory / "deaths"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
