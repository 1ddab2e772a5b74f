"""agentd killed, started and answering on a disk that is really full: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


def test_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "run").mkdir(mode=0o700)
    shell = 'mount -t tmpfs -o size=3m tmpfs "$1" || exit 77; exec "$2" -m tests.disasters.small_disk "$1"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", shell, "sh", str(disk), sys.executable]
    env = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    try:
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, env=env)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if done.returncode in (1, 77) and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("no mount namespaces for this user here")
    assert done.stdout.endswith("held its ground\n"), done.stdout + done.stderr
