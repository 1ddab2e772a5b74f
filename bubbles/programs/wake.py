"""What wakes a program that sleeps until something happens: a signal, or a thread of its own.

It does not know what a signal is to bring about.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

from bubbles.readable import readable

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Wake:
    """`wait` sleeps until `heard` or `touch` is called. Both may be called at any moment: nothing is locked, so a signal's handler cannot hang."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self.signals: list[int] = []  # those that came, in order

    def listen(self) -> None:
        """Hear what asks a program to end; what nohup has put aside stays so. Called by the main thread."""
        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self.heard)

    def heard(self, number: int, frame: FrameType | None = None) -> None:
        """The handler of a signal."""
        self.signals.append(number)
        self.touch()

    def touch(self) -> None:
        """Have `wait` return, now or when it is next called."""
        with contextlib.suppress(BlockingIOError):  # full of reasons to wake up
            os.write(self._write, b".")

    def wait(self, timeout_s: float | None = None, *others: int) -> list[int]:
        """Sleep until there is a reason not to, or for so long. Those of `others`, descriptors as well, that can be read."""
        found = readable([self._read, *others], timeout_s)
        if self._read in found:
            os.read(self._read, 1 << 16)
            found.remove(self._read)
        return found
