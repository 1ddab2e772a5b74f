"""The daemon that asks models, and that alone of all daemons holds the keys of their providers.

Input:
  questions at its door (bubbles/bus/PROTOCOL.md); the sections agents and providers of config.json
Output:
  answers; a log on standard error, or in the journal
Exit codes:
  0   done, or asked to stop
  64  the call is wrong
  70  a bug; the log has the traceback
  75  try again: it is running already, or the disk is full
  78  the configuration is wrong
Examples:
  bubbles modeld
  BUBBLES_PROVIDERS__CUSTOM__API_KEY=$(pass show model) bubbles modeld
  bubbles modeld --once && echo 'the configuration can be read'
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, NoReturn

from bubbles import config, daemon, log
from bubbles.bus.door import Door
from bubbles.daemon import Daemon
from bubbles.errors import BubblesError
from bubbles.providers import DIRECT, GATEWAY, REGISTRY, lite
from bubbles.providers.route import route
from bubbles.providers.service import Service


async def serve(daemon: Daemon) -> None:
    """Live until the daemon is told to stop; with `--once`, until the configuration has been read and the door was open."""
    settings = config.load(daemon.home, "agents", "providers")
    log.redact(settings.secrets())
    for warning in settings.warnings:
        log.event("daemon.warning", warning, priority="warning")
    service = Service(settings, daemon.home)
    door = Door("modeld", daemon.home, service.ops)
    await door.open()
    try:
        daemon.busy = lambda: service.busy
        daemon.ready("waiting for questions")
        if daemon.once:
            daemon.stop()
        asyncio.get_running_loop().call_soon(_warm, service, settings)  # after READY: nobody waits for what the first ask will need
        await daemon.stopping.wait()
    finally:
        door.close()
        await service.close()


def _warm(service: Service, settings: Any) -> None:
    """Load what the default model needs, and those that may stand in for it; of LiteLLM, which takes seconds, nobody has to wait for the end."""
    service.warm()
    for model in ("", *getattr(settings.agents.defaults, "fallbacks", ())):
        with contextlib.suppress(BubblesError):
            if REGISTRY[route(settings, model).provider].category in (DIRECT, GATEWAY):
                lite.load()


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The program."""
    daemon.main("modeld", serve, argv, about=__doc__ or "")


if __name__ == "__main__":
    main()
