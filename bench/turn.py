"""A turn from the message's put to the reply's finish: wall and CPU of client, agentd and modeld, on this disk and on a journaled one, and its syncs.

    python bench/turn.py

Closed loop, one session a round, rounds of the two disks and of a channel's and a terminal's turns interleaved. The model's own CPU (0.1 ms)
is not counted, and neither is the first turn of a session.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import disk
import syncs
from chain import Chain, Channel, Spent, Terminal, chain, model
from row import Row, main, median

ROUNDS, TURNS = 9, 100
Work = Callable[[str, int], list[float]]  # (session, turns) → the wall ms of each
World = tuple[Chain, str, dict[str, Work]]


def measure() -> list[Row]:
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(model())
        places = [(stack.enter_context(disk.here()), "this disk"), (stack.enter_context(disk.journaled()), "journaled disk")]
        worlds = [_world(stack, path, what, url) for path, what in places if path is not None]
        found: dict[str, list[tuple[float, Spent]]] = {}
        for n, (made, what, works) in itertools.product(range(ROUNDS), worlds):
            for who, work in works.items():
                found.setdefault(f"turn, {who}, {what}", []).append(_round(made, work, f"{who}{n}"))
        for name, rounds in found.items():
            rows += _rows(name, rounds)
        return rows + _synced(stack, worlds[-1], url)


def _synced(stack: contextlib.ExitStack, world: World, url: str) -> list[Row]:
    notes = stack.enter_context(syncs.noted())
    if notes:
        world = _world(stack, stack.enter_context(disk.here()), "this disk", url)
    made, _, works = world
    for work in works.values():
        work("counted", 1)
    pids = list(made.pids().values())
    return [syncs.row(f"syncs, {who}", pids, lambda work=work: work("counted", TURNS), TURNS, notes) for who, work in works.items()]


def _world(stack: contextlib.ExitStack, path: Path, what: str, url: str) -> World:
    made = stack.enter_context(chain(path, url))
    channel, terminal = Channel(made.home), Terminal(made.home)
    works: dict[str, Work] = {
        "channel": lambda session, turns: channel.turns([session], turns),
        "terminal": lambda session, turns: _said(terminal, session, turns),
    }
    print(f"a file on {what} is created in {disk.create_us(path):.0f} us", file=sys.stderr)
    return made, f"{what} ({disk.named(path)})", works


def _round(made: Chain, work: Work, session: str) -> tuple[float, Spent]:
    work(session, 1)
    with made.counted(TURNS) as spent:
        took = work(session, TURNS)
    return median(took), spent[0]


def _said(terminal: Terminal, session: str, turns: int) -> list[float]:
    took = []
    for _ in range(turns):
        began = time.perf_counter()
        terminal.say("hi", session)
        took.append((time.perf_counter() - began) * 1000)
    return took


def _rows(name: str, rounds: list[tuple[float, Spent]]) -> list[Row]:
    """Wall is promised on a quiet journaled disk; CPU on any."""
    middle = sorted((spent for _, spent in rounds), key=lambda spent: spent.cpu)[len(rounds) // 2]
    promised = (5, 8) if ", journal)" in name else (None, None)
    wall = Row(name, median([wall for wall, _ in rounds]), "ms", *promised, peer="turn")
    least = min(spent.cpu for _, spent in rounds)
    return [wall, Row("its CPU, all processes", middle.cpu, "ms", 3, 6, beside=f"{middle.told()}; in the best round {least:.2f}")]


if __name__ == "__main__":
    main(measure)
