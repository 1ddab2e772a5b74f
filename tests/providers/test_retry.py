"""The retry loop: how often, how long between, and what ends it."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers.retry import LONGEST_S, Again, Clock, pause_s, persist, retry_after_s


class Trial:
    """An attempt that fails as told, then succeeds, on a clock that only counts."""

    def __init__(self, *failures: ModelError) -> None:
        self.failures = list(failures)
        self.made = 0
        self.slept: list[float] = []
        self.told: list[Again] = []

    async def attempt(self) -> str:
        self.made += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def run(self, retries: int = 2) -> tuple[str, int]:
        return asyncio.run(persist(self.attempt, retries, self.told.append, Clock(sleep=self.sleep, chance=lambda: 0.5)))


@pytest.mark.parametrize("failure", [RateLimited, ModelDown])
def test_what_passes_is_tried_again(failure: type[ModelError]) -> None:
    trial = Trial(failure("one"), failure("two"))
    assert trial.run() == ("done", 3)
    assert trial.slept == [1.0, 2.0]
    assert trial.told == [Again(failure.kind, 1, 1.0), Again(failure.kind, 2, 2.0)]


@pytest.mark.parametrize("failure", [ContextTooLong, NotAuthorized, Rejected])
def test_what_does_not_pass_is_not(failure: type[ModelError]) -> None:
    trial = Trial(failure("no"))
    with pytest.raises(failure) as raised:
        trial.run()
    assert (trial.made, raised.value.attempts, trial.slept) == (1, 1, [])


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_never_more_than_the_retries(retries: int) -> None:
    trial = Trial(*(ModelDown("down") for _ in range(20)))
    with pytest.raises(ModelDown) as raised:
        trial.run(retries)
    assert trial.made == raised.value.attempts == 1 + retries


def test_a_failure_that_does_not_pass_ends_the_trying() -> None:
    trial = Trial(ModelDown("down"), NotAuthorized("no"))
    with pytest.raises(NotAuthorized) as raised:
        trial.run()
    assert raised.value.attempts == 2


def test_the_asked_pause_is_kept() -> None:
    trial = Trial(RateLimited("slow", retry_after_s=7), ModelDown("busy", retry_after_s=3))
    trial.run()
    assert trial.slept == [pytest.approx(7.35), pytest.approx(3.15)]


def test_a_pause_that_is_too_long_ends_the_trying() -> None:
    trial = Trial(RateLimited("tomorrow", retry_after_s=LONGEST_S + 1))
    with pytest.raises(RateLimited) as raised:
        trial.run()
    assert (trial.made, trial.slept, raised.value.retry_after_s) == (1, [], LONGEST_S + 1)


def test_a_bug_is_not_tried_again() -> None:
    async def bug() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(persist(bug, 2, lambda again: None, Clock()))


@given(st.integers(1, 10_000), st.floats(0, 3600), st.floats(0, 1))
def test_a_pause_is_never_shorter_than_asked_and_never_endless(attempt: int, asked_s: float, chance: float) -> None:
    pause = pause_s(attempt, asked_s, chance)
    assert asked_s <= pause <= max(1.1 * asked_s, 40)
    assert pause > 0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "nan"}, 0),
        ({"retry-after": "inf"}, 0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "2"}, 2),
        ({"retry-after": formatdate(1_000_090, usegmt=True)}, 90),
        ({"retry-after": formatdate(999_000, usegmt=True)}, 0),
        ({"retry-after": "Thu, 99 Foo 2026 00:00:00 GMT"}, 0),
    ],
)
def test_what_a_provider_asks_for(headers: dict[str, str], seconds: float) -> None:
    assert retry_after_s(headers, 1_000_000) == pytest.approx(seconds)


@given(st.text())
def test_no_header_is_a_crash(text: str) -> None:
    assert retry_after_s({"retry-after": text, "retry-after-ms": text}, 0) >= 0
