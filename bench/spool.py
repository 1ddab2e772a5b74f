"""What a queue costs: put + claim + finish of a message, against the least that any durable queue must do.

    python bench/spool.py [DIRECTORY]

The rounds of the two are interleaved, and nothing is deleted before the end (ext4 creates files slowly for minutes after mass
deletions). Prints medians in microseconds, and the ratio, which is what may be compared between machines.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bubbles.messages import to_line
from bubbles.spool import Queue
from bubbles.spool.disk import filesystem

ROUNDS = 1500
BODY = {
    "id": "telegram-8841",
    "at": 1764500400.0,
    "channel": "telegram",
    "chat": "42",
    "text": "how large is it? " * 20,
    "sender": {"id": "7", "name": "Ann"},
}


def bare(path: Path, n: int, *, sync: bool) -> None:
    """Write, rename, fdatasync."""
    fd = os.open(path / f"tmp{n}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, to_line(BODY))
    os.rename(path / f"tmp{n}", path / f"m{n}.json")
    if sync:
        os.fdatasync(fd)
    os.close(fd)


def spooled(queue: Queue, n: int, *, sync: bool) -> None:
    """One message all the way."""
    queue.put(f"m{n}", BODY, sync=sync)
    queue.claim(f"m{n}")
    queue.finish(f"m{n}")


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """(wall, cpu) in µs."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - wall) * 1e6, (time.process_time() - cpu) * 1e6


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="bench-spool-", dir=sys.argv[1] if len(sys.argv) > 1 else None))
    queue, floor = Queue(root / "queue"), root / "floor"
    queue.prepare()
    floor.mkdir()
    rows: dict[str, list[tuple[float, float]]] = {}
    n = 0
    for _ in range(ROUNDS):
        for sync in (True, False):
            n += 1
            kind = "synced" if sync else "unsynced"
            rows.setdefault(f"bare {kind}", []).append(timed(lambda n=n, sync=sync: bare(floor, n, sync=sync)))
            rows.setdefault(f"spool {kind}", []).append(timed(lambda n=n, sync=sync: spooled(queue, n, sync=sync)))
    for k in range(10):
        queue.put(f"waiting{k}", BODY, sync=False)
    rows["due() of 10"] = [timed(lambda: queue.due(time.time())) for _ in range(ROUNDS)]
    print(f"{ROUNDS} rounds on {filesystem(root) or 'an unknown filesystem'}, {n} messages in done/")
    found = {name: tuple(statistics.median(column) for column in zip(*times, strict=True)) for name, times in rows.items()}
    for name, (wall, cpu) in found.items():
        print(f"  {name:15} {wall:7.0f} µs wall  {cpu:6.0f} µs cpu")
    for kind in ("synced", "unsynced"):
        print(f"  ratio {kind:9} {found[f'spool {kind}'][0] / found[f'bare {kind}'][0]:7.2f}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
