"""A disk that refuses once, at each sync in turn: nothing is lost, nothing is done twice, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bubbles import config
from bubbles.agentd.agent import Agent
from bubbles.agentd.ops import Ops
from bubbles.bus.door import Door
from bubbles.paths import Home
from bubbles.sessions.commit import Commit
from tests.agentd.test_chain import call
from tests.agentd.world import World, world


class Refusing(Commit):
    """A commit whose n-th sync fails."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.asked = 0
        self._n = n

    async def sync(self, fd: int) -> None:
        self.asked += 1
        if self.asked == self._n:
            raise OSError(errno.EIO, "Input/output error")
        await super().sync(fd)


@contextmanager
def agentd(w: World, n: int) -> Iterator[list[int]]:
    """agentd inside this process, with a disk of its own kind; yields how many syncs it asked for."""
    ready, stop, asked = threading.Event(), threading.Event(), [0]

    async def serve() -> None:
        agent = Agent(w.home, config.load(w.home, "agents", "channels", "gateway", "tools"))
        agent.commit.close()
        agent.commit = commit = Refusing(n)
        agent.pause_s = 0.05
        door = Door("agentd", w.home, Ops(agent).table, on_ring=agent.intake.ring)
        await door.open()
        await agent.open()
        taking = asyncio.create_task(agent.intake.run())
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.02)
        asked[0] = commit.asked
        taking.cancel()
        agent.close()
        door.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield asked
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("n", range(1, 10))
def test_each_sync_refused_once(home: Home, n: int) -> None:
    script = {"rules": [{"when": "go", "times": 1, "calls": [call("exec", command="echo x >> ran; sleep 0.5")]}], "default": {"reply": "done"}}
    with world(home, script) as w:
        w.start("modeld")
        go = w.put("go")
        ran = home.session("s") / "work" / "ran"
        with agentd(w, n) as asked:
            w.until(ran.exists)
            tick = w.put("tick", queue="cron", job="j")
            w.ring()
            assert w.wait(go).text == "done"
            assert w.wait(tick).text == "done"
            assert w.say("and again?").text == "done"
        assert asked[0] >= 6
        assert ran.read_text() == "x\n"
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["go", "tick", "and again?"]
        assert w.fake.seen()["requests"] == 4
        for queue in ("cli", "cron"):
            assert not any((home.inbound(queue) / "cur").iterdir())
