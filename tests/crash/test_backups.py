"""Backups taken while everybody is killed all the time: each, put in place and brought to rest, holds what holds for any home."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.crash.backwards import FAULTS, SLOWLY
from tests.crash.judge import gather, judge
from tests.crash.lives import Shot, relive, shoot
from tests.crash.runs import SOAK, kill_everybody, roughen, traffic
from tests.crash.town import Town, town

BACKUPS = 20 if SOAK else 4
SEED = int(os.environ.get("BUBBLES_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
_PAUSE_S = (0.3, 2.0)
_TALK = {"replies unseen": (("keyeda", "plaina"), "think=0.2", 12)}  # by fault: who writes, what above all, and so often it is tried


def _shots(t: Town, directory: Path, count: int, *faults: str) -> list[Shot]:
    """So many backups of a town in which people write, each with one of the faults in turn."""
    chance = random.Random(SEED)
    shots = []
    for n in range(count):
        time.sleep(chance.uniform(*_PAUSE_S))
        shots.append(shoot(t, directory / f"{n}.tar.gz", fault=faults[n % len(faults)]))
    return shots


@contextmanager
def _killing(t: Town) -> Iterator[None]:
    over = threading.Event()
    killer = threading.Thread(target=kill_everybody, args=(t, SEED, over.is_set), name="killer")
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()


def test_each_of_many_is_a_home_in_which_nothing_is_lost_or_done_twice(
    home: Home, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    began = time.monotonic()
    with town(home, seed=SEED) as t:
        t.start()
        roughen(t, SEED)
        with traffic(t, most=12, stops=0.02, seed=SEED), _killing(t):
            shots = _shots(t, tmp_path, BACKUPS, "", SLOWLY)
        t.settle()
        first = judge(gather(t))
        took_s = time.monotonic() - began
        kills = Counter(kill["name"] not in t.platforms for kill in first.kills)
        problems = []
        for n, shot in enumerate(shots):
            verdict = relive(t, shot, Home(tmp_path / f"life{n}"))
            problems += [f"backup {n}: {problem}" for problem in verdict.problems]
            shutil.rmtree(tmp_path / f"life{n}")
    slowest, tries = max(shot.took_s for shot in shots), [shot.told["tries"] for shot in shots]
    record_property(
        "told",
        f"seed {SEED}: {len(shots)} backups (the slowest {slowest:.1f} s; tries {sorted(tries)}) among {kills[True]} kills, "
        f"{took_s:.0f} s; {len(problems)} problems in their second lives, {time.monotonic() - began - took_s:.0f} s. {first.head}",
    )
    assert first.problems == [], f"seed {SEED}: the first life: {first}"
    assert problems == [], f"seed {SEED}: {len(problems)} problems\n" + "\n".join(problems[:20])


@pytest.mark.parametrize("fault", list(FAULTS)[: None if SOAK else 1])
def test_an_order_that_is_wrong_is_seen(home: Home, tmp_path: Path, fault: str, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    found: Counter[str] = Counter()
    with town(home, seed=SEED) as t:
        t.start()
        people, wish, count = _TALK.get(fault, ((), "", 3))
        t.eager = ("", wish) if wish else None
        with traffic(t, people=people, most=12, seed=SEED):
            shots = _shots(t, tmp_path, count, fault)
        t.settle()
        for n, shot in enumerate(shots):
            if not found.keys() & FAULTS[fault][1]:
                found.update(problem.kind for problem in relive(t, shot, Home(tmp_path / f"life{n}"), rest_s=3.0).problems)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
    record_property("told", f"a backup broken on purpose, {fault}: {told}. {time.monotonic() - began:.0f} s.")
    assert found.keys() & FAULTS[fault][1], told
