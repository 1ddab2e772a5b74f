"""Homes to sweep, and the time at which that is done: files are made now, and the sweep comes later."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from bubbles.ids import safe
from bubbles.messages import Inbound, Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from bubbles.tidying.ages import DAY_S, Mark
from bubbles.tidying.sweep import Swept, sweep


def later(days: float) -> Mark:
    """So many days from now. The machine was started anew meanwhile."""
    return Mark(time.time() + days * DAY_S, 1.0, f"boot-{days}")


def swept(home: Home, days: float, **more: Any) -> Swept:
    return sweep(home, now=later(days), **{"sockets": {}, "rest_s": 0.0, **more})


def gone(home: Home, days: float, **more: Any) -> set[str]:
    """The paths that a sweep so many days from now deletes."""
    found: set[str] = set()
    swept(home, days, told=lambda old: found.add(old.path), **more)
    return found


def file(path: Path, text: str = "x", *, days: float = 0.0) -> Path:
    """A file that was written so many days after today."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return aged(path, days)


def aged(path: Path, days: float) -> Path:
    at = time.time() + days * DAY_S
    os.utime(path, (at, at), follow_symlinks=False)
    return path


def inbound(home: Home, id: str, state: str = "done", channel: str = "telegram", **more: Any) -> Path:
    queue = Queue(home.inbound(channel))
    queue.put(id, to_dict(Inbound(id, 1.0, channel, "42", "hello", **more)), sync=False)
    return _moved(queue, id, state)


def outbound(home: Home, id: str, state: str = "done", channel: str = "telegram", **more: Any) -> Path:
    queue = Queue(home.outbound(channel))
    queue.put(id, to_dict(Outbound(id, 1.0, channel, "42", "hello", **more)), sync=False)
    return _moved(queue, id, state)


def _moved(queue: Queue, id: str, state: str) -> Path:
    if state != "new":
        queue.claim(id)
    if state == "done":
        queue.finish(id)
    if state == "held":
        queue.hold(id, "why")
    aged(queue.path, 2)  # it has gone on since
    return queue.path / state / f"{safe(id)}.json"
