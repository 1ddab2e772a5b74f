"""The space that commands must leave free on the disk: no quota binds an ordinary user's files, so somebody has to look.

It does not know whose files fill it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from bubbles.errors import ToolError
from bubbles.sandboxes.sandbox import Bounds

_LOOK_S, _SOON_S = 2.0, 0.2  # between two looks; the second where no more than some times of what has to stay is free
_TIMES = 4
_PART = 10  # no more than a tenth of a file system has to stay free, however small it is
_NAMES, _NAMES_PART = 1000, 100  # likewise of the files that it can still hold


def check(paths: Iterable[Path], bounds: Bounds) -> None:
    """Raises ToolError where a file system on which one of `paths` lies is too full for a command to be started."""
    for path in apart(paths):
        if why := shortage(path, bounds):
            raise ToolError(
                f"the command was not started: {why}",
                remedy="the owner makes room there, or lowers tools.sandbox.limits.free_bytes; old files of sessions go by: bubbles tidy",
            )


async def watch(paths: Iterable[Path], bounds: Bounds, over: Callable[[], None]) -> None:
    """Call `over` once when one of those file systems has become too full; then end. Otherwise it goes on until it is cancelled."""
    watched = apart(paths)

    def wanting(times: int) -> bool:
        return any(shortage(path, bounds, times) for path in watched)

    while True:
        await asyncio.sleep(_SOON_S if await asyncio.to_thread(wanting, _TIMES) else _LOOK_S)  # what lies on a network may be slow to tell
        if await asyncio.to_thread(wanting, 1):
            return over()


def apart(paths: Iterable[Path]) -> list[Path]:
    """One of `paths` for each file system; what is not there is on none."""
    found: dict[int, Path] = {}
    for path in paths:
        with contextlib.suppress(OSError):
            found.setdefault(os.stat(path).st_dev, path)
    return list(found.values())


def shortage(path: Path, bounds: Bounds, times: int = 1) -> str:
    """What is wanting on the file system of `path` until so many times of what has to stay free is; "" if nothing is, or nobody tells.

    `free_bytes` 0 asks for nothing.
    """
    if not bounds.free_bytes:
        return ""
    with contextlib.suppress(OSError):
        told = os.statvfs(path)
        free, least = told.f_bavail * told.f_frsize, times * min(bounds.free_bytes, told.f_blocks * told.f_frsize // _PART)
        if free < least:
            return f"the disk with {path} is nearly full: {_mebibytes(free)} are free, and {_mebibytes(least)} have to stay free"
        if told.f_favail < times * min(_NAMES, told.f_files // _NAMES_PART):  # both are 0 where files are not counted
            return f"the disk with {path} can hold hardly any more files: {told.f_favail}"
    return ""


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"
