"""The feed: whoever listens hears what is told from then on; where nobody does, telling costs next to nothing."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from bubbles.bus.feed import Feed
from bubbles.bus.follower import CONNECTED, follow
from bubbles.bus.listener import Listener
from bubbles.errors import ProtocolError
from tests.bus.child import running


def test_nobody_listening(home):
    async def run():
        feed = Feed(home)
        feed.publish("a", {"lost": 1})
        feed.open()
        unsendable = {"x": {1, 2}}
        feed.publish("a", unsendable)  # not even looked at
        assert not feed.wanted("a")
        start = time.process_time()
        for _ in range(10_000):
            feed.publish("telegram/42/text", {"text": "x"})
        assert time.process_time() - start < 1  # 100 us each: two orders above what it takes
        feed.close()
        feed.close()

    asyncio.run(run())


async def heard(events, n):
    got = []
    async for event in events:
        got.append(event)
        if len(got) == n:
            return got
    raise AssertionError("the feed ended")


def test_a_daemon_hears_the_topics_it_asked_for(home):
    async def run():
        feed = Feed(home)
        feed.open()
        first = follow(home, "out/telegram")
        both = follow(home, "out/", "telegram/42/")
        every = follow(home)
        for events in (first, both, every):
            assert await anext(events) == CONNECTED
        while not all(map(feed.wanted, ("out/telegram", "telegram/42/x", "else"))):
            await asyncio.sleep(0.01)
        told = [("out/telegram", {"n": 1}), ("out/feishu", {"n": 2}), ("telegram/42/text", {"n": 3}), ("telegram/421/text", {"n": 4})]
        for topic, body in told:
            feed.publish(topic, body)
        assert await heard(first, 1) == told[:1]
        assert await heard(both, 3) == told[:3]
        assert await heard(every, 4) == told
        for events in (first, both, every):
            await events.aclose()
        while feed.wanted("out/telegram"):  # libzmq tells that a listener is gone
            await asyncio.sleep(0.01)
        feed.close()

    asyncio.run(run())


def test_what_is_no_message_is_refused_where_it_would_be_sent(home):
    async def run():
        feed = Feed(home)
        feed.open()
        events = follow(home)
        await anext(events)
        while not feed.wanted("a"):
            await asyncio.sleep(0.01)
        with pytest.raises(ProtocolError):
            feed.publish("a", {"x": {1, 2}})
        await events.aclose()
        feed.close()

    asyncio.run(run())


def test_a_listener_that_does_not_read_holds_nobody_up(home):
    async def run():
        feed = Feed(home)
        feed.open()
        lazy, keen = follow(home), follow(home)
        await anext(lazy)
        await anext(keen)
        while not feed.wanted("a"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        for n in range(30_000):
            feed.publish("a", {"n": n, "text": "x" * 100})
            if n % 1000 == 0:
                await asyncio.sleep(0)
        assert (await anext(keen))[1]["n"] >= 0
        await lazy.aclose()
        await keen.aclose()
        feed.close()

    asyncio.run(run())


def test_a_tool_hears_and_outlives_a_restart_of_agentd(home):
    events = iter(Listener(home, "tick/"))
    for _ in range(2):
        with running("agentd") as peer:
            for _, body in events:
                if body["pid"] == peer.pid:
                    break
            got = [(topic, body["pid"]) for topic, body in itertools.islice(events, 5)]
            assert got == [("tick/n", peer.pid)] * 5


def test_a_daemon_hears_and_outlives_a_restart_of_agentd(home):
    async def run():
        events = follow(home, "tick/")
        for _ in range(2):
            with running("agentd") as peer:
                got = await heard(events, 6)
                assert got.count(CONNECTED) == 1
                assert all(body["pid"] == peer.pid for topic, body in got[-3:])
        await events.aclose()

    asyncio.run(run())
