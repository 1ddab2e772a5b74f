"""How long each kind of file is kept, and how old a file is where the clock was stepped.

A file's age is what has passed since its mtime; one from the future is young. A clock that was set back makes everything
younger. A clock that was set ahead is not believed at once: since the last run the machine has its own count of the time
that went by, and a step counts for a kind of file only when it has lasted for as long as that kind is kept. What was
written before it is old by then, by any clock. A machine that was started anew has no such count; its clock is believed.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bubbles import regular

DAY_S = 86_400.0
LITTER_S = DAY_S  # half-written files, media that no message names, sockets and loans that nobody holds
DATA_S = 3 * DAY_S  # a session's data/
JOB_S = 3 * DAY_S  # what a background job was and printed, from its end on
DONE_S = 7 * DAY_S  # messages that were handled: as long is an id known
SILENCE_S = DAY_S  # how long before its last message a queue is still remembered, however long ago that was
RELEASED_S = 30 * DAY_S  # journals of turns that a person has decided on
_LONGEST_S = RELEASED_S
_SLACK_S = 300.0  # how far a clock may be corrected between two runs without having been stepped
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: by the clock (epoch seconds), and by the machine's own count since it was started. `boot` says which start."""

    wall: float
    up: float
    boot: str

    @classmethod
    def now(cls) -> Mark:
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # which goes on while the machine sleeps
        boot = ""
        with suppress(OSError):
            boot = _BOOT_ID.read_text().strip()
        return cls(time.time(), time.clock_gettime(clock), boot)

    @classmethod
    def read(cls, path: Path) -> Mark | None:
        """That of the last run; None where there is none that can be read."""
        try:
            body = json.loads(regular.read(path))
            return cls(float(body["wall"]), float(body["up"]), str(body["boot"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Keep it for the next run; where the disk refuses, the next one believes its clock."""
        beside = path.with_name(f"{path.name}.tmp")
        with suppress(OSError):
            beside.write_text(json.dumps(asdict(self)))
            os.replace(beside, path)


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is `now`, in the light of the last run."""

    now: Mark
    last: Mark | None = None

    def is_old(self, at_s: float, kept_s: float) -> bool:
        """Whether a file of this mtime was kept for so long."""
        return self._time(kept_s) - at_s > kept_s

    def _time(self, kept_s: float) -> float:
        passed_s = self._passed_s
        if passed_s is None or not self._is_ahead or passed_s >= kept_s:
            return self.now.wall
        assert self.last is not None
        return self.last.wall + passed_s

    @property
    def next_mark(self) -> Mark:
        """What the next run is to be told: this moment, or while a step is not believed, the last one before it."""
        keeps = self._is_ahead and self._passed_s is not None and self._passed_s < _LONGEST_S
        return self.last if keeps and self.last else self.now

    @property
    def _passed_s(self) -> float | None:
        """What has passed since the last run, by the machine's own count; None where that says nothing."""
        if self.last is None or self.last.boot != self.now.boot or self.now.up < self.last.up:
            return None
        return self.now.up - self.last.up

    @property
    def _is_ahead(self) -> bool:
        passed_s = self._passed_s
        return passed_s is not None and self.last is not None and self.now.wall > self.last.wall + passed_s + _SLACK_S
