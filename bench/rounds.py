"""A turn with ten tool rounds, each `exec` with `echo hi`: wall, our CPU, and the children's.

    python bench/rounds.py
"""

from __future__ import annotations

import time

import disk
from chain import Terminal, chain, model
from row import Row, main, median

ROUNDS, TURNS, CALLS = 7, 10, 10


def measure() -> list[Row]:
    with disk.here() as path, model() as url, chain(path, url) as made:
        terminal = Terminal(made.home)
        walls, spents = [], []
        for n in range(ROUNDS):
            terminal.say("hi", f"s{n}")
            terminal.say(f"rounds={CALLS}", f"s{n}")
            with made.counted(TURNS) as spent:
                for _ in range(TURNS):
                    began = time.perf_counter()
                    terminal.say(f"rounds={CALLS}", f"s{n}")
                    walls.append((time.perf_counter() - began) * 1000)
            spents += spent
        middle = sorted(spents, key=lambda spent: spent.cpu)[ROUNDS // 2]
    return [Row("ten tool rounds", median(walls), "ms", 40, 120, beside=middle.told(), peer="rounds")]


if __name__ == "__main__":
    main(measure)
