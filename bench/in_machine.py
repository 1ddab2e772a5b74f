"""What bench/units.py has run inside the booted machine, by the clock that all its processes share; it prints JSON.

    python bench/in_machine.py target ROUNDS
    python bench/in_machine.py restart ROUNDS
    python bench/in_machine.py idle SECONDS NAME=PID...

`target` and `restart` run as the person whose units they are, `idle` as root, who may look into memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reading

SERVICES = ("bubbles-modeld.service", "bubbles-agentd.service", "bubbles-cron.service")
AGENTD = "bubbles-agentd.service"
TARGET = "bubbles.target"
BUBBLES = str(Path(__file__).resolve().parents[1] / "bin" / "bubbles")
UNDER_WAY_S = 0.6  # an ask that is begun so long ago waits for its model
_APART_S = 0.5
_TIMES = {"begun": "InactiveExitTimestampMonotonic", "run": "ExecMainStartTimestampMonotonic", "ready": "ActiveEnterTimestampMonotonic"}


def target(rounds: int) -> list[dict[str, Any]]:
    """Each round: ms from the order to start the target to its end, of `python -c pass` right before, and each unit's own times after the order."""
    found = []
    for _ in range(rounds):
        _systemctl("stop", TARGET, *SERVICES)
        time.sleep(_APART_S)
        bare = _timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        began = time.monotonic()
        took = _timed(lambda: _systemctl("start", TARGET))
        units = {unit: {what: int(_show(unit, name)) / 1000 - began * 1000 for what, name in _TIMES.items()} for unit in SERVICES}
        assert all(_show(unit, "ActiveState") == "active" for unit in SERVICES)
        found.append({"took": took, "bare": bare, "units": units})
    return found


def restart(rounds: int) -> list[dict[str, Any]]:
    """Each round: ms to the answer of an ask, from agentd's restart or its death on; the ask begins then, or waits for its model by then."""
    ways: dict[str, Callable[[], object]] = {
        "restart": lambda: subprocess.Popen(["systemctl", "--user", "restart", AGENTD]),
        "kill": lambda: os.kill(int(_show(AGENTD, "MainPID")), signal.SIGKILL),
    }
    _ask().wait()
    found = []
    for _ in range(rounds):
        told = {"bare": _timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)), "ask": _timed(lambda: _ask().wait())}
        for name, strike in ways.items():
            told[f"{name}, new"], told[f"{name}, back"] = _struck(strike, waiting=False)
            told[f"{name}, waiting"], _ = _struck(strike, waiting=True)
        found.append(told)
    return found


def _struck(strike: Callable[[], object], *, waiting: bool) -> tuple[float, float]:
    """(ms to the answer, ms to agentd's being ready again)"""
    asking = _ask() if waiting else None
    time.sleep(UNDER_WAY_S if waiting else 0)
    began = time.monotonic()
    process = strike()
    asking = asking or _ask()
    words, complaints = asking.communicate(timeout=60)
    took = (time.monotonic() - began) * 1000
    assert asking.returncode == 0, complaints
    assert words.strip(), "no answer"
    if isinstance(process, subprocess.Popen):
        process.wait()
    while _show(AGENTD, "ActiveState") != "active":
        time.sleep(0.02)
    back = int(_show(AGENTD, _TIMES["ready"])) / 1000 - began * 1000
    time.sleep(_APART_S)
    return took, back


def idle(seconds: float, pids: dict[str, int]) -> dict[str, dict[str, float]]:
    """By name: times woken per second, CPU ms in all, MiB of memory (PSS)."""
    before = {name: (reading.wakes(pid), reading.cpu_ms(pid)) for name, pid in pids.items()}
    time.sleep(seconds)
    return {
        name: {
            "wakes": (reading.wakes(pid) - before[name][0]) / seconds,
            "cpu": reading.cpu_ms(pid) - before[name][1],
            "pss": reading.pss_mib(pid),
        }
        for name, pid in pids.items()
    }


def _ask() -> subprocess.Popen[str]:
    return subprocess.Popen([BUBBLES, "ask", "hi"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _systemctl(*args: str) -> None:
    subprocess.run(["systemctl", "--user", *args], check=True)


def _show(unit: str, name: str) -> str:
    return subprocess.run(["systemctl", "--user", "show", "--value", "-p", name, unit], capture_output=True, text=True, check=True).stdout.strip()


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return (time.monotonic() - began) * 1000


if __name__ == "__main__":
    _what, _count, *_pids = sys.argv[1:]
    if _what == "idle":
        print(json.dumps(idle(float(_count), {name: int(pid) for name, pid in (word.split("=") for word in _pids)})))
    else:
        print(json.dumps({"target": target, "restart": restart}[_what](int(_count))))
