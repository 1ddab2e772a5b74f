"""JSON as servers write it: what is wrong in a place that nobody reads costs nobody an answer. Pure."""

from __future__ import annotations

import json
import math
from typing import Any

ANSWER_MOST = 32 << 20  # bytes of one answer, as they are once it is unpacked
COUNT_MOST = 10**9  # tokens: no window comes near, and sums of as many as there may be stay whole numbers of 64 bits


def parsed(data: bytes) -> Any:
    """The value in `data`. Bytes that are none of UTF-8 become U+FFFD, numbers that no machine holds infinite. Raises ValueError, RecursionError."""
    text = data.decode("utf-8-sig", "replace")
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # more digits than Python reads
        return json.loads(text, parse_int=float)


def counted(value: Any) -> int | None:
    """A count of tokens, or None for what cannot be one.

    >>> counted(7), counted(7.0), counted(-1), counted(10**25), counted(float("inf")), counted("7"), counted(True)
    (7, 7, None, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value <= COUNT_MOST else None
