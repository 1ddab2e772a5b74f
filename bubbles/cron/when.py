"""What people write for a time or an interval, in their time zone, and how a time is told to them.

It reads no clock. A time that the clocks skip in spring is refused, with the two that were probably meant; of a time that
they show twice in autumn the first is taken, and an offset written behind it (+01:00) means the other.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from bubbles.cron.schedule import LEAST_S, MOST_S
from bubbles.errors import Usage

FORMS = 'write "2026-12-01 09:00", "09:00", "tomorrow 09:00", "in 10m" or 2026-12-01T09:00+01:00'
INTERVALS = "write 30m, 2h, 1h30m, 45s, 1d or 1w"

_SECONDS = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_NAMES = {"w": "w week weeks", "d": "d day days", "h": "h hr hrs hour hours", "m": "m min mins minute minutes", "s": "s sec secs second seconds"}
_UNITS = {name: _SECONDS[unit] for unit, names in _NAMES.items() for name in names.split()}
_PART = re.compile(r"\s*([0-9]{1,9})\s*([a-z]+)", re.ASCII)
_CLOCK = re.compile(r"(?:(today|tomorrow)\s+)?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?", re.ASCII)
_DATE = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})[ tT]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]+)?)?\s*([zZ]|[+-][0-9]{2}:?[0-9]{2})?", re.ASCII
)


def moment(text: str, now: float, zone: tzinfo | None) -> float:
    """The time (epoch seconds) that `text` means at `now` in `zone` (None: the system's). Raises Usage where it means none, or one that is past."""
    words = text.strip().lower()
    try:
        if words.startswith("in "):
            return float(math.ceil(now) + interval(words[3:]))
        at = _at(words, now, zone)
    except (ValueError, OverflowError, OSError) as error:
        raise Usage(f"{text!r} is not a time: {error}", remedy=FORMS) from error
    if at is None:
        raise Usage(f"{text!r} is not a time", remedy=FORMS)
    if at <= now:
        raise Usage(f"{text!r} is past: it is {told(now, zone)}", remedy=FORMS)
    return at


def interval(text: str) -> int:
    """The seconds that `text` means. Raises Usage.

    >>> interval("1h30m"), interval("2 days"), interval("45s")
    (5400, 172800, 45)
    """
    words = text.strip().lower()
    if words.isascii() and words.isdigit():
        raise Usage(f"{text.strip()} of what?", remedy=f"write {words}m for minutes, {words}s for seconds")
    parts = _PART.findall(words)
    if not parts or _PART.sub("", words).strip() or any(unit not in _UNITS for _, unit in parts):
        raise Usage(f"{text!r} is not an interval", remedy=INTERVALS)
    total = sum(int(count) * _UNITS[unit] for count, unit in parts)
    if not LEAST_S <= total <= MOST_S:
        raise Usage(f"{text!r} is not an interval of one second to ten years", remedy=INTERVALS)
    return total


def zone(name: str) -> tzinfo | None:
    """The time zone of an IANA name; "" is the system's (None). Raises Usage."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError) as error:
        raise Usage(f"{name!r} is not a time zone that this system knows", remedy="write a name such as Europe/Berlin or Asia/Shanghai") from error


def told(at: float, zone: tzinfo | None) -> str:
    """A time for a person.

    >>> told(1796117400.0, ZoneInfo("Asia/Shanghai"))
    'Tue 2026-12-01 17:30 CST'
    """
    local = datetime.fromtimestamp(at, zone) if zone else datetime.fromtimestamp(at).astimezone()
    return f"{local:%a %Y-%m-%d %H:%M}{f':{local:%S}' if local.second else ''} {local:%Z}"


def spelled(seconds: int) -> str:
    """An interval for a person.

    >>> spelled(5400), spelled(14 * 86400)
    ('1h30m', '2w')
    """
    parts = []
    for unit, length in _SECONDS.items():
        count, seconds = divmod(seconds, length)
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


def _at(words: str, now: float, zone: tzinfo | None) -> float | None:
    if found := _DATE.fullmatch(words):
        naive = datetime(*(int(part or 0) for part in found.groups()[:6]))  # type: ignore[arg-type]
        return _epoch(naive, zone) if not found[7] else naive.replace(tzinfo=_offset(found[7])).timestamp()
    if found := _CLOCK.fullmatch(words):
        today = datetime.fromtimestamp(now, zone).replace(tzinfo=None)
        naive = today.replace(hour=int(found[2]), minute=int(found[3]), second=int(found[4] or 0), microsecond=0, fold=0)
        if found[1] == "tomorrow":
            return _epoch(naive + timedelta(days=1), zone)
        at = _epoch(naive, zone)
        return at if at > now or found[1] else _epoch(naive + timedelta(days=1), zone)
    return None


def _offset(text: str) -> tzinfo:
    if text in "zZ":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=minutes if text[0] == "+" else -minutes))


def _epoch(naive: datetime, zone: tzinfo | None) -> float:
    """The first time at which the clocks of `zone` show `naive`. Raises Usage if they never do."""
    first, second = (naive.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if datetime.fromtimestamp(first, zone).replace(tzinfo=None, fold=0) == naive:
        return first
    before, after = (f"{datetime.fromtimestamp(at, zone):%Y-%m-%d %H:%M}" for at in (second, first))
    place = f"in {zone}" if zone else "here"
    raise Usage(f"{naive:%Y-%m-%d %H:%M} does not exist {place}: the clocks are put forward then", remedy=f"write {before} or {after}")
