"""The two sides of a queue as processes of their own, to be killed: `python -m tests.spool.chaos producer|consumer DIRECTORY [NAME]`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bubbles.spool import Queue


def produce(root: Path, name: str) -> None:
    """Put message after message until told to stop; as with a platform, the next is asked for only when the last is stored."""
    queue, cursor = Queue(root / "q"), root / f"{name}.cursor"
    n = int(cursor.read_text()) if cursor.exists() else 0
    while not (root / "stop").exists():
        queue.put(f"{name}-{n:06d}", {"n": n, "from": name, "padding": "x" * 3000})
        n += 1
        cursor.with_suffix(".tmp").write_text(str(n))
        cursor.with_suffix(".tmp").rename(cursor)


def consume(root: Path) -> None:
    """Handle what is due, for ever; every tenth is put off for a moment at first."""
    queue = Queue(root / "q")
    queue.recover()
    effects = os.open(root / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    deferred: set[str] = set()
    while True:
        due = queue.due(time.time())
        for id in due:
            item = queue.claim(id)
            if item.body["n"] % 10 == 3 and id not in deferred:
                deferred.add(id)
                queue.defer(id, time.time() + 0.01)
                continue
            os.write(effects, f"{item.id} {item.body['from']}-{item.body['n']:06d} {len(item.body['padding'])}\n".encode())
            queue.finish(id)
        if not due:
            time.sleep(0.002)


if __name__ == "__main__":
    if sys.argv[1] == "producer":
        produce(Path(sys.argv[2]), sys.argv[3])
    else:
        consume(Path(sys.argv[2]))
