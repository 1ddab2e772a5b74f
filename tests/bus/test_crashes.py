"""Each method of the bus killed after each of its system calls: what is left hinders nobody, and no lock outlives its holder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from bubbles.bus.caller import Caller
from bubbles.bus.dial import Dial
from bubbles.bus.door import Door
from bubbles.bus.feed import Feed
from bubbles.bus.lock import Lock, is_running
from bubbles.paths import Home
from tests.bus.child import running
from tests.crashing import crashes


def _dial_call(home: Home) -> None:
    with Dial(home, "agentd") as dial:
        dial.call("pid")


def _dial_ring(home: Home) -> None:
    with Dial(home, "agentd") as dial:
        dial.ring()


def _caller(home: Home) -> None:
    async def ask() -> None:
        caller = Caller(home, "agentd")
        await caller.call("pid")
        caller.ring()
        caller.close()

    asyncio.run(ask())


@pytest.mark.parametrize("act", [_dial_call, _dial_ring, _caller])
def test_a_caller_killed_anywhere_leaves_the_door_answering(home: Home, act: Callable[[Home], None]) -> None:
    with running("agentd") as peer:
        answers = [_pid(home) for _ in crashes(lambda: act(home), lambda: None)]
        assert len(answers) > 3
        assert set(answers) == {peer.pid}


def _pid(home: Home) -> int:
    with Dial(home, "agentd") as dial:
        return int(dial.call("pid")[0]["pid"])


def _taken_over(home: Home) -> tuple[int | None, int | None]:
    """Who holds the lock after the kill, and after it was taken here."""
    before = is_running(home, "agentd")
    lock = Lock(home, "agentd")
    lock.acquire()
    try:
        return before, is_running(home, "agentd")
    finally:
        lock.release()


def _lock(home: Home) -> None:
    lock = Lock(home, "agentd")
    lock.acquire()
    lock.release()


def _door(home: Home) -> None:
    async def serve() -> None:
        door = Door("agentd", home, {})
        feed = Feed(home)
        await door.open()
        feed.open()
        await asyncio.sleep(0)
        feed.publish("a/b", {"n": 1})
        feed.close()
        door.close()

    asyncio.run(serve())


@pytest.mark.parametrize("act", [_lock, _door])
def test_a_daemon_killed_anywhere_leaves_its_place_to_the_next(home: Home, act: Callable[[Home], None]) -> None:
    holders = [_taken_over(home) for _ in crashes(lambda: act(home), lambda: None)]
    assert len(holders) > 3
    assert set(holders) == {(None, os.getpid())}
    with running("agentd") as peer:
        assert _pid(home) == peer.pid
