"""The machine itself: people, files that outlive a boot, and nothing that outlives the block."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.machine import CHECKOUT, Machine, boot
from tests.systemd.person import Person


def test_a_persons_manager_runs_and_the_checkout_is_there(person: Person) -> None:
    assert person.systemctl("is-system-running").stdout.strip() == "running"
    assert person.run(["bubbles", "--version"]).stdout.startswith("bubbles ")
    assert person.run(["head", "-c1", CHECKOUT / "pyproject.toml"]).stdout
    assert person.run(["id", "-u"]).stdout.strip() == str(person.uid)


def test_a_reboot_keeps_the_files_and_the_log_and_ends_the_processes(machine: Machine, person: Person) -> None:
    person.write("a/letter", "kept")
    person.systemctl("mask", "--runtime", "nothing.service")
    person.run(["systemd-cat", "-t", "test", "echo", "said before"])
    for cleanly in (True, False):
        sleeper = person.run(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!"]).stdout.strip()
        assert machine.path(f"/proc/{sleeper}").exists()
        machine.reboot(cleanly=cleanly)
        assert not machine.path(f"/proc/{sleeper}/cmdline").exists() or b"sleep" not in machine.path(f"/proc/{sleeper}/cmdline").read_bytes()
        assert person.read("a/letter") == "kept"
        assert person.systemctl("is-system-running", "--wait").stdout.strip() == "running"
    assert person.systemctl("is-enabled", "nothing.service", check=False).stdout.strip() != "masked-runtime"
    assert "said before" in person.run(["journalctl", "--user", "-t", "test"]).stdout


@pytest.mark.usefixtures("machine")  # which skips where none can be had
def test_nothing_is_left_of_one() -> None:
    with boot() as other:
        first, name = other.pid, other.name
        other.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])
        assert _left(name)
    assert not Path(f"/proc/{first}").exists()
    assert not _left(name)


_KILLED = "from tests.systemd.machine import boot\nwith boot() as machine: print(machine.name, flush=True); input()"


@pytest.mark.usefixtures("machine")
def test_nothing_is_left_when_whoever_booted_it_is_killed() -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _KILLED], cwd=CHECKOUT, **pipes, start_new_session=True) as booting:
        assert booting.stdout
        name = booting.stdout.readline().strip()
        assert _left(name)
        os.killpg(booting.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while _left(name):
        assert time.monotonic() < deadline, _left(name)
        time.sleep(0.05)


def _left(name: str) -> list[str]:
    """The processes in cgroups below `name`, and those cgroups themselves."""
    found = [str(path) for path in _cgroups().glob(f"{name}*")]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if name in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return found


def _cgroups() -> Path:
    """Where the machine that the tests run on has its cgroups (v2)."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return next(Path(mount[1]) for mount in mounts if mount[2] == "cgroup2")
