"""As fast as a platform bears, in each chat and in all."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.pace import Pace
from tests.channels.clock import Clock, passing


def sent(pace: tuple[float, int, float], chats: list[str]) -> dict[str, list[float]]:
    """When each message goes that waits from the beginning on, by chat."""
    clock, times = Clock(), defaultdict(list)
    own = Pace(*pace, lambda: clock.passed)

    async def lane(chat: str, count: int) -> None:
        for _ in range(count):
            await own.wait(chat)
            times[chat].append(clock.passed)

    async def story() -> None:
        await asyncio.gather(*(lane(chat, chats.count(chat)) for chat in dict.fromkeys(chats)))

    passing(clock, story())
    return times


def test_a_chat_has_its_burst_and_then_its_pace() -> None:
    assert [round(at) for at in sent((3, 4, 0), ["a"] * 7)["a"]] == [0, 0, 0, 0, 3, 6, 9]


def test_who_waits_for_his_own_pace_holds_up_no_other() -> None:
    times = sent((60, 1, 2), ["a"] * 20 + ["b", "c", "d"])
    assert max(times["b"] + times["c"] + times["d"]) <= 2


def test_no_limit_is_no_wait() -> None:
    assert set(sent((0, 1, 0), ["a"] * 1000)["a"]) == {0.0}


@given(st.floats(0, 5), st.integers(1, 5), st.floats(0, 30), st.lists(st.sampled_from("abc"), max_size=40))
def test_never_more_than_the_platform_bears(chat_s: float, burst: int, per_s: float, chats: list[str]) -> None:
    per_s = per_s if per_s > 0.1 else 0
    times = sent((chat_s, burst, per_s), chats)
    for own in times.values():
        assert all(later - earlier >= chat_s - 1e-6 for earlier, later in zip(own, own[burst:], strict=False))
    if per_s:
        every, most = sorted(at for own in times.values() for at in own), max(1, int(per_s))
        assert all(later - earlier >= 1 / per_s - 1e-6 for earlier, later in zip(every, every[most:], strict=False))


def test_what_is_better_not_sent_than_late_takes_what_is_left_alone() -> None:
    clock = Clock()
    pace = Pace(2, 1, 0, lambda: clock.passed)
    assert [pace.spare("a"), pace.spare("a"), pace.spare("b")] == [True, False, True]
    clock.passed = 2
    assert pace.spare("a")


def test_chats_that_are_silent_are_forgotten() -> None:
    clock = Clock()
    pace = Pace(2, 1, 0, lambda: clock.passed)
    for n in range(30_000):
        clock.passed += 1
        assert pace.spare(str(n))
    assert len(pace._chats) <= 10_000
