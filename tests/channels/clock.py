"""Time that passes only when nobody has anything to do: hours of waiting in no time, and nothing that depends on the machine."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

START = 1_764_500_400.0


class Clock:
    """`now` is epoch seconds and may be set; `passed` is the event loop's time, which no setting changes."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._start = START

    @property
    def now(self) -> float:
        return self._start + self.passed

    @now.setter
    def now(self, to: float) -> None:
        self._start = to - self.passed

    def __call__(self) -> float:
        return self.now


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    clock: Clock

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now; where nothing is, the time it would have waited for has passed."""
        assert timeout is not None, "everybody waits for somebody else"
        self.clock.passed += max(timeout, 0)
        return super().select(0)


def passing(clock: Clock, story: Coroutine[Any, Any, Any]) -> Any:
    """What a story comes to, told in the clock's time."""

    def loop() -> asyncio.SelectorEventLoop:
        selector = _Selector()
        selector.clock = clock
        made = asyncio.SelectorEventLoop(selector)
        made.time = lambda: clock.passed  # type: ignore[method-assign]
        return made

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(story)
