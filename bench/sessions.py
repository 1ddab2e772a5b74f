"""Many sessions at once through one channel: turns a second, and the CPU of a turn then.

    python bench/sessions.py

Closed loop on both disks: each session says its next words when its answer is finished. The cheap model and the client
share the CPUs with what is measured.
"""

from __future__ import annotations

import contextlib

import disk
from chain import Chain, Channel, Spent, chain, model
from row import Row, main

ROUNDS, EACH = 5, 5


def measure() -> list[Row]:
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(model())
        places = [path for path in (stack.enter_context(disk.here()), stack.enter_context(disk.journaled())) if path is not None]
        worlds = [(stack.enter_context(chain(path, url)), disk.named(path)) for path in places]
        channels = [Channel(made.home) for made, _ in worlds]
        found: dict[tuple[int, str], list[Spent]] = {}
        for _ in range(ROUNDS):
            for (made, what), channel in zip(worlds, channels, strict=True):
                for many in (10, 100):
                    found.setdefault((many, what), []).append(_round(made, channel, many))
        for (many, what), rounds in sorted(found.items(), reverse=True):
            middle = sorted(rounds, key=lambda spent: spent.wall)[ROUNDS // 2]
            bounds = (600, 200) if many == 100 else (None, None)
            name = f"{many} sessions at once ({what})"
            rows.append(Row(name, 1000 / middle.wall, "turns/s", *bounds, more=True, beside=middle.told(), peer="sessions" if many == 100 else ""))
    return rows


def _round(made: Chain, channel: Channel, many: int) -> Spent:
    chats = [f"c{n}" for n in range(many)]
    channel.turns(chats, 1)  # sessions wake, and those that are new are made
    turns = many * (EACH if many == 100 else 5 * EACH)
    with made.counted(turns) as spent:
        channel.turns(chats, turns // many)
    return spent[0]


if __name__ == "__main__":
    main(measure)
