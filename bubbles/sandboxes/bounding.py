"""What bounds one command: a cgroup where this daemon has one to divide, else a watch; and a look at the disk.

It does not know which backend asks, nor how a command is started or ended.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bubbles.sandboxes import cgroup, disk, memory
from bubbles.sandboxes.sandbox import Bounds, Outcome
from bubbles.sandboxes.spawn import Stop, Watcher

_HELD_BY = {"cgroup": "by its cgroup", "watch": "watched", "rlimit": "by the kernel"}
_TOO_LARGE = ((128 + signal.SIGXFSZ, None), (None, signal.SIGXFSZ))  # exit and signal
_SHELLS = ("time", "output", "file:rlimit")  # what holds in every backend


@dataclass(frozen=True, slots=True)
class Bounding:
    """What holds one command. `join`: the file that it writes "0" to before anything else, "" for none; `watchers`: what looks on meanwhile;
    `processes`: how many the owner may have while it runs, where nothing else bounds them (0: nothing is set).
    """

    join: str
    watchers: tuple[Watcher, ...]
    active: tuple[str, ...]
    processes: int
    group: cgroup.Group | None
    bounds: Bounds

    def told(self, outcome: Outcome) -> Outcome:
        """`outcome` with what bounded the command, and where that ended it, how much it may have and how that is held."""
        oom = outcome.oom or bool(self.group and self.group.oom())
        why = outcome.ended_for or ("memory" if oom else "file" if (outcome.exit, outcome.signal) in _TOO_LARGE else "")
        note = outcome.note
        if why == "memory" and not outcome.oom:
            note = "; ".join(filter(None, ("it took more memory than it may", note)))
        elif why == "file":
            note = "; ".join(filter(None, ("it wrote more into a file than it may", note)))
        first, _, more = note.partition("; ")
        if bound := self._bound(why):
            note = "; ".join(filter(None, (f"{first}: {bound}", more)))
        return replace(outcome, oom=oom, note=note, limits_active=self.active, ended_for=why)

    def _bound(self, name: str) -> str:
        """How much of `name` a command may have, or must leave, and how that is held."""
        bounds = self.bounds
        most = {"memory": size(bounds.memory_bytes), "processes": str(bounds.processes), "file": size(bounds.file_bytes)}
        most["disk"] = f"{size(bounds.free_bytes)} stay free, or a tenth of the disk where that is less"
        if name not in most:
            return ""
        held = {limit.partition(":")[2] for limit in self.active if limit.partition(":")[0] == name}
        return ", ".join((most[name], *(_HELD_BY[way] for way in sorted(held) if way in _HELD_BY)))


def size(count: int) -> str:
    """Bytes, for people.

    >>> size(2 << 30), size(1500 << 20), size(5)
    ('2 GiB', '1.465 GiB', '5 bytes')
    """
    for unit, of in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= of:
            return f"{count / of:.4g} {unit}"
    return f"{count} bytes"


@contextlib.contextmanager
def bounding(bounds: Bounds, places: Sequence[Path], *, own: Sequence[str] = ()) -> Iterator[Bounding]:
    """What bounds one command that writes below `places`; `own` names what the backend holds besides. With the block ends all that is in its cgroup.

    Raises ToolError where the disk is too full to begin.
    """
    disk.check(places, bounds)
    with contextlib.ExitStack() as stack:
        parent = cgroup.Parent.find()
        group = stack.enter_context(parent.command(bounds)) if parent else None
        active = group.active if group else ()
        watchers = [_disk(bounds, places)] if bounds.free_bytes else []
        if not {"memory:cgroup", "processes:cgroup"} <= set(active):
            watchers.append(_memory(bounds))
            active += tuple(name for name, held in (("memory:watch", "memory:cgroup"), ("processes:watch", "processes:cgroup")) if held not in active)
        active += ("disk:watch",) if bounds.free_bytes else ()
        most = 0 if "processes:cgroup" in active else memory.crowd(bounds)
        yield Bounding(group.join if group else "", tuple(watchers), (*active, *_SHELLS, *own), most, group, bounds)


def _disk(bounds: Bounds, places: Sequence[Path]) -> Watcher:
    async def look(pid: int, stop: Stop) -> None:
        await disk.watch(places, bounds, lambda: stop("disk"))

    return look


def _memory(bounds: Bounds) -> Watcher:
    async def look(pid: int, stop: Stop) -> None:
        await memory.watch(pid, bounds, stop)

    return look
