"""Who is the daemon of a name: one at a time, given back however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bubbles.bus import is_running
from bubbles.bus.lock import Lock
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home
from tests.bus.child import ROOT, running


def test_a_free_lock_is_nobodys(home):
    assert is_running(home, "agentd") is None
    assert not home.lock("agentd").exists()


def test_a_second_holder_is_told_the_pid_of_the_first(home):
    lock = Lock(home, "agentd")
    lock.acquire()
    assert is_running(home, "agentd") == os.getpid()
    with pytest.raises(TryAgain, match=rf"agentd is already running \(pid {os.getpid()}\)") as caught:
        Lock(home, "agentd").acquire()
    assert caught.value.exit == 75
    lock.release()
    lock.release()
    assert is_running(home, "agentd") is None
    Lock(home, "agentd").acquire()


def test_another_process_of_the_same_name_ends_with_75(home):
    with running("agentd") as first:
        second = subprocess.run([sys.executable, "-m", "tests.bus.child", "agentd"], cwd=ROOT, capture_output=True, text=True)
        assert (second.returncode, second.stdout.strip()) == (75, f"agentd is already running (pid {first.pid})")
        assert is_running(home, "agentd") == first.pid
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert is_running(home, "agentd") is None


def test_other_names_and_other_homes_are_not_in_the_way(home, tmp_path):
    other = Home(tmp_path / "other")
    other.prepare()
    locks = [Lock(home, "agentd"), Lock(home, "modeld"), Lock(other, "agentd")]
    for lock in locks:
        lock.acquire()
    for lock in locks:
        lock.release()


def test_a_look_does_not_keep_a_daemon_from_starting(home):
    """A look holds the lock for an instant; a start in that instant tries again."""
    lock = Lock(home, "agentd")
    lock.acquire()
    lock.release()
    looker = subprocess.Popen(
        [sys.executable, "-c", "from bubbles.paths import Home\nfrom bubbles.bus import is_running\nwhile 1: is_running(Home.find(), 'agentd')"]
    )
    try:
        for _ in range(300):
            lock.acquire()
            lock.release()
    finally:
        looker.kill()
        looker.wait()


def test_what_stands_in_a_stale_lock_file_is_not_believed(home):
    home.lock("agentd").write_text("1\n")
    assert is_running(home, "agentd") is None
    home.lock("agentd").write_text("garbage" * 100)
    lock = Lock(home, "agentd")
    lock.acquire()
    assert home.lock("agentd").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_a_link_in_place_of_the_lock_is_not_followed(home, tmp_path):
    home.lock("agentd").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TryAgain):
        Lock(home, "agentd").acquire()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_named(home):
    home.run.chmod(0o500)
    try:
        with pytest.raises(Misconfigured, match="no permission") as caught:
            Lock(home, "agentd").acquire()
    finally:
        home.run.chmod(0o700)
    assert str(home.run) in caught.value.remedy
