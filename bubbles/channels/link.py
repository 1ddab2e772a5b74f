"""The connection to the platform: made, listened on, made anew when it is lost or silent.

It does not know what is heard. A platform that is down is never a reason to end: it is said in the status, and tried again. Only rejected
credentials end the process for good (78), and being deaf though the platform is there ends it to be restarted (75).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from bubbles import log
from bubbles.channels.channel import Channel, Take
from bubbles.channels.liveness import Liveness
from bubbles.channels.settings import Settings
from bubbles.errors import BubblesError, Misconfigured, NotNow, TryAgain
from bubbles.spool.backoff import LONGEST_S

_END_S = 2.0  # what does not end within it never will
_PROBE_S = 10.0


class Link:
    """`on_up` is called each time the platform has let us in; `told` gets a line on how it stands whenever that changes."""

    def __init__(
        self, channel: Channel, take: Take, liveness: Liveness, settings: Settings, *, on_up: Callable[[], object], told: Callable[[str], object]
    ) -> None:
        self._channel, self._take, self._liveness, self._settings = channel, take, liveness, settings
        self._on_up, self._told = on_up, told
        self.state = "connecting"  # "up", "down"
        self.why = ""  # it is down
        self._listening: asyncio.Future[None] | None = None

    @property
    def lingers(self) -> bool:
        """Whether something of the channel's goes on though it was cancelled: no event loop can end then, only the process."""
        return self._listening is not None and not self._listening.done()

    async def run(self) -> None:
        """Be connected for ever. Raises Misconfigured for rejected credentials, TryAgain where only a new process may help."""
        wait_s = self._settings.first_s
        while True:
            error = await self._once()
            if error is None:
                continue
            if self._liveness.heard:
                wait_s = self._settings.first_s
            self._down(error)
            await asyncio.sleep(_asked_s(error) or wait_s)
            wait_s = min(2 * wait_s, self._settings.longest_s)

    async def open(self) -> None:
        """Log in. Raises Misconfigured or NotNow, or what the channel did not name."""
        self._liveness.begin()
        try:
            async with asyncio.timeout(self._settings.open_s):
                await self._channel.open()
        except TimeoutError:
            raise NotNow(f"no answer within {self._settings.open_s:g} s") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise NotNow("the login was cancelled") from None  # by the library that it is made with
        self.state, self.why = "up", ""
        self._told("connected")
        self._on_up()

    async def _once(self) -> Exception | None:
        """Connect and listen until that ends: by which error; None where a new client is to be made at once."""
        try:
            await self.open()
            await self._listen()
        except Misconfigured:
            raise
        except _Stale:
            await self._consider()
            return None
        except (BubblesError, OSError) as error:
            return error
        except Exception as error:  # whatever ends the listening, the link is built anew
            log.error("daemon.bug", "listening ended by a bug", channel=self._channel.name, error=error)
            return error
        return NotNow("the connection ended")

    async def _listen(self) -> None:
        """Until it ends or is stale."""
        self._liveness.begin()
        task = self._listening = asyncio.ensure_future(self._channel.listen(self._take))
        try:
            while not task.done():
                if (left_s := self._liveness.left_s) <= 0:
                    raise _Stale
                await asyncio.wait({task}, timeout=left_s)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_END_S)
        if not task.cancelled():
            task.result()

    async def _consider(self) -> None:
        """Silence for too long. Raises TryAgain where new clients have not helped, and the platform is there."""
        if self.lingers:
            raise TryAgain("what listened hears nothing and does not end", remedy="it is started anew; if that goes on, look at the log")
        worth = self._liveness.rebuild()
        log.event("daemon.warning", f"nothing was heard for {self._channel.stale_s:g} s; a new client is made", channel=self._channel.name)
        if not worth and await self._reachable():
            raise TryAgain("the platform can be reached, and nothing is heard from it", remedy="it is started anew; if that goes on, look at the log")

    async def _reachable(self) -> bool:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_PROBE_S):
                return await self._channel.reachable()
        return False

    def _down(self, error: Exception) -> None:
        why = error.text if isinstance(error, BubblesError) else f"{type(error).__name__}: {error}"
        if (self.state, self.why) != ("down", why):
            log.event("daemon.warning", f"{self._channel.name} is not connected: {why}", priority="warning", channel=self._channel.name)
        self.state, self.why = "down", why
        self._told(f"not connected, tried again: {why}")


class _Stale(Exception):
    """Nothing was heard for too long."""


def _asked_s(error: Exception) -> float:
    """How long the platform wants to be left alone; 0 where it did not say."""
    return min(max(error.until - time.time(), 0.0), LONGEST_S) if isinstance(error, NotNow) and error.until else 0.0
