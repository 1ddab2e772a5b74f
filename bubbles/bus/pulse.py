"""A timer that fires when nothing was heard for a while: what a door's alive parts and a caller's patience stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pulse:
    """Calls `beat` each time that `every_s` passed without `heard`. Hearing costs nothing: the timer looks when it is due, and sleeps on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, every_s: float, beat: Callable[[], None]) -> None:
        self._loop, self._every_s, self._beat = loop, every_s, beat
        self._last = loop.time()
        self._timer = loop.call_at(self._last + every_s, self._look)

    def heard(self) -> None:
        """Something was heard just now."""
        self._last = self._loop.time()

    def stop(self) -> None:
        """Never beat again."""
        self._timer.cancel()

    def _look(self) -> None:
        due = self._last + self._every_s
        if self._loop.time() >= due - 0.001:
            self._last = due = self._loop.time()
            due += self._every_s
            self._timer = self._loop.call_at(due, self._look)
            self._beat()
        else:
            self._timer = self._loop.call_at(due, self._look)
