"""Signing in by a code: it is shown, and asked after until it was typed, has expired or was refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bubbles.errors import RateLimited, TryAgain
from bubbles.providers.issuer import Device, Issuer
from bubbles.providers.tokens import Login

_LEAST_S = 0.05


async def by_code(
    issuer: Issuer, tell: Callable[[Device], None], now: Callable[[], float], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> Login:
    """The login, once the code that `tell` has shown was typed. Raises ModelError, TryAgain where its time is over; a server that is not there
    for a moment is asked again.
    """
    device = await issuer.begin()
    tell(device)
    end, wait_s = now() + device.lasts_s, device.interval_s
    while now() < end:
        await sleep(max(_LEAST_S, wait_s))
        try:
            found = await issuer.look(device)
        except RateLimited as error:  # ModelDown among them
            wait_s = max(wait_s, min(error.retry_after_s, 60.0))
            continue
        if isinstance(found, Login):
            return found
        wait_s = found
    raise TryAgain("nobody typed the code in its time", remedy="try again: it lasts for a quarter of an hour")
