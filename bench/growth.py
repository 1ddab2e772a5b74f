"""Whether daemons grow: their memory over 1 000 turns, in sessions that were awake before.

    python bench/growth.py [--turns 1000]

Before it counts, what is kept for a while has been full and renewed (modeld's last 2 000 answers, agentd's last 1 000
outcomes). What a history holds in memory, some 300 bytes a turn here, is part of the slope.
"""

from __future__ import annotations

import sys

import disk
import reading
from chain import Channel, chain, model
from row import Row, main

CHATS = 10
_KEPT = 5000


def measure() -> list[Row]:
    turns = int(sys.argv[sys.argv.index("--turns") + 1]) if "--turns" in sys.argv else 1000
    rows = []
    with disk.here() as path, model() as url, chain(path, url) as made:
        channel = Channel(made.home)
        chats = [f"c{n}" for n in range(CHATS)]
        channel.turns(chats, _KEPT // CHATS)
        readings = [{name: reading.rss_mib(pid) for name, pid in made.pids().items()}]
        for _ in range(10):
            channel.turns(chats, turns // 10 // CHATS)
            readings.append({name: reading.rss_mib(pid) for name, pid in made.pids().items()})
    for name in readings[0]:
        first, middle, last = (readings[n][name] for n in (0, 5, 10))
        beside = f"{first:.1f} -> {middle:.1f} -> {last:.1f} MiB over {turns} turns"
        rows.append(Row(f"growth of {name}, a turn", (last - first) * 1024 / turns, "KiB", 1, 2, beside=beside, peer="growth"))
    return rows


if __name__ == "__main__":
    main(measure)
