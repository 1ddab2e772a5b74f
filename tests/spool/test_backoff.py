"""The schedule of tries."""

from __future__ import annotations

import doctest

from hypothesis import given
from hypothesis import strategies as st

from bubbles.spool import backoff
from bubbles.spool.backoff import GIVE_UP_S, LONGEST_S, delay, given_up


def test_doctest() -> None:
    assert doctest.testmod(backoff).failed == 0


def test_the_tries_of_a_day() -> None:
    ages, age = [], 0.0
    while not given_up(age):
        age += delay(age)
        ages.append(round(age))
    assert ages[:5] == [4, 16, 36, 64, 100]
    assert sum(age < 420 for age in ages) == 10
    assert len(ages) == 147  # the last finds it given up


@given(st.floats(allow_nan=False))
def test_never_at_once_and_never_for_ever(age_s: float) -> None:
    assert 4 <= delay(age_s) < LONGEST_S
    assert given_up(age_s) == (age_s >= GIVE_UP_S)


@given(st.floats(0, GIVE_UP_S), st.floats(0, GIVE_UP_S))
def test_the_older_the_longer(a: float, b: float) -> None:
    assert (delay(a) - delay(b)) * (a - b) >= -1e-6
