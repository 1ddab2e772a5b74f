"""How often a turn waits for the disk, and for which file: counted by strace, which sees what every process of ours asks the kernel, or, where
there is none, by ourselves (bench/counting).

Why each is there stands in REASONS; a sync that is not explained there is told as such.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from row import Row

_CALL = re.compile(r"(?:fdatasync|fsync|sync_file_range)\(\d+<([^>]*)>")
_COUNTING = Path(__file__).with_name("counting")
REASONS = {
    "inbound": "inbound put: the platform forgets a message when its channel confirms it (a terminal's put has none)",
    "outbound": "outbound put: the reply is noted as said after it, and not said again",
    "journal": "journal: the words are in it, and leave their queue",
    "history": "history: the turn's end; the journal counts for nothing after it",
    "spool directory": "directory of a queue: on a disk that does not order renames",
}


@contextmanager
def noted() -> Iterator[Path | None]:
    """Where strace is missing: what is started within notes its syncs in this file, and so does this process. None where strace is there."""
    if shutil.which("strace"):
        yield None
        return
    with NamedTemporaryFile(suffix=".syncs") as file:
        before = dict(os.environ)
        os.environ |= {"BENCH_SYNCS": file.name, "PYTHONPATH": os.pathsep.join([str(_COUNTING), *filter(None, [before.get("PYTHONPATH")])])}
        runpy.run_path(str(_COUNTING / "sitecustomize.py"))
        try:
            yield Path(file.name)
        finally:
            os.environ.clear()
            os.environ.update(before)


def row(name: str, pids: list[int], work: Callable[[], object], turns: int, notes: Path | None) -> Row:
    """Syncs a turn over all processes, this one too, while `work` does so many turns. `notes`: as `noted` gave it."""
    found = _traced(pids, work) if notes is None else _read(notes, work)
    if found is None:
        return Row(name, float("nan"), "a turn", beside="not counted: strace may not look at these processes")
    told = "; ".join(f"{count / turns:.2f} {REASONS.get(what, f'{what}: NOT EXPLAINED')}" for what, count in sorted(found.items()))
    return Row(name, sum(found.values()) / turns, "a turn", beside=told)


def _read(notes: Path, work: Callable[[], object]) -> Counter[str]:
    before = notes.stat().st_size
    work()
    return Counter(map(_what, notes.read_bytes()[before:].decode().splitlines()))


def _traced(pids: list[int], work: Callable[[], object]) -> Counter[str] | None:
    with NamedTemporaryFile("r", suffix=".strace") as out:
        watched = [f"-p{pid}" for pid in (*pids, os.getpid())]
        argv = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range", "-o", out.name, *watched]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            time.sleep(1)
            if process.poll() is not None:
                return None
            work()
            process.terminate()
        return Counter(_what(found[1]) for line in out if (found := _CALL.search(line)))


def _what(path: str) -> str:
    parts = Path(path.split(" ")[0]).parts
    if "spool" in parts:
        side = parts[parts.index("spool") + 1]
        return side if parts[-1].endswith(".json") else "spool directory"
    return "journal" if "turns" in parts else "history" if parts[-1] == "session.jsonl" else parts[-1]


if __name__ == "__main__":
    raise SystemExit("run bench/turn.py: it counts its syncs")
