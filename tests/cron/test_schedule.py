"""When a job is due next."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.cron import schedule
from bubbles.cron.schedule import MOST_S, Schedule, from_dict, next_due, to_dict
from bubbles.errors import DataError, Misconfigured

NOW = 1_764_500_400.0
TIMES = st.floats(0, 4e9)
INTERVALS = st.integers(1, MOST_S)


def test_doctest() -> None:
    assert doctest.testmod(schedule).failed == 0


@given(TIMES, TIMES, INTERVALS)
def test_a_beat_is_the_first_on_its_grid(after: float, anchor: float, every_s: int) -> None:
    due = next_due(Schedule("every", every_s=every_s), after, anchor)
    assert due is not None
    assert after < due <= after + every_s
    assert (int(due) - int(anchor)) % every_s == 0


@given(TIMES, INTERVALS, st.lists(st.floats(0, 1e7), max_size=20))
def test_restarts_do_not_move_the_beat(anchor: float, every_s: int, downs: list[float]) -> None:
    beat = Schedule("every", every_s=every_s)
    now = anchor
    for down_s in downs:
        now += down_s
        due = next_due(beat, now, anchor)
        assert due is not None
        assert (int(due) - int(anchor)) % every_s == 0
        now = due


def test_the_first_beat_is_one_interval_after_the_job_was_made() -> None:
    assert next_due(Schedule("every", every_s=60), NOW, NOW) == NOW + 60


def test_beats_go_on_though_the_clock_was_set_back_before_the_anchor() -> None:
    due = next_due(Schedule("every", every_s=60), NOW - 1e8, NOW)
    assert due is not None
    assert NOW - 1e8 < due <= NOW - 1e8 + 60


@given(TIMES, TIMES)
def test_once_is_once(at: float, after: float) -> None:
    assert next_due(Schedule("at", at=at), after, 0) == (at if at > after else None)


@given(st.one_of(st.builds(Schedule, st.just("at"), st.floats(1, 4e9)), st.builds(lambda s: Schedule("every", every_s=s), INTERVALS)))
def test_as_json_and_back(found: Schedule) -> None:
    assert from_dict(to_dict(found)) == found
    assert from_dict({**to_dict(found), "tz": "Europe/Berlin"}) == found


TIMES_THAT_ARE_NONE: list[Any] = [None, "soon", True, 0, float("inf"), float("nan"), 1e12]
INTERVALS_THAT_ARE_NONE: list[Any] = [None, 0, -60, 1.5, True, 10**12]
NO_SCHEDULES: list[Any] = [
    *[None, [], "at", {}, {"kind": "daily"}, {"kind": "at"}, {"kind": "every"}],
    *[{"kind": "at", "at": at} for at in TIMES_THAT_ARE_NONE],
    *[{"kind": "every", "every_s": every_s} for every_s in INTERVALS_THAT_ARE_NONE],
]


@pytest.mark.parametrize("raw", NO_SCHEDULES)
def test_what_is_no_schedule_is_refused(raw: Any) -> None:
    with pytest.raises(DataError, match="schedule"):
        from_dict(raw)


def test_five_fields_are_not_built_yet() -> None:
    with pytest.raises(Misconfigured, match="not built yet"):
        from_dict({"kind": "cron", "expression": "0 9 * * *"})
