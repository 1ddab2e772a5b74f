"""kill -9 at every hop of a message's way, in real processes, while people go on writing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bubbles.paths import Home
from tests.crash.judge import gather, judge
from tests.crash.runs import SOAK, Rows, roughen, traffic
from tests.crash.town import town

GROUPS = {"agentd": ("agentd",), "beside": ("modeld", "cron", "channel")}
JOBS = {"agentd": 0.1, "beside": 0.3}  # of all messages
KILLS = 12 if SOAK else 5  # at each side of a hop


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_is_lost_at_any_hop(home: Home, group: str, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    with town(home) as t:
        t.start()
        roughen(t)
        rows = Rows.of(t, GROUPS[group], KILLS)
        with traffic(t, jobs=JOBS[group]):
            rows.run(t, seed=1)
        t.settle()
        seen = gather(t)
    verdict = judge(seen)
    record_property("told", f"{rows.table(seen, verdict)}\n{verdict.head} {time.monotonic() - began:.0f} s.")
    assert rows.unreached() == []
    assert verdict.problems == [], str(verdict)
