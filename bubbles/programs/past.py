"""What people write for a time that is past: `10 min ago`, `2h`, `today`, `12:40`, `2026-11-30`, `2026-11-30T12:40+01:00`.

It reads no clock.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from bubbles.cron.when import interval
from bubbles.errors import Usage

FORMS = "write '10 min ago', 2h, today, yesterday, 12:40, 2026-11-30 or 2026-11-30T12:40"
_DAYS = {"today": 0, "yesterday": 1}
_CLOCK = re.compile(r"(?:(today|yesterday)\s+)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)", re.ASCII)
_NONE = re.compile(r"0+\s*([a-z]+)", re.ASCII)
_EPOCH = re.compile(r"@([0-9]{1,10}(?:\.[0-9]{1,9})?)", re.ASCII)


def past(text: str, now: float) -> float:
    """The time (epoch seconds) that `text` means at `now`; a time of day alone is the last of that name. Raises Usage.

    >>> past("1 min ago", 1764500400.0), past("2h", 1764500400.0), past("@1764500400.5", 0.0)
    (1764500340.0, 1764493200.0, 1764500400.5)
    """
    words = " ".join(text.lower().split())
    try:
        return _past(words, now)
    except (ValueError, OverflowError, OSError, Usage) as error:
        raise Usage(f"{text!r} is not a time", remedy=FORMS) from error


def _past(words: str, now: float) -> float:
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    if words == "now":
        return now
    if words in _DAYS:
        return (today - timedelta(days=_DAYS[words])).timestamp()
    if found := _EPOCH.fullmatch(words):
        return float(found[1])
    if found := _CLOCK.fullmatch(words):
        clock = datetime.strptime(found[2], "%H:%M:%S" if found[2].count(":") == 2 else "%H:%M")
        at = today.replace(hour=clock.hour, minute=clock.minute, second=clock.second) - timedelta(days=_DAYS.get(found[1], 0))
        return at.timestamp() if found[1] or at.timestamp() <= now else (at - timedelta(days=1)).timestamp()
    if words[:4].isdigit() and words[4:5] == "-":
        return datetime.fromisoformat(words.upper()).timestamp()
    words = words.removesuffix(" ago").removeprefix("-")
    if found := _NONE.fullmatch(words):
        interval(f"1{found[1]}")  # nothing of a unit that there is
        return now
    return now - interval(words)
