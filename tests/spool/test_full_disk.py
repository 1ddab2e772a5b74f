"""A disk that is really full: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

SCRIPT = """
import os, sys, time
from pathlib import Path
from bubbles.errors import TryAgain
from bubbles.spool import Queue

queue = Queue(Path(sys.argv[1]) / "q")
queue.prepare()
put, refused = 0, None
while refused is None:
    try:
        queue.put(f"m{put:04d}", {"n": put, "padding": "x" * 3000})
        put += 1
    except TryAgain as error:
        refused = error
assert "no room" in refused.text and "df -h" in refused.remedy, refused
assert put > 3, put
assert queue.find(f"m{put:04d}") is None and not os.listdir(queue.path / "tmp")
due = queue.due(time.time())
assert len(due) == put, (len(due), put)
assert queue.claim(due[0]).body["n"] == 0 and queue.finish(due[0])      # what needs no room goes on
assert queue.claim(due[1]).body["n"] == 1 and queue.hold(due[1], "why " * 5000)
assert queue.claim(due[2]).body["n"] == 2 and queue.defer(due[2], time.time() + 60)
os.unlink(queue.path / "done" / f"{due[0]}.json")
assert queue.put(f"m{put:04d}", {"n": put, "padding": "x" * 3000})      # and with room there is, the sender's next try succeeds
assert [queue.claim(id).body["n"] for id in queue.due(time.time())] == list(range(3, put + 1))
print("held its ground")
"""


@pytest.mark.parametrize("limit", ["size=96k", "nr_inodes=20"])
def test_full_disk(limit: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    shell = f'mount -t tmpfs -o {limit} tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, "sh", str(disk), sys.executable, SCRIPT]
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare here")
    if done.returncode == 77 or "unshare failed" in done.stderr or "write failed" in done.stderr:
        pytest.skip(f"mount is refused here: {done.stderr.strip()}")
    assert done.stdout == "held its ground\n", done.stderr
