"""A channel of a few lines in a process of its own: `python -m tests.channels.small_channel STORY NAME [options]`, told apart by its story."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from bubbles import daemon
from bubbles.channels.channel import Channel, Part, Take
from bubbles.channels.frame import run
from bubbles.channels.settings import Settings
from bubbles.daemon import Daemon
from bubbles.errors import Misconfigured, NotNow
from bubbles.messages import Outbound


class Quiet(Channel):
    """Nothing ever happens."""

    keyed = False
    there = False

    def __init__(self, name: str) -> None:
        self.name = name

    async def open(self) -> None: ...

    async def listen(self, take: Take) -> None:
        while True:
            await asyncio.sleep(50)
            take.alive()

    async def deliver(self, message: Outbound, part: Part) -> str:
        print(f"delivered {message.id}", flush=True)
        return ""

    async def reachable(self) -> bool:
        return self.there


class Rejected(Quiet):
    async def open(self) -> None:
        raise Misconfigured("the token is wrong", remedy="get another")


class Away(Quiet):
    async def open(self) -> None:
        raise NotNow("no route")


class Slow(Quiet):
    async def open(self) -> None:
        await asyncio.Event().wait()


class Unending(Quiet):
    """As a library that swallows its cancellation."""

    async def listen(self, take: Take) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()


class Deaf(Quiet):
    stale_s, there = 0.1, True

    async def listen(self, take: Take) -> None:
        await asyncio.Event().wait()


class DeafAndUnending(Unending):
    stale_s, there = 0.1, True


if __name__ == "__main__":
    story = globals()[sys.argv.pop(1)]

    async def serve(self: Daemon) -> None:
        await run(self, story(self.args[0]), Settings(ready_s=0.2))

    daemon.main("channel", serve, takes="NAME")
