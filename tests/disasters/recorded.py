"""agentd with its files recorded, and on demand with a fault: `python -m tests.disasters.recorded RECORD [FAULT]`.

What it tells to others is remarked in the record at the moment before it is told: frames at its door, commands that begin.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubbles import starter
from bubbles.bus.bound import Bound
from bubbles.paths import Home
from bubbles.programs import agentd
from tests.disasters.record import Recorder, of_a_home

_REPOSITORY = Path(__file__).parents[2]


def _ends_with_a_start(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return b'"event":"ToolStarted"' in os.pread(fd, 200, max(0, size - 200)).rstrip(b"\n").rpartition(b"\n")[2]


# Each forgets some syncs; on a disk that keeps its promises only as far as it is asked to, that is found.
FAULTS: dict[str, Callable[[str, int], bool]] = {
    "": lambda path, fd: False,
    "finish before the journal is synced": lambda path, fd: path.startswith("turns/"),
    "close without a sync": lambda path, fd: path.startswith("sessions/"),
    "a reply that is not synced": lambda path, fd: path.startswith("spool/outbound/"),
    "a tool before its start is synced": lambda path, fd: path.startswith("turns/") and _ends_with_a_start(fd),
}


def start(home: Home, record: Path, fault: str = "") -> starter.Started:
    """agentd in a process of its own, as `starter.start` starts it, but recorded."""
    script = f"import sys; sys.path.insert(0, {str(_REPOSITORY)!r}); from tests.disasters.recorded import main; main({str(record)!r}, {fault!r})"
    return starter.Started(home, "agentd", [sys.executable, "-c", script], None).wait()


def main(record: str, fault: str) -> None:
    """Be that agentd."""
    recorder = Recorder(Home.find().root, Path(record), of_a_home, FAULTS[fault])
    recorder.install()
    _remark(Bound, "send", lambda _, frames: recorder.note("told", b"\0".join(frames)))
    _remark(subprocess.Popen, "__init__", lambda _, argv, *rest: recorder.note("ran", " ".join(map(str, argv))))
    sys.argv = ["bubbles-agentd"]
    agentd.main([])


def _remark(owner: Any, name: str, remark: Callable[..., None]) -> None:
    real = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        remark(*args)
        return real(*args, **kwargs)

    setattr(owner, name, call)


if __name__ == "__main__":
    main(sys.argv[1], "".join(sys.argv[2:]))
