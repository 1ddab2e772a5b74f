"""Which processes can have been started since a moment, told by the numbers that the kernel gives out one after another.

It does not know whose they are. Most commands start none at all, and two reads of /proc are then enough to be sure of it.
"""

from __future__ import annotations

import os
import time

_MANY = 8192  # started on the whole machine; fewer than these, and no number can have been given out twice
_QUICK_S = 0.02  # a time in which no machine starts so many
_STALE_S = 1.0
_FEW = 64  # numbers that are asked for one by one


class Since:
    """What was started after the process `first`, which is not reaped yet. To be made when that has just been started."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._counted = _counted(_STALE_S)

    @property
    def is_nothing(self) -> bool:
        """Whether no process and no thread was started on the whole machine since `first`. False where that cannot be told."""
        return last_given() == self._first and not self._is_long_ago()

    def numbers(self) -> list[int]:
        """The processes it may have been, others among them where that cannot be told exactly. [] where there is no /proc."""
        last = last_given()
        if not last or self._is_long_ago():
            return [number for number in everyone() if number not in (self._first, os.getpid())]
        if 0 <= last - self._first <= _FEW and not any(map(_is_there, range(self._first + 1, last + 1))):
            return []  # listing all is dearer
        if self._first < last:
            return [number for number in everyone() if self._first < number <= last]
        return [number for number in everyone() if number > self._first or number <= last]

    def _is_long_ago(self) -> bool:
        at, count = self._counted
        return time.monotonic() - at > _QUICK_S and _counted(0)[1] - count >= _MANY


_last_count: tuple[float, int] = (float("-inf"), 0)


def _counted(stale_s: float) -> tuple[float, int]:
    """When it was counted, and how many processes and threads the machine had started by then; asked again if that is older than `stale_s`.

    An older count than one needs is a safe one: it makes more seem to have been started since.
    """
    global _last_count
    now = time.monotonic()
    if now - _last_count[0] > stale_s:
        _, _, rest = _read("/proc/stat", 1 << 20).partition(b"\nprocesses ")
        _last_count = now, int(rest.split(maxsplit=1)[0]) if rest else 0
    return _last_count


def last_given() -> int:
    """The process number that was given out last; 0 where nobody tells."""
    words = _read("/proc/loadavg", 256).split()
    return int(words[-1]) if words else 0


def everyone() -> list[int]:
    """The number of every process that can be seen; [] where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _is_there(number: int) -> bool:
    return os.path.exists(f"/proc/{number}")


def _read(path: str, most: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, most)
    except OSError:
        return b""
    finally:
        os.close(fd)
