"""Listens to the feed from within a daemon. It does not know what the topics mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from bubbles.bus import zmtp
from bubbles.bus.listener import FEED, LONGEST_S, Event, event, subscriptions
from bubbles.paths import Home

CONNECTED: Event = ("", {})  # the connection is new: rings may have been lost, look at the queue


async def follow(home: Home, *prefixes: str) -> AsyncIterator[Event]:
    """`(topic, body)` of the topics that begin with one of `prefixes` (none: all), for ever; CONNECTED after each connect. Ends with its task."""
    wait_s = 0.1
    while True:
        try:
            stream, writer = await asyncio.open_unix_connection(home.door(FEED).removeprefix("ipc://"))
        except OSError:
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_S)
            continue
        wait_s = 0.1
        try:
            writer.write(zmtp.hello("SUB"))
            reader = zmtp.Reader()
            listening = False
            while data := await stream.read(1 << 18):
                for frames in reader.feed(data):
                    yield event(frames)
                if reader.ready and not listening:
                    listening = True
                    writer.write(subscriptions(prefixes))
                    yield CONNECTED
        except ConnectionError:
            pass
        finally:
            writer.close()
