"""kill -9 at random moments, of every daemon and of the platforms, while people write, interrupt, stop, and jobs fire."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable

from bubbles.agentd.spending import Pages, grouped
from bubbles.paths import Home
from tests.crash.judge import Evidence, gather, judge
from tests.crash.runs import SOAK, kill_everybody, roughen, traffic
from tests.crash.town import Town, town

KILLS = 1100 if SOAK else 310
SEED = int(os.environ.get("BUBBLES_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)


def test_nothing_is_lost_whoever_dies_whenever(home: Home, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    with town(home, seed=SEED) as t:
        t.start()
        roughen(t, SEED)
        killing = time.monotonic()
        with traffic(t, stops=0.02, seed=SEED):
            kill_everybody(t, SEED, lambda: _died(t) >= KILLS)
        killed_s = time.monotonic() - killing
        t.settle()
        seen = gather(t)
    verdict = judge(seen)
    by_name = dict(Counter(kill["name"] for kill in seen.kills))
    rate = f"{len(seen.kills) / killed_s:.1f} kills/s"
    record_property("told", f"seed {SEED}: {by_name}, {rate}. {verdict.head} {time.monotonic() - began:.0f} s.")
    assert sum(kill["name"] not in t.platforms for kill in seen.kills) >= KILLS - 10
    assert verdict.problems == [], f"seed {SEED}: {verdict}"
    assert misbooked(home, seen) == [], f"seed {SEED}"


def misbooked(home: Home, seen: Evidence) -> list[str]:
    """The turns whose requests do not stand in the books exactly once: what their ends say, and what is booked, differs."""
    booked = grouped(Pages(home).entries(), lambda entry: entry.turn)
    ends = [line for lines in seen.histories.values() for line in lines if line.get("meta") == "turn" and line.get("usage")]
    return [end["turn"] for end in ends if (total := booked.get(end["turn"])) is None or total.input != end["usage"]["input"]]


def _died(t: Town) -> int:
    """Of our daemons, how often any has."""
    return sum(kill["name"] not in t.platforms for kill in t.kills)
