"""How fast a channel speaks: no faster than its platform bears, in each chat and in all together.

It does not know what is said. Who waits for the pace of his chat has not yet asked for that of all, so he holds up nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_CHATS_MOST = 10_000
_INSTANT_S = 1e-6


class _Bucket:
    """One message each `every_s` seconds in the long run, `burst` at once after a silence. 0 seconds: any number."""

    __slots__ = ("burst", "every_s", "full")

    def __init__(self, every_s: float, burst: int) -> None:
        self.every_s, self.burst = every_s, max(1, burst)
        self.full = 0.0  # when all of the burst may be used again

    def left_s(self, now: float) -> float:
        """How long the next message has to wait."""
        left_s = self.full - (self.burst - 1) * self.every_s - now if self.every_s else 0.0
        return left_s if left_s > _INSTANT_S else 0.0

    def take(self, now: float) -> float:
        """As `left_s`, and that place is taken."""
        wait_s = self.left_s(now)
        self.full = max(self.full, now) + self.every_s
        return wait_s


class Pace:
    """`chat_s`: seconds for a message in a chat, of which `burst` may come at once; `all_per_s`: messages a second in all; 0: any number.

    `now`: monotonic seconds.
    """

    def __init__(self, chat_s: float, burst: int, all_per_s: float, now: Callable[[], float]) -> None:
        self._chat_s, self._burst, self._now = chat_s, burst, now
        self._chats: dict[str, _Bucket] = {}
        self._all = _Bucket(1 / all_per_s if all_per_s else 0.0, max(1, int(all_per_s)))

    async def wait(self, chat: str) -> None:
        """Until a message may be sent there."""
        while wait_s := self._chat(chat).left_s(self._now()):
            await asyncio.sleep(wait_s)
        if wait_s := self._all.take(self._now()):
            await asyncio.sleep(wait_s)
        self._chat(chat).take(self._now())  # from when it went, not from when it might have

    def spare(self, chat: str) -> bool:
        """Whether one may be sent there at once; it counts then. For what is better not sent than late."""
        own, now = self._chat(chat), self._now()
        if own.left_s(now) or self._all.left_s(now):
            return False
        own.take(now)
        self._all.take(now)
        return True

    def _chat(self, chat: str) -> _Bucket:
        if chat not in self._chats:
            if len(self._chats) >= _CHATS_MOST:
                now = self._now()
                self._chats = {name: bucket for name, bucket in self._chats.items() if bucket.full > now}
            self._chats[chat] = _Bucket(self._chat_s, self._burst)
        return self._chats[chat]
