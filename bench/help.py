"""`bubbles --help`, as a multiple of `python -c pass` in the same environment and the same run.

    python bench/help.py
"""

from __future__ import annotations

from chain import BUBBLES, alone, passing
from row import Row, main, median

ROUNDS = 31


def measure() -> list[Row]:
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(passing())
        ours.append(alone([BUBBLES, "--help"]))
    (bare_wall, bare_cpu), (wall, cpu) = (tuple(median(list(column)) for column in zip(*times, strict=True)) for times in (bare, ours))
    beside = f"CPU {cpu:.1f} ms, wall {wall:.1f}; python -c pass: {bare_cpu:.1f}, {bare_wall:.1f}"
    return [Row("bubbles --help", cpu / bare_cpu, "x pass", 4, 6, beside=beside, peer="help")]


if __name__ == "__main__":
    main(measure)
