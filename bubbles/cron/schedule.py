"""When a job is due next: once at a time, or on the beats of an interval.

It reads no clock. The beats of an interval lie on a grid that was laid when the job was made (its anchor) and never
moves: not by restarts, not by beats that were missed, not by a clock that steps back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bubbles.errors import DataError, Misconfigured

KINDS = ("at", "every")
LEAST_S = 1
MOST_S = 10 * 366 * 86400
_LAST = 253402300799.0  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class Schedule:
    """`kind` "at": once at `at` (epoch seconds). `kind` "every": each `every_s` seconds, first so long after the anchor."""

    kind: str
    at: float = 0.0
    every_s: int = 0


def next_due(schedule: Schedule, after: float, anchor: float) -> float | None:
    """The first time after `after` at which it is due, None if there is none. All in epoch seconds; an interval's beats are whole ones.

    >>> next_due(Schedule("every", every_s=1800), after=10_000.5, anchor=1000)
    11800.0
    >>> next_due(Schedule("at", at=500.0), after=500.0, anchor=0) is None
    True
    """
    if schedule.kind == "at":
        return schedule.at if schedule.at > after else None
    start = math.floor(anchor)
    beats = (math.floor(after) - start) // schedule.every_s + 1
    return float(start + beats * schedule.every_s)


def from_dict(raw: Any) -> Schedule:
    """The schedule that a JSON object tells. Raises DataError saying what is wrong, Misconfigured for a kind that is not built yet."""
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if kind == "cron":
        raise Misconfigured("schedules of five fields are not built yet", remedy="use the kind every, or at")
    if kind == "at" and _is_number(at := raw.get("at"), int | float) and 0 < at <= _LAST:
        return Schedule("at", at=float(at))
    if kind == "every" and _is_number(every_s := raw.get("every_s"), int) and LEAST_S <= every_s <= MOST_S:
        return Schedule("every", every_s=every_s)
    if kind == "at":
        raise DataError("schedule: 'at' is a time in epoch seconds")
    if kind == "every":
        raise DataError(f"schedule: 'every_s' is a whole number of seconds from {LEAST_S} to {MOST_S}")
    raise DataError(f"a schedule is an object with a 'kind': {' or '.join(KINDS)}")


def to_dict(schedule: Schedule) -> dict[str, Any]:
    """Its JSON object."""
    if schedule.kind == "at":
        return {"kind": "at", "at": schedule.at}
    return {"kind": "every", "every_s": schedule.every_s}


def _is_number(value: Any, types: Any) -> bool:
    return isinstance(value, types) and not isinstance(value, bool)
