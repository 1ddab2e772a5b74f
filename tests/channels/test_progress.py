"""What a channel wants to hear of a turn."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bubbles.agentd.outgoing import Outgoing
from bubbles.bus.feed import Feed
from bubbles.channels.progress import Progress
from bubbles.kernel.events import UserSpoke
from bubbles.messages import Address
from bubbles.paths import Home
from bubbles.sessions.commit import Commit
from tests.channels.clock import Clock
from tests.channels.test_drafts import Editable


class Listened:
    """A feed on which somebody wants what begins with `prefix`."""

    def __init__(self, prefix: str, progress: Progress) -> None:
        self._prefix, self._progress = prefix, progress
        self.told = 0

    def wanted(self, topic: str) -> bool:
        return bool(self._prefix) and topic.startswith(self._prefix)

    def publish(self, topic: str, body: dict[str, Any]) -> None:
        if self.wanted(topic):
            self.told += 1
            self._progress.tell(topic, body)


@pytest.mark.parametrize(
    ("drafts", "typing_s", "streams", "told"), [(False, 0.0, False, 0), (False, 4.0, False, 1), (True, 0.0, True, 1), (True, 4.0, True, 1)]
)
def test_text_is_streamed_for_those_alone_who_show_it(home: Home, drafts: bool, typing_s: float, streams: bool, told: int) -> None:
    async def story() -> None:
        channel = Editable(Clock())  # type: ignore[abstract]
        channel.drafts, channel.typing_s = drafts, typing_s
        progress = Progress(channel)
        feed = Listened(progress.wanted, progress)
        outgoing = Outgoing(home, cast(Feed, feed), Commit())
        spoke = UserSpoke("memory-1", "hello", "", Address("memory", "a/b"), at=1.0)
        assert outgoing.streams([], [spoke]) is streams
        outgoing.tell([spoke], "t1", "state", {"now": "begin"})
        assert feed.told == told
        assert list(progress._typing) == ([Address("memory", "a/b")] if typing_s else [])
        await progress.close()

    asyncio.run(story())
