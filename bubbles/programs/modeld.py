"""bubbles-modeld: the only program that asks models, and that holds their keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from bubbles import config, daemon, log
from bubbles.bus.door import Door
from bubbles.daemon import Daemon
from bubbles.providers.service import Service

ABOUT = """\
Ask models: the program that holds the keys of their providers, and the only one.

input:   questions at its door (bubbles/bus/PROTOCOL.md); the sections agents and providers of config.json
output:  answers; a log on standard error, or in the journal
"""


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
        asyncio.get_running_loop().call_soon(service.warm)  # after READY: nobody waits for what the first ask will need
        await daemon.stopping.wait()
    finally:
        door.close()
        await service.close()


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The program."""
    daemon.main("modeld", serve, argv, about=ABOUT)


if __name__ == "__main__":
    main()
