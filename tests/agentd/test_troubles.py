"""What agentd says is wrong: what goes on, and not what is over."""

from __future__ import annotations

import asyncio
import time

from bubbles import config
from bubbles.agentd.agent import Agent
from bubbles.agentd.ops import Ops
from bubbles.bus.door import Request
from bubbles.paths import Home


def test_trouble_that_was_not_met_again_for_minutes_is_over(home: Home) -> None:
    async def told() -> list[str]:
        agent = Agent(home, config.load(home, "agents", "channels", "gateway", "tools"))
        agent.trouble("messages wait: the disk is full")
        agent.troubles["the inbound queues cannot be read"] = time.monotonic() - 600
        found: list[str] = (await Ops(agent).status(Request("q", "status", {}, [])))["troubles"]
        agent.commit.close()
        return found

    assert asyncio.run(told()) == ["messages wait: the disk is full"]
