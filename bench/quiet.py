"""A share of the CPUs for what is measured, where we may ask for one: the machine is others' too, and wall then comes near CPU.

It is a control group of the scheduler's, which all that we start inherits: daemons that a client starts, and the commands of tools.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_NAME = "bubbles-bench"
_PLACES = (("/sys/fs/cgroup/cpu", "cpu.shares", "262144"), ("/sys/fs/cgroup", "cpu.weight", "10000"))


def ending_in_order(*, with_parent: bool) -> None:
    """End by SIGTERM as by an error, so that no daemon stays behind in the group; where asked, also when whoever started us is gone."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if with_parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def undisturbed() -> bool:
    """Put this process, and what it will start, into a group that goes before all others. False where only root may."""
    for place, name, share in _PLACES:
        group = Path(place) / f"{_NAME}-{os.getpid()}"
        if not (Path(place) / "cgroup.procs").exists():
            continue
        for empty in Path(place).glob(f"{_NAME}-*"):  # of a run whose last processes outlived it
            with contextlib.suppress(OSError):
                empty.rmdir()
        with contextlib.suppress(OSError):
            group.mkdir()
            atexit.register(_leave, Path(place), group)
            (group / name).write_text(share)
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return True
    return False


def _leave(place: Path, group: Path) -> None:
    with contextlib.suppress(OSError):
        (place / "cgroup.procs").write_text(str(os.getpid()))
    with contextlib.suppress(OSError):  # something of ours may still be ending
        group.rmdir()
