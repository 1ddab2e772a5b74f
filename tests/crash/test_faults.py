"""The same run on a product that is broken on purpose finds each fault, and on the product as it is finds nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from bubbles.paths import Home
from tests.crash.faults import FAULTS, Fault
from tests.crash.judge import Verdict, gather, judge
from tests.crash.runs import Row, Rows, roughen, traffic
from tests.crash.town import town

KILLS = 10


def _run(home: Home, fault: str, *shown_at: Fault) -> Verdict:
    """Deaths at the hops where these faults would show."""
    with town(home, platforms=["plain"], fault=fault) as t:
        t.start()
        roughen(t)
        rows = Rows([Row(each.hop, each.side, name, KILLS) for each in shown_at for name in t.programs if name.partition("-")[0] == each.daemon])
        with traffic(t, people=("ann", "plaina", "plainb"), repeats=0.3, jobs=0.02):
            rows.run(t, seed=2)
        t.settle(3.0 if fault else 60.0)
        verdict = judge(gather(t))
    assert rows.unreached() == []
    return verdict


@pytest.mark.parametrize("fault", FAULTS)
def test_the_judge_finds_a_product_that_is_broken_on_purpose(home: Home, fault: str, record_property: Callable[[str, object], None]) -> None:
    began = time.monotonic()
    verdict = _run(home, fault, FAULTS[fault])
    found = ", ".join(f"{len(verdict.of(kind))} {kind}" for kind in sorted(verdict.kinds()))
    among = f"by {len(verdict.kills)} kills among {verdict.counts['words']} messages"
    record_property("told", f"broken on purpose, {fault}: {found}, {among}. {time.monotonic() - began:.0f} s.")
    assert verdict.kinds() & FAULTS[fault].finds, str(verdict)


def test_the_same_run_finds_nothing_in_the_product_as_it_is(home: Home) -> None:
    verdict = _run(home, "", *FAULTS.values())
    assert verdict.problems == [], str(verdict)
