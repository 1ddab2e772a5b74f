"""Real processes: a platform whose messages can be edited, and the test channel, which is killed while a message grows."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles import starter
from bubbles.bus.feed import Feed
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.fakes.start import FakePlatform, platform

_ROOT = Path(__file__).resolve().parents[2]
_TURN = "test-1"


@contextmanager
def channel(home: Home, fake: FakePlatform) -> Iterator[starter.Started]:
    command = [sys.executable, "-m", "tests.fakes.channel", "test", "--url", fake.url, "--drafts", "--pace", "0.02"]
    started = starter.Started(home, "channel-test", ["env", f"PYTHONPATH={_ROOT}", *command], None)
    try:
        yield started.wait()
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.wait()


async def until(claim: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not claim():
            await asyncio.sleep(0.02)


class Agentd:
    """The feed that agentd has, and what it puts."""

    def __init__(self, home: Home) -> None:
        self.feed, self.home = Feed(home), home
        self.feed.open()

    def tell(self, kind: str, body: Any) -> None:
        self.feed.publish(f"test/42/{kind}", {"turn": _TURN, "kind": kind, "thread": "", "message": "m1", kind: body})

    def say(self, text: str) -> None:
        id = f"{_TURN}.0.0"
        Queue(self.home.outbound("test")).put(id, to_dict(Outbound(id, time.time(), "test", "42", text, turn=_TURN)))
        self.feed.publish("out/test", {"id": id})
        self.tell("say", {"n": 0, "text": text})
        self.tell("state", {"now": "end"})

    async def heard(self) -> None:
        await until(lambda: self.feed.wanted("test/42/text") and self.feed.wanted("out/test"))


@pytest.mark.parametrize("killed", [False, True])
def test_a_message_grows_and_becomes_the_reply_though_the_channel_is_killed(home: Home, killed: bool) -> None:
    def is_done() -> bool:
        return Queue(home.outbound("test")).find(f"{_TURN}.0.0") == "done"

    async def story(fake: FakePlatform) -> None:
        agentd = Agentd(home)
        try:
            with channel(home, fake) as started:
                await agentd.heard()
                agentd.tell("state", {"now": "begin"})
                agentd.tell("text", "It ")
                await until(lambda: [one["text"] for one in fake.sent()] == ["It …"])
                agentd.tell("text", "grows")
                await until(lambda: [one["text"] for one in fake.sent()] == ["It grows …"])
                await until(lambda: {"chat": "42", "kind": "typing"} in fake.shown())
                if killed:
                    os.kill(started.pid, signal.SIGKILL)
                    started.process.wait()
                else:
                    agentd.say("It grows no more.")
                    await until(is_done)
            if killed:
                agentd.say("It grows no more.")
                with channel(home, fake):
                    await until(is_done)
            assert [(one["text"], one["edits"]) for one in fake.sent()] == [("It grows no more.", ["It …", "It grows …"])]
        finally:
            agentd.feed.close()

    with platform() as fake:
        asyncio.run(story(fake))
