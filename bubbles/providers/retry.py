"""The one retry loop. It does not know what is tried: no provider and no library below it retries by itself."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from bubbles.errors import ModelError, RateLimited

LONGEST_S = 60.0  # a provider that asks for a longer pause is not waited for
_FIRST_S = 1.0
_MOST_S = 30.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """The seam for tests: seconds that never go back, a pause, and chance in 0…1."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True)
class Again:
    """A failure that is followed by another attempt: `attempt` counts from 1, the next one begins in `in_s`."""

    category: str
    attempt: int
    in_s: float


def pause_s(attempt: int, retry_after_s: float, chance: float) -> float:
    """How long to wait after the failed `attempt` (from 1): what the provider asked for, up to a tenth more; else 1, 2, 4 … s, more or less.

    >>> [pause_s(n, 0, 0.5) for n in (1, 2, 3, 9)]
    [1.0, 2.0, 4.0, 30.0]
    >>> pause_s(1, 7, 0)
    7.0
    """
    if retry_after_s > 0:
        return retry_after_s * (1 + chance / 10)
    return float(min(_MOST_S, _FIRST_S * 2 ** min(attempt - 1, 16)) * (0.75 + chance / 2))


async def persist(attempt: Callable[[], Awaitable[T]], retries: int, on_again: Callable[[Again], None], clock: Clock) -> tuple[T, int]:
    """The result of `attempt` and how many times it was made: at most 1 + `retries`. Raises the last ModelError with its `attempts` counted.

    A pause that the provider asks for is kept; one longer than LONGEST_S ends the trying, since to ask earlier is of no use.
    """
    made = 0
    while True:
        made += 1
        try:
            return await attempt(), made
        except ModelError as error:
            error.attempts = made
            asked_s = error.retry_after_s if isinstance(error, RateLimited) else 0.0
            if not error.temporary or made > retries or asked_s > LONGEST_S:
                raise
            wait_s = pause_s(made, asked_s, clock.chance())
            on_again(Again(error.kind, made, wait_s))
        await clock.sleep(wait_s)


def retry_after_s(headers: Mapping[str, str], now: float) -> float:
    """What `Retry-After` (seconds, or an HTTP date) or `retry-after-ms` asks for; 0 where it asks for nothing. `headers` by lower-case name.

    >>> retry_after_s({"retry-after": "2.5"}, 0), retry_after_s({"retry-after": "Thu, 01 Jan 1970 00:02:00 GMT"}, 100), retry_after_s({}, 0)
    (2.5, 20.0, 0.0)
    """
    if ms := _number(headers.get("retry-after-ms", "")):
        return ms / 1000
    text = headers.get("retry-after", "")
    if seconds := _number(text):
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0
