"""How far a long copy is, for whoever watches: one line at a terminal, once it takes more than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

SILENT_S = 1.0
_EVERY_S = 0.1


def counted(files: int, size: int) -> str:
    """So many files and bytes, in words.

    >>> counted(1, 999), counted(2, 1_234), counted(3, 93_000_000), counted(4, 5_600_000_000)
    ('1 file, 999 bytes', '2 files, 1.2 KB', '3 files, 93.0 MB', '4 files, 5.6 GB')
    """
    return f"{files} file{'s' * (files != 1)}, {measured(size)}"


def measured(size: int) -> str:
    """So many bytes, in words."""
    if size < 1000:
        return f"{size} byte{'s' * (size != 1)}"
    unit, of = next((unit, of) for unit, of in (("KB", 1e3), ("MB", 1e6), ("GB", 1e9)) if size < of * 999.95 or unit == "GB")
    return f"{size / of:.1f} {unit}"


class Meter:
    """Counts files and bytes while the block lasts; `told` is called with a path and how many of its bytes came."""

    def __init__(self, what: str, *, silent_s: float = SILENT_S) -> None:
        self._what = what
        self._next = time.monotonic() + silent_s if sys.stderr.isatty() else float("inf")
        self._last, self._files, self._bytes = "", 0, 0
        self._line: Any = None

    def told(self, path: str, size: int) -> None:
        self._files += path != self._last
        self._last = path
        self._bytes += size
        if (now := time.monotonic()) >= self._next:
            self._next = now + _EVERY_S
            self._show(f"{self._what}: {counted(self._files, self._bytes)}")

    def _show(self, text: str) -> None:
        if self._line is None:
            from rich.console import Console

            self._line = Console(stderr=True).status(text)
            self._line.start()
        self._line.update(text)

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._line is not None:
            self._line.stop()
