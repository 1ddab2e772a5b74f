"""When to try again: a function of a message's age alone, so there is no counter to store.

It does not know what is tried. The n-th try comes when the message is (2n)² seconds old: after 4 s, 16 s, 36 s, 64 s …,
some ten tries in the first seven minutes and 146 in a day; then a person decides.
"""

from __future__ import annotations

import math

LONGEST_S = 3600.0  # nothing waits in a queue for longer than this; who wants more is asked again, and puts it off again
GIVE_UP_S = 24 * 3600.0

_STEP = 2.0


def delay(age_s: float) -> float:
    """Seconds until the next try of a message that is `age_s` old. A negative age (the clock stepped back) counts as 0.

    >>> [delay(age) for age in (0, 4, 16, 3600)]
    [4.0, 12.0, 20.0, 244.0]
    """
    root = math.sqrt(min(max(age_s, 0.0), GIVE_UP_S))
    return (root + _STEP) ** 2 - root**2


def given_up(age_s: float) -> bool:
    """Whether a message is too old to be tried again."""
    return age_s >= GIVE_UP_S
