"""From the platform to the spool: what has been taken survives whatever comes.

It does not know what becomes of a message, nor whether anybody is there to take it out again. Who may speak is the gate's to say (gate.py).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from bubbles.channels.gate import Gate
from bubbles.channels.liveness import Liveness
from bubbles.channels.policy import Verdict
from bubbles.errors import Misconfigured, TryAgain
from bubbles.messages import Inbound, to_dict
from bubbles.spool import Queue


class Inlet:
    """What a channel's `listen` is given (channel.Take). `ring` is told that something may be new; it never fails and is never waited for.
    `media`: the directory where files that came along lie; `now`: epoch seconds."""

    def __init__(
        self, queue: Queue, gate: Gate, media: Path, liveness: Liveness, ring: Callable[[], object], now: Callable[[], float] = time.time
    ) -> None:
        self._queue = queue
        self._gate = gate
        self._media = media
        self._liveness = liveness
        self._ring = ring
        self._now = now
        self.last: float | None = None  # when a message last came in

    async def __call__(self, inbound: Inbound) -> None:
        """Store a message, synced; one whose id is known changes nothing, and one of somebody who may not speak is dropped with its files.

        Raises TryAgain where there is no room: it must not be confirmed then.
        """
        self._liveness.proved()
        try:
            taken = self._gate.admit(inbound)
            if taken is None:
                self._clear(inbound)
                return
            if self._queue.put(taken.id, to_dict(taken)):
                self.last = self._now()
        except Misconfigured as error:  # a disk that may not be written says nothing about the credentials
            raise TryAgain(error.text, remedy=error.remedy) from error
        except OSError as error:
            raise TryAgain(f"{inbound.id} cannot be taken: {error.strerror or error}", remedy="look at: df -h") from error
        self._ring()  # though it was known: whoever stored it may have been killed before this

    def wants(self, inbound: Inbound) -> bool:
        """Whether a message would be stored: only then are the files that come with it worth fetching."""
        return self._gate.verdict(inbound) in (Verdict.TAKE, Verdict.OVERHEAR)

    def alive(self) -> None:
        self._liveness.proved()

    def _clear(self, inbound: Inbound) -> None:
        for media in inbound.media:
            if os.path.dirname(os.path.normpath(media.path)) == str(self._media):
                with contextlib.suppress(OSError):
                    os.unlink(media.path)
