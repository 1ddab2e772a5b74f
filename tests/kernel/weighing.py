"""How many characters were weighed while something ran: what a large text costs, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from bubbles.kernel import weight


class Count:
    """Characters weighed so far."""

    characters = 0


@contextmanager
def weighing() -> Iterator[Count]:
    """Counts what is weighed inside of it."""
    count = Count()

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is weight._exact.__code__:
            count.characters += len(frame.f_locals["text"])

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield count
    finally:
        sys.setprofile(before)
