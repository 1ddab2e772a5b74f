"""The connection: made, lost, silent, deaf; in no time (tests/channels/clock.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from bubbles.channels.channel import Channel, Take
from bubbles.channels.link import Link
from bubbles.channels.liveness import Liveness
from bubbles.channels.settings import Settings
from bubbles.errors import Misconfigured, NotNow, TryAgain
from bubbles.messages import Inbound
from tests.channels.clock import Clock, passing

DAY = 86_400.0


class Line(Channel):
    """A channel whose logins and listenings end as planned: an error is raised, "hang" never ends, "end" returns, "poll N" polls for N seconds."""

    name, keyed, stale_s = "line", False, 100.0

    def __init__(self, clock: Clock, opens: Iterable[Any], listens: Iterable[Any], there: bool | Exception) -> None:
        self.clock, self.there = clock, there
        self.opens, self.listens = iter(opens), iter(listens)
        self.opened: list[float] = []
        self.swallows = False

    async def open(self) -> None:
        self.opened.append(round(self.clock.passed, 3))
        await self._act(next(self.opens, "end"), None)

    async def listen(self, take: Take) -> None:
        await self._act(next(self.listens, "hang"), take)

    async def _act(self, what: Any, take: Take | None) -> None:
        if isinstance(what, BaseException):
            raise what
        if what == "hang":
            await self._hang()
        if what.startswith("poll"):
            for _ in range(int(what.split()[1]) // 50):
                await asyncio.sleep(50)
                assert take
                take.alive()

    async def _hang(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.swallows:
                    raise
                self.swallows = False

    async def reachable(self) -> bool:
        if isinstance(self.there, Exception):
            raise self.there
        return self.there


class Taken:
    """A `take` that only tells the clock."""

    def __init__(self, liveness: Liveness) -> None:
        self.alive = liveness.proved

    def wants(self, inbound: Inbound) -> bool:
        return True

    async def __call__(self, inbound: Inbound) -> None:
        self.alive()


def connected(opens: Iterable[Any] = (), listens: Iterable[Any] = (), *, for_s: float = DAY, there: Any = True, swallows: bool = False) -> Any:
    """What came of it: the channel, what was told, how often it was up; and the error that ended it, or None."""
    clock = Clock()
    channel, told, ups = Line(clock, opens, listens, there), [], []
    channel.swallows = swallows

    async def story() -> Exception | None:
        liveness = Liveness(channel.stale_s, lambda: clock.passed)
        link = Link(channel, Taken(liveness), liveness, Settings(), on_up=lambda: ups.append(clock.passed), told=told.append)
        try:
            async with asyncio.timeout(for_s):
                await link.run()
        except TimeoutError:
            return None
        except (Misconfigured, TryAgain) as error:
            return error

    return channel, told, ups, passing(clock, story())


def test_it_listens_for_ever_while_the_platform_answers() -> None:
    channel, told, ups, error = connected(listens=[f"poll {int(2 * DAY)}"])
    assert (channel.opened, told, ups, error) == ([0.0], ["connected"], [0.0], None)


def test_a_platform_that_is_down_is_tried_ever_less_often_and_is_no_reason_to_end() -> None:
    channel, told, ups, error = connected([NotNow("refused")] * 10_000)
    assert [later - earlier for earlier, later in zip(channel.opened, channel.opened[1:], strict=False)][:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert (error, ups, set(told)) == (None, [], {"not connected, tried again: refused"})


def test_a_platform_that_says_when_is_left_alone_until_then() -> None:
    channel, *_ = connected([NotNow("429", until=4_000_000_000)], for_s=3700)
    assert channel.opened == [0.0, 3600.0]


def test_a_platform_that_takes_the_connection_and_says_nothing_is_down() -> None:
    channel, told, _, error = connected(["hang"] * 3, ["poll 1000"], for_s=600)
    assert channel.opened == [0.0, 61.0, 123.0, 187.0]
    assert (told[0], told[-1], error) == ("not connected, tried again: no answer within 60 s", "connected", None)


@pytest.mark.parametrize("lost", [NotNow("502"), OSError(104, "reset"), KeyError("a bug"), TryAgain("no room"), asyncio.CancelledError(), "end"])
def test_a_connection_that_ends_is_made_anew(lost: Any) -> None:
    channel, told, ups, error = connected(listens=[lost, lost, "poll 200", lost, "poll 1000"], for_s=500)
    assert (channel.opened[:3], error, len(ups)) == ([0.0, 1.0, 3.0], None, 5)
    assert [told[0], told[-1]] == ["connected", "connected"]


def test_a_library_that_cancels_its_own_login_does_not_end_us() -> None:
    channel, told, _, error = connected([asyncio.CancelledError()], ["poll 1000"], for_s=500)
    assert (channel.opened, told[-1], error) == ([0.0, 1.0], "connected", None)


def test_after_a_connection_that_worked_it_is_soon_tried_again() -> None:
    channel, *_ = connected([*[NotNow("down")] * 6], ["poll 100", "poll 1000"], for_s=1000)
    assert channel.opened[-2:] == [63.0, 164.0]


@pytest.mark.parametrize("where", ["opens", "listens"])
def test_rejected_credentials_end_it(where: str) -> None:
    *_, error = connected(**{where: [Misconfigured("401")]})
    assert isinstance(error, Misconfigured)


def test_silence_gets_a_new_client_and_two_that_hear_nothing_a_new_process() -> None:
    channel, told, _, error = connected(listens=["poll 500"])
    assert isinstance(error, TryAgain)
    assert (channel.opened, set(told)) == ([0.0, 501.0, 601.0, 701.0], {"connected", "not connected, tried again: the connection ended"})


@pytest.mark.parametrize("there", [False, OSError("no network")])
def test_a_network_that_is_gone_is_no_reason_for_a_new_process(there: Any) -> None:
    channel, _, _, error = connected(there=there, for_s=1050)
    assert (error, len(channel.opened)) == (None, 11)


def test_a_word_from_the_platform_forgives_all_silence_before() -> None:
    channel, _, _, error = connected(listens=["hang", "hang", "poll 150", "hang", "hang", "poll 150", "hang"], for_s=1000)
    assert error is None
    assert len(channel.opened) == 9


def test_what_cannot_be_cancelled_ends_with_the_process() -> None:
    *_, error = connected(listens=["hang"], swallows=True, for_s=600)
    assert isinstance(error, TryAgain)
    assert "does not end" in error.text
