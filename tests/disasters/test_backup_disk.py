"""Backups on a disk that is full, and one that has no room for a home: a small tmpfs in a mount namespace of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.archive.home import file
from tests.programs.run import BIN, bubbles


def _on_a_small_disk(disk: Path, command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A shell's command while a tmpfs of 3 MB is mounted at `disk`, and then what lies there."""
    shell = f'mount -t tmpfs -o size=3m,mode=700 tmpfs "{disk}" || exit 77; {command}; status=$?; ls -A "{disk}"; exit $status'
    argv = ["unshare", "--map-root-user", "--mount", "bash", "-c", shell]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if done.returncode in (1, 77) and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("no mount namespaces for this user here")
    return done


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def test_a_backup_that_the_disk_has_no_room_for_leaves_nothing(home: Home, disk: Path) -> None:
    (home.session("s") / "work").mkdir(parents=True)
    (home.session("s") / "work" / "noise").write_bytes(os.urandom(8 << 20))
    done = _on_a_small_disk(disk, f"{BIN}/bubbles backup {disk}/a.tar.gz")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("bubbles: no room on the disk")
    assert "  try: make room there" in done.stderr


def test_a_home_that_the_disk_has_no_room_for_leaves_nothing(home: Home, disk: Path, tmp_path: Path) -> None:
    file(home.session("s") / "work" / "notes.md", "x" * (2 << 20))
    assert bubbles("backup", str(tmp_path / "a.tar")).returncode == 0
    done = _on_a_small_disk(disk, f"{BIN}/bubbles restore {tmp_path}/a.tar", BUBBLES_HOME=f"{disk}/home")
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("bubbles: no room on the disk")


def test_where_a_disk_is_mounted_it_is_said_what_to_do(home: Home, disk: Path, tmp_path: Path) -> None:
    file(home.session("s") / "work" / "notes.md")
    assert bubbles("backup", str(tmp_path / "a.tar")).returncode == 0
    done = _on_a_small_disk(disk, f"{BIN}/bubbles restore {tmp_path}/a.tar", BUBBLES_HOME=str(disk))
    assert (done.returncode, done.stdout) == (78, "")
    assert "is where a disk is mounted\n  try: BUBBLES_HOME=" in done.stderr
