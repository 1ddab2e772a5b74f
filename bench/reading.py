"""What the kernel says of processes: CPU time, memory, how often they woke. It does not know whose they are.

CPU is that of /proc/PID/task/*/schedstat, which counts nanoseconds on a CPU for each thread that lives; that of children which have ended is
/proc/PID/stat's, in ticks of 10 ms, good enough over hundreds of them.
"""

from __future__ import annotations

import os
from pathlib import Path

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


def cpu_ms(pid: int) -> float:
    """CPU of a process so far, its children left out."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def children_ms(pid: int) -> float:
    """CPU of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * _TICK_MS


def pss_mib(pid: int) -> float:
    """Its memory, shared pages divided among those who share them. A daemon shows that to root alone: else its resident set less what files back."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    except PermissionError:
        return rss_mib(pid)


def rss_mib(pid: int) -> float:
    """Resident set less what files back: what is the process's own."""
    _, resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") / 2**20


def wakes(pid: int) -> int:
    """How often its threads have given up a CPU to wait for something."""
    found = 0
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        found += next(int(line.split()[1]) for line in path.read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))
    return found
