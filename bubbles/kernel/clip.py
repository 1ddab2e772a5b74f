"""Text made short enough for a model: the middle left out, and the cut announced.

It does not know where the text comes from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import takewhile

from bubbles.kernel.weight import LONG, MOST_CHARACTERS, MOST_TOKENS, tokens

HEAD = 0.6  # of what is kept
_PAGE_LEAST = 2000  # characters that are weighed at once; less is not worth dividing
_SAMPLE = 2000  # of a larger page, how many are weighed
LEAST_TOKENS = 24  # under this cap only a head is kept: a notice would leave no room for it

_FLAG = re.compile("[\U0001f1e6-\U0001f1ff]")  # half of one
_JOINING = frozenset("\u200c\u200d\ufe0e\ufe0f\u20e3")


def clip(text: str, max_tokens: int) -> str:
    """`text`, or its head and its tail with a notice of how much is missing between them, never over `max_tokens`.

    >>> print(clip("\\n".join(f"line {n}" for n in range(1000)), 38))
    line 0
    line 1
    line 2
    line 3
    [… 8 835 characters left out …]
    line 997
    line 998
    line 999
    """
    if len(text) * MOST_TOKENS <= max_tokens or (len(text) <= max_tokens * MOST_CHARACTERS and tokens(text) <= max_tokens):
        return text
    if max_tokens < LEAST_TOKENS:
        return _head(text, max(max_tokens, 0))
    room = max_tokens - LEAST_TOKENS // 2
    room -= room // 100 if room > LONG // MOST_CHARACTERS else 0  # what is weighed by samples may come out heavier the next time
    while True:
        head = _head(text, int(room * HEAD))
        tail = _tail(text[len(head) :], room - int(room * HEAD))
        clipped = f"{head}{_notice(len(text) - len(head) - len(tail), head)}{tail}"
        weight = tokens(clipped)
        if weight <= max_tokens:
            return clipped
        room = min(room * max_tokens // weight, room * 99 // 100)


def _notice(left_out: int, head: str) -> str:
    return f"{'' if not head or head.endswith(chr(10)) else chr(10)}[… {_count(left_out)} characters left out …]\n"


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _head(text: str, max_tokens: int) -> str:
    length = _length(lambda first, last: text[first:last], len(text), max_tokens)
    line = text.rfind("\n", length * 7 // 8, length) + 1
    return text[: line or _whole(text, length, -1)]


def _tail(text: str, max_tokens: int) -> str:
    start = len(text) - _length(lambda first, last: text[len(text) - last : len(text) - first], len(text), max_tokens)
    line = text.find("\n", start, start + (len(text) - start) // 8) + 1
    return text[line or _whole(text, start, 1) :]


def _length(part: Callable[[int, int], str], most: int, max_tokens: int) -> int:
    """How many characters of a text, counted from one of its ends, weigh at most `max_tokens`: nearly the largest number.

    `part(first, last)` is what lies between two places. Each is weighed about once: page after page as long as they fit, then within a page.
    """
    page = max(max_tokens // 8, _PAGE_LEAST)
    sample = min(page, _SAMPLE)
    left, start = float(max_tokens), 0
    while start < most:
        size = min(page, most - start)
        weight = tokens(part(start, start + min(size, sample))) * max(size / sample, 1.0)
        if weight > left and size > sample:
            return start + int(size * left / weight)
        if weight > left:
            return start + _within(lambda n, start=start: part(start, start + n), size, int(left))  # type: ignore[misc]
        left, start = left - weight, start + size
    return most


def _within(part: Callable[[int], str], most: int, max_tokens: int) -> int:
    """The same by trial, within one page."""
    fits, over = 0, min(most, max_tokens * MOST_CHARACTERS) + 1
    guess = over - 1
    while over - fits > 1 + fits // 64:
        weight = tokens(part(guess))
        if weight <= max_tokens:
            fits = guess
        else:
            over = guess
        aimed = guess * max_tokens // max(weight, 1)
        guess = min(max(aimed, fits + 1), over - 1) if fits < aimed < over else (fits + over) // 2
    return fits


def _whole(text: str, place: int, step: int) -> int:
    """The place nearest to `place` in the direction of `step` that is not inside a character as people see it."""
    for at in range(place, min(max(place + 64 * step, 0), len(text)), step):
        if not (0 < at < len(text) and _joined(text, at)):
            return at
    return place


def _joined(text: str, at: int) -> bool:
    """Whether what stands before and behind `at` is one character on a screen: an accent, an emoji's colour or family, a flag, a surrogate pair."""
    before, behind = text[at - 1], text[at]
    if before == "\u200d" or behind in _JOINING or "\udc00" <= behind <= "\udfff" or "\U0001f3fb" <= behind <= "\U0001f3ff":
        return True
    if _FLAG.match(before) and _FLAG.match(behind):
        return sum(1 for _ in takewhile(_FLAG.match, reversed(text[:at]))) % 2 == 1
    return unicodedata.category(behind) in ("Mn", "Me", "Mc")
