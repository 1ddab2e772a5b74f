"""Words on their way in, and how many of them one message may have.

What is longer is no message but a file: the model could not read it at once, and every later question would carry it.
"""

from __future__ import annotations

import sys

from bubbles.errors import DataError

MOST_BYTES = 1_000_000  # of UTF-8


def piped(instead: str) -> str:
    """All of standard input. Raises DataError, with `instead` as its remedy, where that is too much for one message."""
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    return few(data.decode("utf-8", "replace"), instead)


def few(text: str, instead: str) -> str:
    """`text`, if it fits in one message; else as `piped`."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise DataError(f"a message has {MOST_BYTES // 1_000_000} MB at most", remedy=instead)
    return text
