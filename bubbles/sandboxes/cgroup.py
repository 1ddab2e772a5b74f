"""A cgroup for each command, below this daemon's own: what bounds all that a command starts together, and ends it as a whole.

What is bounded is told, for the kernel may lack a controller, or not give it away. It does not know what a command is, nor how one is put
into its cgroup.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from bubbles.errors import ToolError
from bubbles.sandboxes import delegation
from bubbles.sandboxes.sandbox import Bounds

_CONTROLLERS = ("memory", "pids", "cpu")
_WEIGHT = 50  # half of what the daemon has, where both want the processor
_PERIOD_US = 100_000
_LOOKS = 8  # at a cgroup whose processes start others while they are moved
_PATIENCE_S = 0.5  # a process that the kernel holds may take so long to go; its cgroup is then removed later


class Group:
    """The cgroup of one command. `join`: the file to write "0" to, by what then becomes the command.

    `active` names what it really bounds, of "memory:cgroup", "processes:cgroup" and "cpu:cgroup".
    """

    def __init__(self, path: str, active: tuple[str, ...] = ()) -> None:
        self.path, self.active = path, active
        self.join = f"{path}/cgroup.procs"

    def kill(self) -> None:
        """Kill every process in it. It does not wait for their end."""
        if _is_written(f"{self.path}/cgroup.kill", "1"):
            return
        for pid in _everyone(self.path):  # before Linux 5.14
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def oom(self) -> bool:
        """Whether the kernel ended a process of it for want of memory."""
        told = dict(line.split() for line in _lines(f"{self.path}/memory.events"))
        return told.get("oom_kill", "0") != "0"

    def peak_bytes(self) -> int:
        """The most memory that it ever had; 0 where the kernel does not tell (before Linux 5.19)."""
        return int(next(iter(_lines(f"{self.path}/memory.peak")), "0"))

    def remove(self, patience_s: float = _PATIENCE_S) -> bool:
        """Kill what is left in it and take it away; whether it is gone. It blocks, at most `patience_s`."""
        deadline, pause = time.monotonic() + patience_s, 0.0005
        while not _is_removed(self.path):
            if time.monotonic() >= deadline:
                return False
            self.kill()
            time.sleep(pause)
            pause = min(pause * 2, 0.02)
        return True


class Parent:
    """The cgroup at `path`, which is ours to divide: what is in it is moved into its `main/`, so that commands can have their own beside that.

    `controllers`: those of memory, pids and cpu that there are for commands. Raises OSError where the kernel forbids it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._numbers = itertools.count(1)
        self._names: set[str] = set()  # of the groups of ours that are there
        self._late: list[Group] = []  # whose processes took too long to go
        with contextlib.suppress(FileExistsError):
            (path / delegation.MAIN).mkdir(0o755)
        self._gather()
        self.controllers = frozenset(filter(self._enable, _CONTROLLERS))

    @classmethod
    def find(cls) -> Parent | None:
        """The one of this process, made by the first call; None where it can have none (see `why_not`)."""
        return _found(os.getpid())[0]

    @contextlib.contextmanager
    def command(self, bounds: Bounds) -> Iterator[Group]:
        """A group for one command, gone with all its processes when the block ends. Raises ToolError where none can be made."""
        name = f"cmd-{os.getpid()}-{next(self._numbers)}"
        group = self._make(f"{self.path}/{name}", bounds)
        self._names.add(name)
        try:
            yield group
        finally:
            self._end(group)

    def sweep(self) -> int:
        """End what a dead daemon left in the groups of its commands, and remove those; how many. What one that lives has, stays."""
        living = set(_lines(f"{self.path}/{delegation.MAIN}/cgroup.procs")) - {str(os.getpid())}
        left = [path for path in self.path.glob("cmd-*-*") if path.name not in self._names and path.name.split("-")[1] not in living]
        groups = [Group(str(path)) for path in left]
        for group in groups:
            group.kill()  # all at once; then each is waited for
        return sum(group.remove() for group in groups)

    def _make(self, path: str, bounds: Bounds) -> Group:
        try:
            os.mkdir(path, 0o755)
        except OSError as error:
            raise ToolError(f"no cgroup can be made for the command: {error.strerror}", remedy="restart bubbles-agentd") from error
        held = {file: _is_written(f"{path}/{file}", text) for file, text in _settings(bounds, self.controllers).items()}
        names = {"memory.max": "memory:cgroup", "pids.max": "processes:cgroup", "cpu.max": "cpu:cgroup"}
        return Group(path, tuple(name for file, name in names.items() if held.get(file)))

    def _end(self, group: Group) -> None:
        waiting, self._late = self._late, []
        for each, patience_s in [(group, _PATIENCE_S), *((late, 0.0) for late in waiting)]:
            if each.remove(patience_s):
                self._names.discard(os.path.basename(each.path))
            else:
                self._late.append(each)

    def _gather(self) -> None:
        for _ in range(_LOOKS):
            pids = _lines(f"{self.path}/cgroup.procs")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    _write(f"{self.path}/{delegation.MAIN}/cgroup.procs", pid)
            if not pids:
                return

    def _enable(self, name: str) -> bool:
        return name in " ".join(_lines(f"{self.path}/cgroup.controllers")).split() and _is_written(f"{self.path}/cgroup.subtree_control", f"+{name}")


def why_not() -> str:
    """Why this process has no cgroup to divide, as the end of a sentence; "" where it has one."""
    return _found(os.getpid())[1]


def sweep() -> int:
    """End what commands of a dead daemon left in this one's own cgroup, and how many groups that were; 0 where there is none.

    For the one who holds the home's lock, before it starts a command.
    """
    parent = Parent.find()
    return parent.sweep() if parent else 0


@functools.lru_cache(maxsize=1)
def _found(pid: int) -> tuple[Parent | None, str]:
    """For the process `pid`, which is this one: a child that was forked has to look for itself."""
    try:
        return Parent(delegation.own(os.environ)), ""
    except delegation.NotOurs as why:
        return None, str(why)
    except OSError as error:
        return None, f"the kernel forbids to divide it: {error.strerror} ({error.filename})"


def _settings(bounds: Bounds, controllers: frozenset[str]) -> dict[str, str]:
    """What to write into which file of a command's cgroup."""
    written: dict[str, str] = {}
    if "memory" in controllers:
        written |= {"memory.max": str(bounds.memory_bytes), "memory.swap.max": "0", "memory.oom.group": "1"}
    if "pids" in controllers:
        written |= {"pids.max": str(bounds.processes)}
    if "cpu" in controllers:
        written |= {"cpu.weight": str(_WEIGHT)}
        if bounds.cpu_percent:
            written |= {"cpu.max": f"{bounds.cpu_percent * _PERIOD_US // 100} {_PERIOD_US}"}
    return written


def _everyone(path: str) -> list[int]:
    """The processes in a cgroup and in those below it."""
    return [int(pid) for place, _, _ in os.walk(path) for pid in _lines(f"{place}/cgroup.procs")]


def _is_removed(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:  # processes are in it, or cgroups that they made
        below = _below(path)
        return bool(below) and all(_is_removed(entry) for entry in below) and _is_removed(path)
    return True


def _below(path: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    """[] where there is no such file, or it may not be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode().splitlines()
    except OSError:
        return []


def _is_written(path: str, text: str) -> bool:
    try:
        _write(path, text)
    except OSError:
        return False
    return True


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)  # not created: what is not there the kernel lacks
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # ProcessLookupError stays one
    finally:
        os.close(fd)
