"""A home swept: one old thing from each kind of place in turn, so that no place waits for another, until enough is gone.

Deleting much at once makes a disk slow for others for minutes (ext4), so a run has a limit, and rests after each hundred.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.tidying import leftovers, sessions, spool
from bubbles.tidying.ages import Clock, Mark
from bubbles.tidying.spared import Spared
from bubbles.tidying.walk import Old

MOST = 1000  # deleted in one run
_BATCH = 100
_REST_S = 0.1
_PASSED = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)  # somebody was faster, or has put something there


@dataclass(slots=True)
class Swept:
    """What a run has done. `left`: what could not be looked into or deleted, and why; `more`: whether the limit left something for the next run."""

    kinds: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    left: dict[str, str] = field(default_factory=dict)
    more: bool = False

    @property
    def deleted(self) -> int:
        return self.kinds.total()


def sweep(
    home: Home,
    *,
    most: int | None = MOST,
    dry: bool = False,
    told: Callable[[Old], object] = lambda old: None,
    now: Mark | None = None,
    sockets: dict[Path, re.Pattern[str]] | None = None,
    rest_s: float = _REST_S,
) -> Swept:
    """Delete what is old, `most` at most (None: all), or with `dry` only tell of it. Raises TryAgain where another run is under way.

    `told` is called with each thing that is gone, or would be. `sockets`: where to look for sockets (leftovers.places).
    """
    swept = Swept()
    with _alone(home) as root:
        clock = Clock(now or Mark.now(), Mark.read(home.run / "tidied"))
        for old in _limited(_all(home, root, clock, swept, leftovers.places(home) if sockets is None else sockets), most, swept):
            if dry or _removed(old, swept):
                swept.kinds[old.kind] += 1
                swept.bytes += old.size
                told(old)
                if not dry and swept.deleted % _BATCH == 0:
                    time.sleep(rest_s)
        if not dry:
            clock.next_mark.write(home.run / "tidied")
    return swept


@contextmanager
def _alone(home: Home) -> Iterator[int]:
    """The home's own directory, open, and locked against a second run: that needs no file, which a full disk would not give."""
    root = os.open(home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TryAgain(f"{home.root} is being tidied already", remedy="wait until that is done") from None
        yield root
    finally:
        os.close(root)


def _all(home: Home, root: int, clock: Clock, swept: Swept, sockets: dict[Path, re.Pattern[str]]) -> list[Iterator[Old]]:
    spared, left = Spared(home), swept.left.__setitem__
    return [
        sessions.old(root, clock, spared, left),
        spool.old_done(root, clock, spared),
        spool.old_receipts(root, clock),
        spool.old_litter(root, clock),
        spool.old_media(root, clock, spared),
        spool.old_sent(root, clock, spared),
        leftovers.old_turns(root, clock),
        leftovers.old_jobs(root, clock),
        leftovers.old_loans(root, clock, left),
        leftovers.old_sockets(home, clock, left, sockets),
    ]


def _limited(places: list[Iterator[Old]], most: int | None, swept: Swept) -> Generator[Old, None, None]:
    with closing(_in_turn(places)) as found:
        for old in found:
            if most is not None and swept.deleted >= most:
                swept.more = True
                return
            yield old


def _in_turn(places: list[Iterator[Old]]) -> Generator[Old, None, None]:
    waiting = deque(places)
    try:
        while waiting:
            place = waiting.popleft()
            if (old := next(place, None)) is not None:
                waiting.append(place)
                yield old
    finally:
        for place in places:
            with suppress(AttributeError):
                place.close()  # type: ignore[attr-defined]  # a generator has directories open


def _removed(old: Old, swept: Swept) -> bool:
    try:
        old.remove()
    except OSError as error:
        if error.errno not in _PASSED:
            swept.left[old.path] = error.strerror or ""
        return False
    return True
