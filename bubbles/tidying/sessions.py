"""What may go in the sessions' directories: old files in data/, and everywhere what half-written files a crash left.

It does not know how a directory is walked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator

from bubbles.tidying.ages import DATA_S, LITTER_S, Clock
from bubbles.tidying.spared import Spared
from bubbles.tidying.walk import Left, Old, directories, entered, info, tree
from bubbles.workspace.names import is_litter

_BESIDE = re.compile(r"\.(config\.json|[A-Z]+\.md)\.\d+")  # sessions/folder.py writes these beside what they become


def old(root: int, clock: Clock, spared: Spared, left: Left) -> Iterator[Old]:
    """What may go of all sessions of the home that is open as `root`."""
    if _is_link(root, "sessions"):
        left("sessions", "it is a link, and none is followed")
    for key in directories(root, "sessions"):
        with entered(root, "sessions") as fd:
            if fd is not None:
                yield from tree(fd, key, f"sessions/{key}", _Session(key, clock, spared), left)


def _is_link(root: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(info(root, name).st_mode)
    except OSError:
        return False


class _Session:
    """The rule of one session's directory."""

    def __init__(self, key: str, clock: Clock, spared: Spared) -> None:
        self._key, self._clock, self._spared = key, clock, spared

    def file(self, names: tuple[str, ...], info: Callable[[], os.stat_result]) -> str:
        if is_litter(names[-1]) or (len(names) == 1 and _BESIDE.fullmatch(names[0])):
            return "litter" if self._clock.is_old(info().st_mtime, LITTER_S) else ""
        if names[0] != "data" or len(names) == 1:
            return ""
        found = info()
        return "data" if self._clock.is_old(found.st_mtime, DATA_S) and not self._is_needed(names[1:], found) else ""

    def directory(self, names: tuple[str, ...], info: os.stat_result) -> str:
        if len(names) < 2 or names[0] != "data":
            return ""
        return "data" if self._clock.is_old(info.st_mtime, DATA_S) and not self._is_needed(names[1:], info) else ""

    def matters(self, names: tuple[str, ...]) -> bool:
        return names[:1] in ((), ("data",))

    def _is_needed(self, names: tuple[str, ...], info: os.stat_result) -> bool:
        if names[0] in self._spared.media:
            return True
        turn = self._spared.turn(self._key)
        return turn is not None and turn.needs(names, info)
