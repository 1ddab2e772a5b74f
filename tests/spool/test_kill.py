"""Two producers and a consumer under `kill -9`: nothing lost, and handled twice only what was killed between effect and finish."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bubbles.spool import Queue

REPOSITORY = Path(__file__).parents[2]
KILLS = 100
ROLES = {"ann": ("producer", "ann"), "bob": ("producer", "bob"), "owner": ("consumer",)}


def start(role: str, root: Path) -> subprocess.Popen[bytes]:
    kind, *name = ROLES[role]
    return subprocess.Popen([sys.executable, "-m", "tests.spool.chaos", kind, str(root), *name], cwd=REPOSITORY)


@contextmanager
def running(root: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    processes = {role: start(role, root) for role in ROLES}
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def test_nothing_is_lost_under_kill_9(tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("BUBBLES_SEED", "9"))
    queue = Queue(tmp_path / "q")
    owner_kills = 0
    with running(tmp_path) as processes:
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.02, 0.14))
            role = chance.choice(list(ROLES))
            assert processes[role].poll() is None, f"{role} ended by itself"
            processes[role].send_signal(signal.SIGKILL)
            processes[role].wait()
            owner_kills += role == "owner"
            processes[role] = start(role, tmp_path)
        (tmp_path / "stop").touch()
        for role in ("ann", "bob"):
            assert processes[role].wait(timeout=30) == 0
        deadline = time.monotonic() + 60
        while (queue.next_due() or any((tmp_path / "q" / "cur").iterdir())) and time.monotonic() < deadline:
            time.sleep(0.01)
    effects = [line.split() for line in (tmp_path / "effects").read_text().splitlines()]
    handled = Counter(id for id, _, _ in effects)
    cursors = {name: int((tmp_path / f"{name}.cursor").read_text()) for name in ("ann", "bob")}
    promised = {f"{name}-{n:06d}" for name, cursor in cursors.items() for n in range(cursor)}
    last = {f"{name}-{cursor:06d}" for name, cursor in cursors.items()}  # stored, and its producer killed before it knew
    assert promised - set(handled) == set(), "lost"
    assert set(handled) - promised <= last, "from nowhere"
    assert all(id == body and length == "3000" for id, body, length in effects), "torn"
    assert sum(handled.values()) - len(handled) <= owner_kills, "handled twice without a kill"
    assert len(promised) > 200
