"""The platform clock: when the platform last proved that it hears us, and what its silence means.

It does not know what a proof is, nor how a client is made. Silence for longer than the bound: make a new client. Two new clients that heard
nothing either, while the platform can be reached: something in this process is wrong, and a new process is the cure.
"""

from __future__ import annotations

from collections.abc import Callable

REBUILDS = 2


class Liveness:
    """`stale_s`: the longest silence of a platform that is there; `now`: monotonic seconds."""

    def __init__(self, stale_s: float, now: Callable[[], float]) -> None:
        self._stale_s = stale_s
        self._now = now
        self._since: float | None = None
        self._last: float | None = None
        self.heard = False  # something, by the client that listens now
        self.rebuilds = 0  # clients made anew since the last proof

    def begin(self) -> None:
        """A client begins to listen; it has the whole time before it."""
        self._since = self._now()
        self.heard = False

    def proved(self) -> None:
        """The platform is there."""
        self._since = self._last = self._now()
        self.heard = True
        self.rebuilds = 0

    @property
    def left_s(self) -> float:
        """How long it may stay silent from now; 0 and less: it is stale."""
        return self._stale_s if self._since is None else self._since + self._stale_s - self._now()

    @property
    def silent_s(self) -> float | None:
        """Since the last proof; None where there was none yet."""
        return None if self._last is None else self._now() - self._last

    def rebuild(self) -> bool:
        """Whether another client is worth a try; counts it."""
        self.rebuilds += 1
        return self.rebuilds <= REBUILDS
