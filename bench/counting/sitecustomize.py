"""Notes each sync of a Python process in the file that BENCH_SYNCS names, a path a line: for machines without strace. Python loads it by its name."""

from __future__ import annotations

import os
from collections.abc import Callable


def _noted(sync: Callable[[int], None]) -> Callable[[int], None]:
    def noted(fd: int) -> None:
        sync(fd)
        os.write(_file, os.fsencode(os.readlink(f"/proc/self/fd/{fd}")) + b"\n")

    return noted


if "BENCH_SYNCS" in os.environ:
    _file = os.open(os.environ["BENCH_SYNCS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fsync, os.fdatasync = _noted(os.fsync), _noted(os.fdatasync)
