"""How old a file is: by its mtime, whatever happens to clocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.tidying.ages import DATA_S, DAY_S, DONE_S, LITTER_S, RELEASED_S, Clock, Mark

KEPT = (LITTER_S, DATA_S, DONE_S, RELEASED_S)
NOW = 1_800_000_000.0


def days(count: float) -> float:
    return count * DAY_S


@pytest.mark.parametrize("kept_s", KEPT)
def test_without_an_earlier_run_the_clock_is_believed(kept_s: float) -> None:
    clock = Clock(Mark(NOW, 5.0, "a"))
    assert clock.is_old(NOW - kept_s - 1, kept_s)
    assert not clock.is_old(NOW - kept_s + 1, kept_s)
    assert not clock.is_old(NOW + days(1000), kept_s), "from the future"


def test_a_step_of_a_day_makes_nothing_old_before_its_time() -> None:
    last = Mark(NOW, 1000.0, "a")
    clock = Clock(Mark(NOW + days(2), 1000.0 + days(1), "a"), last)  # a day has passed, the clock says two
    assert not clock.is_old(NOW - days(1.5), DATA_S), "it is two and a half days old"
    assert clock.is_old(NOW - days(2.5), DATA_S)
    assert not clock.is_old(NOW + days(1.9), LITTER_S), "written after the step"
    assert clock.next_mark == last, "the next run has to know it too"


@given(
    step=st.floats(min_value=0, max_value=days(10_000)),
    runs=st.lists(st.floats(min_value=1, max_value=days(12)), min_size=1, max_size=12),
    stepped_in=st.integers(0, 11),
    written=st.floats(min_value=-days(40), max_value=days(100)),
    kept_s=st.sampled_from(KEPT),
)
def test_whatever_a_clock_steps_ahead_a_file_is_kept_its_time(step: float, runs: list[float], stepped_in: int, written: float, kept_s: float) -> None:
    """`written`: when, in true time after the first run. Its mtime is what the clock said then."""
    true, mark, ahead = 0.0, Mark(NOW, 1000.0, "a"), 0.0
    step_at = sum(runs[: stepped_in + 1]) - runs[min(stepped_in, len(runs) - 1)] / 2
    for pause in runs:
        true += pause
        ahead = step if true >= step_at else 0.0
        clock = Clock(Mark(NOW + true + ahead, 1000.0 + true, "a"), mark)
        mtime = NOW + written + (step if written >= step_at else 0.0)
        if written <= true and clock.is_old(mtime, kept_s):
            slack_s = 300.0 * len(runs)  # what is taken for a correction
            assert true - written > kept_s - slack_s
        mark = clock.next_mark


@given(back=st.floats(min_value=0, max_value=days(10_000)), written=st.floats(min_value=-days(40), max_value=0), kept_s=st.sampled_from(KEPT))
def test_a_clock_that_was_set_back_makes_nothing_older(back: float, written: float, kept_s: float) -> None:
    clock = Clock(Mark(NOW + 100 - back, 1100.0, "a"), Mark(NOW, 1000.0, "a"))
    assert not clock.is_old(NOW + written, kept_s) or 100 - written > kept_s


def test_a_step_that_lasts_is_believed_for_what_is_kept_no_longer() -> None:
    last = Mark(NOW, 1000.0, "a")
    after_four = Clock(Mark(NOW + days(104), 1000.0 + days(4), "a"), last)
    assert after_four.is_old(NOW + days(100.5), DATA_S), "written after the step, three and a half days ago"
    assert not after_four.is_old(NOW - days(2), DONE_S), "but six days are no week"
    after_all = Clock(Mark(NOW + days(131), 1000.0 + days(31), "a"), last)
    assert after_all.next_mark == after_all.now


@pytest.mark.parametrize("now", [Mark(NOW + days(400), 2000.0, "b"), Mark(NOW + days(400), 900.0, "a"), Mark(NOW + days(400), 900.0, "")])
def test_after_a_new_start_of_the_machine_the_clock_is_believed(now: Mark) -> None:
    assert Clock(now, Mark(NOW, 1000.0, "a")).is_old(NOW, RELEASED_S)


def test_a_mark_is_kept_and_a_broken_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "tidied"
    assert Mark.read(path) is None
    Mark(NOW, 1.0, "a").write(path)
    assert Mark.read(path) == Mark(NOW, 1.0, "a")
    assert [each.name for each in tmp_path.iterdir()] == ["tidied"]
    for broken in (b"", b"{", b"[]", b"{}", b'{"wall":"x","up":1,"boot":"a"}'):
        path.write_bytes(broken)
        assert Mark.read(path) is None
    Mark(NOW, 1.0, "a").write(tmp_path / "not" / "there")


def test_the_machine_counts_what_passes() -> None:
    first, second = Mark.now(), Mark.now()
    assert second.up >= first.up > 0
    assert first.boot == second.boot
