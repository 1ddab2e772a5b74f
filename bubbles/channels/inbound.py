"""From the platform to the spool: what has been taken survives whatever comes.

It does not know what becomes of a message, nor whether anybody is there to take it out again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bubbles.channels.liveness import Liveness
from bubbles.errors import Misconfigured, TryAgain
from bubbles.messages import Inbound, to_dict
from bubbles.spool import Queue


class Inlet:
    """What a channel's `listen` is given (channel.Take). `ring` is told that something may be new; it never fails and is never waited for.
    `now`: epoch seconds."""

    def __init__(self, queue: Queue, liveness: Liveness, ring: Callable[[], object], now: Callable[[], float] = time.time) -> None:
        self._queue = queue
        self._liveness = liveness
        self._ring = ring
        self._now = now
        self.last: float | None = None  # when a message last came in

    async def __call__(self, inbound: Inbound) -> None:
        """Store a message, synced; one whose id is known changes nothing. Raises TryAgain where there is no room: it must not be confirmed then."""
        self._liveness.proved()
        try:
            if self._queue.put(inbound.id, to_dict(inbound)):
                self.last = self._now()
        except Misconfigured as error:  # a disk that may not be written says nothing about the credentials
            raise TryAgain(error.text, remedy=error.remedy) from error
        self._ring()  # though it was known: whoever stored it may have been killed before this

    def alive(self) -> None:
        self._liveness.proved()
