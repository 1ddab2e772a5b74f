"""Shows a chat what is going on, where its platform has a way to: drafts (drafts.py), "is typing", and what a platform makes of an event itself.

It is never in anybody's way: of each chat it shows the newest event, one at a time. What cannot be shown in time is not shown.
"""

from __future__ import annotations

import asyncio
from typing import Any

from bubbles import log
from bubbles.channels.channel import Channel
from bubbles.channels.drafts import Drafts
from bubbles.messages import Address

_SHOW_S = 10.0
_CHATS_MOST = 1000
_TYPING_S = 600.0  # nobody types for longer, whether the end of his turn was heard or not


class Progress:
    """What `channel` is still to show."""

    def __init__(self, channel: Channel, drafts: Drafts | None = None) -> None:
        self._channel = channel
        self._drafts = drafts
        self._typing: dict[Address, asyncio.Task[None]] = {}
        self._newest: dict[str, dict[str, Any]] = {}  # topic: event
        self._some = asyncio.Event()

    def tell(self, topic: str, event: dict[str, Any]) -> None:
        """Show it soon, unless a newer one of its topic comes first."""
        name, is_bare = self._channel.name, topic.startswith(f"state/{self._channel.name}/")
        chat = topic.removeprefix(f"state/{name}/") if is_bare else topic.removeprefix(f"{name}/").rpartition("/")[0]
        address = Address(name, chat, str(event.get("thread") or ""))
        if self._drafts is not None:
            self._drafts.tell(address, event)
        if event.get("kind") == "state" and self._channel.typing_s:
            self._type(address, event.get("state"))
        if not self._channel.shows:
            return
        if topic in self._newest or len(self._newest) < _CHATS_MOST:
            self._newest[topic] = event
            self._some.set()

    @property
    def wanted(self) -> str:
        """How the topics of the feed begin that it wants; "" where there is nothing for us. Text is streamed for those alone who show it."""
        if self._channel.shows or self._channel.drafts:
            return f"{self._channel.name}/"
        return f"state/{self._channel.name}/" if self._channel.typing_s else ""

    async def close(self) -> None:
        """Show nothing any more."""
        for task in self._typing.values():
            task.cancel()
        await asyncio.gather(*self._typing.values(), return_exceptions=True)
        if self._drafts is not None:
            await self._drafts.close()

    def _type(self, address: Address, state: Any) -> None:
        if (task := self._typing.pop(address, None)) is not None:
            task.cancel()
        if isinstance(state, dict) and state.get("now") == "begin" and len(self._typing) < _CHATS_MOST:
            self._typing[address] = asyncio.get_running_loop().create_task(self._keep_typing(address))

    async def _keep_typing(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + _TYPING_S
        while loop.time() < end:
            try:
                async with asyncio.timeout(_SHOW_S):
                    await self._channel.typing(address)
            except Exception as error:
                log.debug(f"typing was not shown: {type(error).__name__}: {error}", channel=self._channel.name)
            await asyncio.sleep(self._channel.typing_s)

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
