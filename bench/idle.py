"""What running and not used costs: memory and wake-ups of agentd, modeld and cron after a first turn, over 30 s.

    python bench/idle.py [--seconds 30]
"""

from __future__ import annotations

import sys
import time

import disk
import reading
from chain import Terminal, chain, model
from row import Row, main

_SETTLE_S = 6.0  # connections that were kept are closed by then


def measure() -> list[Row]:
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 30.0
    with disk.here() as path, model() as url, chain(path, url, "modeld", "agentd", "cron") as made:
        terminal = Terminal(made.home)
        for _ in range(3):
            terminal.say("hi", "s")
        time.sleep(_SETTLE_S)
        pids = made.pids()
        before = {name: reading.wakes(pid) for name, pid in pids.items()}
        cpu = sum(map(reading.cpu_ms, pids.values()))
        time.sleep(seconds)
        woke = {name: (reading.wakes(pid) - before[name]) / seconds for name, pid in pids.items()}
        cpu = sum(map(reading.cpu_ms, pids.values())) - cpu
        memory = {name: reading.pss_mib(pid) for name, pid in pids.items()}
    told = " + ".join(f"{name} {mib:.1f}" for name, mib in memory.items())
    wakes = " + ".join(f"{name} {count:.2f}" for name, count in woke.items())
    return [
        Row("idle memory (PSS)", sum(memory.values()) * 2**20 / 1e6, "MB", 65, 90, beside=f"MiB: {told}", peer="idle memory"),
        Row("idle wake-ups", sum(woke.values()), "/s", 0.3, 1, beside=f"{wakes}; CPU {cpu:.1f} ms in {seconds:g} s", peer="idle wakes"),
    ]


if __name__ == "__main__":
    main(measure)
