"""A disk to measure on: where the tree's temporary files are, or an ext4 with a journal in a file of its own (for root).

A sync costs twice as much on the second, and a machine's disk may have no journal. Nothing is deleted before the end: ext4 creates files slowly for
minutes after mass deletions.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bubbles.spool.disk import filesystem

_SIZE = 1 << 30


@contextmanager
def here() -> Iterator[Path]:
    """A directory on this machine's disk."""
    path = Path(tempfile.mkdtemp(prefix="bubbles-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def journaled() -> Iterator[Path | None]:
    """A directory on a journaled ext4; None where it cannot be made (it takes root, mkfs.ext4 and a loop device)."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        yield None
        return
    with here() as path:
        image, point = path / "ext4.img", path / "mounted"
        point.mkdir()
        with open(image, "wb") as file:
            file.truncate(_SIZE)
        made = subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "has_journal", str(image)], capture_output=True)
        if made.returncode or subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True).returncode:
            yield None
            return
        try:
            yield point
        finally:
            subprocess.run(["umount", "-l", str(point)], check=False)


def create_us(path: Path) -> float:
    """What it costs now to create a file below `path`: 15 to 30 µs, and 100 to 300 where trees were deleted on that disk in the last minutes."""
    probe = path / "probe"
    probe.mkdir(exist_ok=True)
    took = []
    for n in range(50):
        began = time.perf_counter()
        os.close(os.open(probe / str(n), os.O_WRONLY | os.O_CREAT))
        took.append((time.perf_counter() - began) * 1e6)
    return statistics.median(took)


def named(path: Path) -> str:
    """What a path lies on: `ext4, journal` or `ext4, no journal`."""
    kind = filesystem(path) or "unknown"
    if kind != "ext4":
        return kind
    device = subprocess.run(["findmnt", "-no", "SOURCE", "-T", str(path)], capture_output=True, text=True).stdout.strip().removeprefix("/dev/")
    return f"ext4, {'journal' if any(Path('/proc/fs/jbd2').glob(f'{device}-*')) else 'no journal'}"
