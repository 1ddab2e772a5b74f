"""Shows a chat what is going on, where its platform has a way to: one event at a time, the newest of each chat, and never in anybody's way.

It does not know what an event means. What cannot be shown in time is not shown.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bubbles import log
from bubbles.channels.channel import Channel

_SHOW_S = 10.0
_CHATS_MOST = 1000


class Progress:
    """What `channel` is still to show."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._newest: dict[str, dict[str, Any]] = {}  # topic: event
        self._some = asyncio.Event()

    def tell(self, topic: str, event: dict[str, Any]) -> None:
        """Show it soon, unless a newer one of its topic comes first."""
        if topic in self._newest or len(self._newest) < _CHATS_MOST:
            self._newest[topic] = event
            self._some.set()

    async def run(self) -> None:
        """Show for ever. Never raises but when cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._newest:
                topic = next(iter(self._newest))
                await self._show(topic, self._newest.pop(topic))

    async def _show(self, topic: str, event: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(_SHOW_S):
                await self._channel.show(topic, event)
        except Exception as error:  # what is shown on the way may be missed, whatever a library raises
            log.debug(f"progress was not shown: {type(error).__name__}: {error}", channel=self._channel.name)
