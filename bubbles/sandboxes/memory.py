"""How much memory all that a command started has together, watched where no cgroup of the kernel's bounds it.

Such a watch looks a few times a second: what takes a gigabyte between two looks has it, and is ended then. Memory counts once, however many
processes share it. Not seen is what nobody has mapped or open: a segment of System V, a file in a file system in memory that is not theirs
alone, shared pages that were unmapped again, files on their way through a socket. Where that leaves the machine with next to nothing, commands
are ended all the same. It does not know how a command is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bubbles.sandboxes.mark import look
from bubbles.sandboxes.numbers import everyone
from bubbles.sandboxes.sandbox import Bounds

_FIRST_S = 0.2  # most commands have ended by then
_LOOK_S, _SOON_S = 0.2, 0.05  # between two looks; the second from half of what may be taken on
_ROOM = 1000  # processes and threads: for what the owner starts while a command runs
_SHARE, _LONGEST_S = 10, 1.0  # a look that takes long is followed by a pause of so many times that, so long at most
_FILES = 20_000  # may be open in all: each has to be looked at, and forking multiplies them at no cost
_SCARCE, _SCARCE_PART = 512 << 20, 20  # bytes that have to be left on the machine, but no more than such a part of it
_SMALL = 64 << 20  # who has no more is spared while memory is scarce, until half of that is gone too
_BLOCK = 512  # bytes, in which stat counts
_TMPFS = re.compile(rb"^\d+ \d+ (\d+:\d+) \S+ (\S+) .* - tmpfs ", re.M)  # of /proc/PID/mountinfo
_RESIDENT = re.compile(rb"^(?:VmRSS|VmSwap|VmPTE):\s+(\d+) kB", re.M)  # of /proc/PID/status
# The name of each number as /proc/PID/smaps_rollup has it, which counts a share, and /proc/PID/status.
_PRIVATE = re.compile(rb"^(?:Pss_Anon|SwapPss|RssAnon|VmSwap):\s+(\d+) kB", re.M)
_TABLES = re.compile(rb"^VmPTE:\s+(\d+) kB", re.M)  # which say where its pages are: much where it has looked at much and changed nothing
_MACHINE = re.compile(rb"^(MemTotal|MemAvailable|SwapFree|Shmem):\s+(\d+) kB", re.M)  # of /proc/meminfo
_SHARED = re.compile(rb"^(?:Pss_Shmem|RssShmem):\s+(\d+) kB", re.M)


async def watch(pid: int, bounds: Bounds, stop: Callable[[str], None], *, machine: str = "/proc/meminfo") -> None:
    """Call `stop` once when `pid` and what descends from it have to be ended, with why; then end.

    "memory": they have more than they may; "scarce": the machine has hardly any left, as `machine` tells; "processes": they are too many, threads
    counted; "files": they have more open than can be looked at. Otherwise it goes on until it is cancelled. Where there is no /proc it sees nothing.
    """
    kin, before, loop = Kin(pid), Machine.told(machine), asyncio.get_running_loop()
    await asyncio.sleep(_FIRST_S)
    while True:
        begun = loop.time()
        why, soon = await asyncio.to_thread(_judged, kin, bounds, before, machine)  # it is made by the command how long this takes
        if why:
            return stop(why)
        await asyncio.sleep(max(_SOON_S if soon else _LOOK_S, min(_SHARE * (loop.time() - begun), _LONGEST_S)))


def _judged(kin: Kin, bounds: Bounds, before: Machine, machine: str) -> tuple[str, bool]:
    """Why they are to be ended, "" for nothing; and whether to look again soon."""
    pids, limit = kin.look(bounds.processes), bounds.memory_bytes
    if kin.threads > bounds.processes:
        return "processes", False
    opened, now = Opened.by(pids), Machine.told(machine)
    if opened.count > _FILES:
        return "files", False
    nameless = max(opened.nameless, now.shared - before.shared) if opened.hidden else opened.nameless
    taken, scarce = resident(pids, nameless), now.is_scarce()
    if taken > limit or scarce:
        own = together(pids, nameless)  # that takes the kernel its time
        if own > limit:
            return "memory", False
        if scarce and (own > _SMALL or now.is_scarce(2)):
            return "scarce", False
    return "", scarce or taken > limit // 2


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's memory in bytes: in all, what could be had now without ending anything, and what is in files and shared pages."""

    total: int
    left: int
    shared: int

    @classmethod
    def told(cls, path: str) -> Machine:
        """As /proc/meminfo tells, a file of whose form is at `path`; all of it 0 where there is none."""
        found = {name: int(count) << 10 for name, count in _MACHINE.findall(_read(path))}
        return cls(found.get(b"MemTotal", 0), found.get(b"MemAvailable", 0) + found.get(b"SwapFree", 0), found.get(b"Shmem", 0))

    def is_scarce(self, times: int = 1) -> bool:
        """Whether less is left than has to be, or than the part of that which `times` says."""
        return self.left * times < min(_SCARCE, self.total // _SCARCE_PART)


def crowd(bounds: Bounds) -> int:
    """How many processes and threads the owner may have in all while a command runs, for RLIMIT_NPROC; 0 where nobody tells.

    The kernel counts the owner's alone, which are fewer than those of the whole machine now: none of theirs is hindered, and what forks
    without end is, before the first look.
    """
    told = _read("/proc/loadavg").split()
    return int(told[3].partition(b"/")[2]) + bounds.processes + _ROOM if len(told) > 3 else 0


class Kin:
    """`pid` and what descends from it. Who was seen once belongs to it for good, also when what started it has ended.

    `threads`: how many they were altogether, at the last look. `told`: whether the kernel tells of each process its children (it can be built so
    that it does not); otherwise all processes of the machine are asked for their parents.
    """

    def __init__(self, pid: int, *, told: bool = os.path.exists(f"/proc/self/task/{os.getpid()}/children")) -> None:
        self._first, self.threads, self._told = pid, 0, told
        self._born: dict[int, list[int]] = {}  # by parent, where it is not told
        self._starts: dict[int, int] = {}  # of everyone seen, but for the first: when it was started

    def look(self, enough: int = 1 << 22) -> list[int]:
        """The numbers of the processes that live; where there are more threads than `enough`, some are enough."""
        found, self.threads, self._born = {self._first}, 0, {} if self._told else _born()
        self._follow(found, [self._first], enough)
        for pid in self._starts.keys() - found:
            seen = look(pid) if pid not in found else None
            if seen and seen.start == self._starts[pid]:
                found.add(pid)
                self._follow(found, [pid], enough)
        self._starts = {pid: self._starts.get(pid) or _start(pid) for pid in found if pid != self._first}
        return list(found)

    def _follow(self, found: set[int], waiting: list[int], enough: int) -> None:
        while waiting and self.threads <= enough:
            pid = waiting.pop()
            threads = _threads(pid)
            self.threads += len(threads)
            children = (child for thread in threads for child in _children(pid, thread)) if self._told else self._born.get(pid, [])
            born = [child for child in children if child not in found]
            found.update(born)
            waiting += born


def _start(pid: int) -> int:
    seen = look(pid)
    return seen.start if seen else 0


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _children(pid: int, thread: str) -> Iterator[int]:
    return map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _born() -> dict[int, list[int]]:
    born: dict[int, list[int]] = {}
    for seen in filter(None, map(look, everyone())):
        born.setdefault(seen.parent, []).append(seen.pid)
    return born


@dataclass(frozen=True, slots=True)
class Opened:
    """What processes have open: how many files (nobody counts on beyond `_FILES`), bytes of those in memory without a name (memfd_create), which
    are in no process's share unless they are mapped, and whether a process hides what it has open.
    """

    count: int
    nameless: int
    hidden: bool

    @classmethod
    def by(cls, pids: Iterable[int]) -> Opened:
        """What `pids` have open."""
        sizes: dict[tuple[int, int], int] = {}
        count, hidden = 0, False
        for pid in pids:
            try:
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    count += 1
                    if count > _FILES:
                        break
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path).startswith("/memfd:"):
                            status = os.stat(entry.path)
                            sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
            except PermissionError:
                hidden |= look(pid) is not None  # what has ended shows nothing either
            except OSError:
                continue
        return cls(count, sum(sizes.values()), hidden)


def resident(pids: Iterable[int], nameless: int) -> int:
    """Bytes that `pids` have in memory or swapped out, never fewer than `together`: what two of them share counts twice. It is cheap.

    `nameless` of these are in files without a name.
    """
    pids = list(pids)
    return sum(_bytes(_RESIDENT, _read(f"/proc/{pid}/status")) for pid in pids) + nameless + _spaces(pids)


def together(pids: Iterable[int], nameless: int) -> int:
    """Bytes of their own that `pids` have in memory or swapped out. What can be read again from a file does not count.

    `nameless` as for `resident`.
    """
    pids = list(pids)
    told = [_read(f"/proc/{pid}/smaps_rollup") or _read(f"/proc/{pid}/status") for pid in pids]  # the first not of who hides itself
    mapped = sum(_bytes(_SHARED, text) for text in told)
    tables = sum(_bytes(_TABLES, _read(f"/proc/{pid}/status")) for pid in pids)
    return sum(_bytes(_PRIVATE, text) for text in told) + tables + max(mapped, nameless + _spaces(pids))  # a file in memory may be mapped as well


def _bytes(pattern: re.Pattern[bytes], told: bytes) -> int:
    return sum(map(int, pattern.findall(told))) << 10


def _spaces(pids: Iterable[int]) -> int:
    """Bytes in the file systems in memory that only they can see, those of a jail."""
    spaces = {space: pid for pid in pids if (space := _space(pid))}
    spaces.pop(_space(os.getpid()), None)
    seen = {device for device, _ in _tmpfs(os.getpid())} if spaces else set()
    used = 0
    for pid in spaces.values():
        for device, point in _tmpfs(pid):
            if device not in seen:
                seen.add(device)
                with contextlib.suppress(OSError):
                    told = os.statvfs(f"/proc/{pid}/root{point}")
                    used += (told.f_blocks - told.f_bfree) * told.f_frsize
    return used


def _space(pid: int) -> int:
    """The number of its mount namespace; 0 where that may not be known."""
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/mnt").st_ino
    return 0


def _tmpfs(pid: int) -> list[tuple[bytes, str]]:
    """Device and place of each file system in memory that it sees."""
    return [(device, os.fsdecode(point)) for device, point in _TMPFS.findall(_read(f"/proc/{pid}/mountinfo"))]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
