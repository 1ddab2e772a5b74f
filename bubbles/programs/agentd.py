"""The daemon that keeps sessions, and runs their turns and their tools. It holds no key and knows no platform.

With --once it takes what lies in the queues, brings every open turn to its end, and ends itself. Models are asked
through modeld, which has to run meanwhile.

Input:
  messages in the queues inbound/*; the journals of turns that were cut short; questions at its door
  (bubbles/bus/PROTOCOL.md); the sections agents, channels, gateway and tools of config.json
Output:
  replies in the queues outbound/*, and to those who wait at its door; a log on standard error, or in the journal
Exit codes:
  0   done, or asked to stop
  64  the call is wrong
  70  a bug; the log has the traceback
  75  try again: it is running already, or the disk is full
  78  the configuration is wrong
Examples:
  bubbles agentd
  bubbles agentd --until-idle 60 2>> agentd.log
  bubbles modeld --until-idle 10 & bubbles agentd --once
"""

from __future__ import annotations

import asyncio
import contextlib
import resource

from bubbles import config, log
from bubbles.agentd.agent import Agent
from bubbles.agentd.ops import Ops
from bubbles.bus.door import Door
from bubbles.daemon import Daemon
from bubbles.daemon import main as run
from bubbles.sandboxes import probe

_DESCRIPTORS = 65_536
_LOOK_S = 0.05  # with --once, between two looks whether all is done


def _more_descriptors() -> None:
    """Each session that is awake holds two files: have as many as the system lets us. Commands get a limit of their own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, _DESCRIPTORS) if hard != resource.RLIM_INFINITY else _DESCRIPTORS
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _refusal(daemon: Daemon, settings: config.Settings) -> str:
    """What to add to the status where the sandbox of the settings cannot be had: its commands are refused then, and never run elsewhere."""
    if settings.tools.sandbox.backend != "bwrap" or (verdict := probe.verdict(daemon.home, settings.tools.sandbox)).ok:
        return ""
    log.event("daemon.warning", f"commands are refused, because no jail can be made: {verdict.why}; try: {verdict.remedy}", priority="error")
    return "; commands are refused, because no jail can be made: bubbles sandbox probe"


async def serve(daemon: Daemon) -> None:
    """Live until the daemon is told to stop; with `--once`, until nothing is left to do now."""
    settings = config.load(daemon.home, "agents", "channels", "gateway", "tools")
    log.redact(settings.secrets())
    for warning in settings.warnings:
        log.event("daemon.warning", warning, priority="warning")
    if (to := settings.gateway.alerts) and not daemon.home.outbound(to.partition(":")[0]).is_dir():
        log.event("daemon.warning", f"gateway.alerts: no channel here has ever served {to}; until one does, see the log", priority="warning")
    _more_descriptors()
    agent = Agent(daemon.home, settings)
    door = Door("agentd", daemon.home, Ops(agent).table, on_ring=agent.intake.ring)
    await door.open()
    taking = None
    try:
        await agent.open()
        if daemon.once:
            daemon.ready("doing what there is to do")
            await _all_at_once(agent, daemon)
            return
        taking = asyncio.create_task(agent.intake.run())
        daemon.busy = lambda: agent.busy or door.answering > 0
        daemon.on_tick.append(agent.intake.ring)
        daemon.on_tick.append(agent.tidy)
        daemon.on_tick.append(agent.end_the_gone)
        daemon.on_tick.append(agent.books.write)
        daemon.on_tick.append(agent.alerts.look)
        agent.alerts.look()
        daemon.ready("waiting for messages" + _refusal(daemon, settings))
        await daemon.stopping.wait()
    finally:
        if taking is not None:
            taking.cancel()
        agent.close()
        door.close()


async def _all_at_once(agent: Agent, daemon: Daemon) -> None:
    while not daemon.stopping.is_set() and (await agent.intake.scan() or agent.busy):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(daemon.stopping.wait(), _LOOK_S)


def main(argv: list[str] | None = None) -> None:
    """The program."""
    run("agentd", serve, argv, about=__doc__ or "")


if __name__ == "__main__":
    main()
