"""The output of a job, a page at a time: pages follow each other without a gap, and no character is cut in two.

It does not know what a job is; the output is a file that may still grow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bubbles import regular
from bubbles.kernel.clean import clean
from bubbles.kernel.weight import tokens
from bubbles.sandboxes.output import decoded, whole

_BYTES_OF_A_TOKEN = 4  # what is read for one; more would seldom fit


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of an output, from byte `start` to byte `end` of `size` that there are now."""

    text: str
    start: int
    end: int
    size: int


def page(path: Path, offset: int, most_tokens: int, *, grows: bool) -> Page:
    """The page that begins at `offset` (negative: so many bytes before the end), of `most_tokens` at most. Raises OSError but for what is not there.

    Of an output that `grows`, a character that has not come whole is left to the next page.
    """
    try:
        fd = regular.opened(path)
    except FileNotFoundError:
        return Page("", 0, 0, 0)
    try:
        size = os.fstat(fd).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        data = os.pread(fd, max(most_tokens, 1) * _BYTES_OF_A_TOKEN, start)
    finally:
        os.close(fd)
    if start + len(data) < size:
        data = data[: _line(data, len(data)) or whole(data)]
    elif grows:
        data = data[: whole(data)]
    data, text = _fitting(data, most_tokens)
    return Page(text, start, start + len(data), size)


def _fitting(data: bytes, most_tokens: int) -> tuple[bytes, str]:
    """As much of the head of `data` as weighs no more, up to the end of a line where that is near; and its text."""
    while True:
        text = decoded(data)
        weight = tokens(clean(text))
        if weight <= most_tokens or len(data) <= 4:
            return data, text
        shorter = min(len(data) * most_tokens // weight, len(data) - 1)
        data = data[: _line(data, shorter) or whole(data[: max(shorter, 4)]) or shorter]


def _line(data: bytes, most: int) -> int:
    """Where the last line ends among the first `most` bytes; 0 where that is not near to their end."""
    return data.rfind(b"\n", most * 7 // 8, most) + 1


def last(path: Path, most_bytes: int) -> Page:
    """The end of an output that is whole, from the beginning of a line on where it has such; empty where it is gone."""
    try:
        found = page(path, -most_bytes, most_bytes, grows=False)
    except OSError:
        return Page("", 0, 0, 0)
    line = found.text.find("\n") + 1 if found.start else 0
    return Page(found.text[line:].lstrip("\ufffd"), found.start, found.end, found.size)
