"""A daemon in a world of other times, to be started by bending.py: it is the product's own, but waits less, or has another clock.

What takes minutes can then be seen in seconds. A clock that only goes forward (time.monotonic) is left alone, as setting the
clock leaves it alone. Nothing of Bubbles may be loaded before the clock is wrong: much takes its clock when it is loaded.
"""

from __future__ import annotations

import importlib
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any


class Clock:
    """How far some processes' clock is off, in seconds, kept in a file that they share."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(struct.pack("q", 0))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self.path = path

    @property
    def off_s(self) -> int:
        return int(struct.unpack("q", self._shared[:])[0])

    def step(self, seconds: int) -> None:
        """Set it forward, or back."""
        self._shared[:] = struct.pack("q", self.off_s + seconds)

    def now(self) -> float:
        return _time() + self.off_s

    def now_ns(self) -> int:
        return _time_ns() + self.off_s * 10**9


_time, _time_ns = time.time, time.time_ns


def main(program: str, hasty: int, clock: str) -> None:
    """Be that daemon."""
    assert "bubbles" not in sys.modules
    if clock:
        wrong = Clock(Path(clock))
        time.time, time.time_ns = wrong.now, wrong.now_ns
    if hasty > 1:
        _hurry(hasty)
    sys.argv = [f"bubbles-{program}"]
    importlib.import_module(f"bubbles.programs.{program}").main([])


def _hurry(by: int) -> None:
    """All of the product's patience, divided. What is named here and is no longer there is an error of this file."""
    names = ("bus.dial", "bus.caller", "bus.door", "daemon", "agentd.models", "providers.service")
    dial, caller, door, daemon, models, service = [importlib.import_module(f"bubbles.{name}") for name in names]
    _divide(vars(dial), by, "SILENCE_S", "RESTART_S")
    _divide(vars(caller), by, "SILENCE_S")
    _divide(dial.Dial.__init__.__kwdefaults__, by, "restart_s")
    _divide(dial.Dial.call.__kwdefaults__, by, "timeout_s")
    _divide(caller.Caller.__init__.__kwdefaults__, by, "patience_s")
    _divide(caller.Caller.call.__kwdefaults__, by, "timeout_s")
    _divide(door.Door.__init__.__kwdefaults__, by, "alive_s")
    _divide(daemon.Daemon.__init__.__kwdefaults__, by, "tick_s")
    _divide(vars(models), by, "_REPEAT_S")
    vars(models)["_AWAY_S"] = tuple(pause / by for pause in vars(models)["_AWAY_S"])
    _divide(vars(service), by, "KEPT_S", "UNWANTED_S", "_SWEEP_S")


def _divide(times: dict[str, Any], by: int, *names: str) -> None:
    for name in names:
        times[name] /= by
