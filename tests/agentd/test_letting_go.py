"""Sessions that are let go of while somebody is about to write into their files, and journals of many turns in a row."""

from __future__ import annotations

import asyncio
import time

from bubbles import config
from bubbles.agentd.agent import Agent
from bubbles.kernel.events import Address, UserSpoke, header, to_line
from bubbles.messages import Inbound, Sender
from bubbles.paths import Home
from bubbles.sessions.history import History


def overheard(n: int) -> Inbound:
    return Inbound(id=f"h{n}", at=time.time(), channel="telegram", chat=str(n), text=f"words of {n}", is_group=True, sender=Sender("x"), wakes=False)


def test_no_words_are_written_into_another_session(home: Home) -> None:
    """Many groups are spoken in, more sessions than are kept awake are opened meanwhile, and let go of at every moment."""

    async def scene() -> None:
        agent = Agent(home, config.load(home, "agents", "channels", "gateway", "tools"))
        try:
            groups = [agent.actor(f"g{n}") for n in range(30)]
            for group in groups:
                await group.lock.acquire()  # somebody else is being heard
            hearing = [asyncio.create_task(group.overhear(overheard(n), lambda: None)) for n, group in enumerate(groups)]
            await asyncio.sleep(0)
            for n in range(450):
                agent.actor(f"other{n}")
            agent.tidy()
            for group in groups:
                group.lock.release()
            await asyncio.gather(*hearing)
        finally:
            agent.close()

    asyncio.run(scene())
    for n in range(30):
        history = History(home.session(f"g{n}") / "session.jsonl", session=f"g{n}")
        assert [one["text"] for one in history.heard] == [f"words of {n}"]
    for path in home.sessions.glob("other*/session.jsonl"):
        assert b"words of" not in path.read_bytes()


def test_turns_that_ended_long_ago_are_not_taken_up_again(home: Home) -> None:
    """A journal holds more turns in a row than a history remembers, all but the last in history."""
    history = History(home.session("s") / "session.jsonl" if home.session("s").mkdir(parents=True) is None else home.root, session="s")
    lines = []
    for n in range(100):
        spoke = UserSpoke(f"m{n}", f"word {n}", address=Address("cli", "s"))
        lines += [header(f"m{n}", "s"), to_line(spoke, 1.0)]
        if n < 99:
            end = {"turn": f"m{n}", "outcome": "stopped", "messages": [{"id": f"m{n}"}], "says": [], "at": 1.0}
            history.add_turn([b'{"role":"user","content":"word %d"}' % n], end)
    history.close()
    (home.turns / "s.jsonl").write_bytes(b"".join(lines))

    async def scene() -> list[str]:
        agent = Agent(home, config.load(home, "agents", "channels", "gateway", "tools"))
        try:
            return agent.actor("s").messages
        finally:
            agent.close()

    assert asyncio.run(scene()) == ["m99"]
