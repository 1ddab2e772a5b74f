"""bubbles-agentd: the daemon that owns the sessions, runs their turns and their tools. It holds no key and knows no platform."""

from __future__ import annotations

import asyncio

from bubbles import config, log
from bubbles.agentd.agent import Agent
from bubbles.agentd.ops import Ops
from bubbles.bus.door import Door
from bubbles.daemon import Daemon
from bubbles.daemon import main as run


async def serve(daemon: Daemon) -> None:
    """Live until the daemon is told to stop."""
    settings = config.load(daemon.home, "agents", "channels", "gateway", "tools")
    log.redact(settings.secrets())
    for warning in settings.warnings:
        log.event("daemon.warning", warning, priority="warning")
    agent = Agent(daemon.home, settings)
    door = Door("agentd", daemon.home, Ops(agent).table, on_ring=agent.intake.ring)
    await door.open()
    taking = None
    try:
        await agent.open()
        taking = asyncio.create_task(agent.intake.run())
        daemon.busy = lambda: agent.busy or door.answering > 0
        daemon.on_tick.append(agent.intake.ring)
        daemon.on_tick.append(agent.tidy)
        daemon.ready("waiting for messages")
        await daemon.stopping.wait()
    finally:
        if taking is not None:
            taking.cancel()
        agent.close()
        door.close()


def main(argv: list[str] | None = None) -> None:
    """The program."""
    run("agentd", serve, argv)


if __name__ == "__main__":
    main()
