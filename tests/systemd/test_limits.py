"""agentd's unit divided: the daemon in main/, each command in a group of its own beside it, and the unit ends and begins as before."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.person import Person
from tests.systemd.world import AGENTD, World, world


def _call(when: str, command: str) -> dict[str, Any]:
    return {"when": when, "times": 1, "calls": [{"name": "exec", "arguments": {"command": command}}]}


_RULES = [
    _call("slowly", "echo begun >> ran; sleep 600"),
    _call("quickly", "echo done >> ran"),
    _call("all of it", "head -c 300M /dev/zero | tail -n 1 | wc -c; sleep 600"),
    _call("many", "echo 'sh ./x & sh ./x' > x; sh ./x 2>/dev/null; sleep 600"),
]
_BACKENDS = pytest.mark.parametrize("bubbles", ["local_isolated", "bwrap"], indirect=True)
_LIMITS = {"memory_bytes": 64 << 20, "processes": 60}


@pytest.fixture
def memory_and_pids(machine: Machine) -> None:
    """To be asked for first: the rest costs seconds."""
    if missing := {"memory", "pids"} - {*machine.path("/sys/fs/cgroup/cgroup.controllers").read_text().split()}:
        pytest.skip(f"cgroup2 has no controller here for: {', '.join(sorted(missing))}")


@pytest.fixture(params=["local_isolated"])
def bubbles(request: pytest.FixtureRequest, person: Person, tmp_path: Path) -> Iterator[World]:
    """One that has not been started, whose commands are bounded closely."""
    script = {"rules": _RULES, "default": {"reply": "and on it goes"}}
    with world(person, tmp_path / "state", script) as made:
        config = json.loads(person.read(".bubbles/config.json"))
        config["tools"] = {"sandbox": {"backend": request.param, "limits": _LIMITS}}
        person.write(".bubbles/config.json", json.dumps(config))
        yield made


def unit(bubbles: World) -> Path:
    """The cgroup of agentd's unit, as it is seen from outside."""
    return bubbles.machine.path("/sys/fs/cgroup" + bubbles.person.unit(AGENTD)["ControlGroup"])


def groups(bubbles: World) -> list[Path]:
    """Those of commands."""
    return sorted(unit(bubbles).glob("cmd-*"))


def pids(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def result(bubbles: World) -> str:
    """What the last call of a tool brought."""
    found: str = [line["content"] for line in bubbles.history() if line.get("role") == "tool"][-1]
    return found


@_BACKENDS
def test_a_command_has_a_group_beside_the_daemon_and_ends_with_it(bubbles: World) -> None:
    bubbles.start()
    daemon = bubbles.machine.outside(bubbles.pid(AGENTD))
    assert daemon in pids(unit(bubbles) / "main")
    asking = bubbles.asking("slowly")
    bubbles.person.until(bubbles.ran)
    [group] = groups(bubbles)
    assert pids(group)
    assert pids(unit(bubbles)) == []
    assert daemon in pids(unit(bubbles) / "main")
    (group / "cgroup.kill").write_text("1")
    assert asking.communicate(timeout=20)[0].strip() == "and on it goes"
    assert groups(bubbles) == []
    assert bubbles.machine.outside(bubbles.pid(AGENTD)) == daemon


def test_the_unit_is_restarted_killed_and_stopped_as_before(bubbles: World) -> None:
    bubbles.start()
    asking = bubbles.asking("slowly")
    person = bubbles.person
    person.until(bubbles.ran)
    person.systemctl("restart", AGENTD)
    asking.communicate(timeout=20)
    assert person.until(lambda: bubbles.said() == ["and on it goes"])  # the turn went on after it
    assert groups(bubbles) == []
    bubbles.signal("KILL", before := bubbles.pid(AGENTD))
    person.until(lambda: bubbles.pid(AGENTD) not in (0, before))
    person.until(lambda: person.unit(AGENTD)["ActiveState"] == "active")
    assert bubbles.ask("quickly") == "and on it goes"
    assert bubbles.ran() == ["begun", "done"]
    assert bubbles.machine.outside(bubbles.pid(AGENTD)) in pids(unit(bubbles) / "main")
    place = unit(bubbles)
    person.systemctl("stop", AGENTD)
    assert (person.unit(AGENTD)["ActiveState"], person.unit(AGENTD)["Result"]) == ("inactive", "success")
    assert not place.exists()


def test_its_watchdog_is_heard_from_where_it_lives(bubbles: World) -> None:
    bubbles.adjust(AGENTD, "soon", "[Service]\nWatchdogSec=4\n")
    bubbles.start()
    first = bubbles.person.unit(AGENTD)["WatchdogTimestampMonotonic"]
    bubbles.person.until(lambda: bubbles.person.unit(AGENTD)["WatchdogTimestampMonotonic"] != first)
    assert bubbles.person.unit(AGENTD)["NRestarts"] == "0"


@_BACKENDS
@pytest.mark.usefixtures("memory_and_pids")
def test_a_command_that_takes_too_much_memory_is_ended_and_told(bubbles: World) -> None:
    bubbles.start()
    before = bubbles.pid(AGENTD)
    assert bubbles.ask("read all of it") == "and on it goes"
    assert "more memory than it may" in result(bubbles)
    assert bubbles.pid(AGENTD) == before
    assert groups(bubbles) == []


@_BACKENDS
@pytest.mark.usefixtures("memory_and_pids")
def test_a_fork_bomb_is_held_and_the_daemon_goes_on(bubbles: World) -> None:
    bubbles.start()
    before = bubbles.pid(AGENTD)
    asking = bubbles.asking("start many")
    [group] = bubbles.person.until(lambda: groups(bubbles))
    bubbles.person.until(lambda: "max 0" not in (group / "pids.events").read_text())
    assert int((group / "pids.current").read_text()) <= _LIMITS["processes"]
    assert bubbles.ask("quickly", session="other") == "and on it goes"  # meanwhile
    (group / "cgroup.kill").write_text("1")
    assert asking.communicate(timeout=20)[0].strip() == "and on it goes"
    assert bubbles.pid(AGENTD) == before
    assert groups(bubbles) == []


# Outside a unit that is ours there is no cgroup to divide.
_ALONE = """
import asyncio, sys
from pathlib import Path
from bubbles import sandboxes
from bubbles.config.tools import Limits, Sandbox

root = Path(sys.argv[1])
(root / "sessions/a/work").mkdir(parents=True)
box = sandboxes.open("bwrap", root / "sessions/a", root / "session_homes/a", Sandbox(limits=Limits(processes=40)), network="none")
command = "sh -c 'while :; do sleep 9 & echo born; done'"
outcome = asyncio.run(box.run(command, sandboxes.Limits()))
print(outcome.output, outcome.limits_active)
"""


def test_an_ordinary_users_jail_bounds_its_processes_also_without_a_cgroup(person: Person) -> None:
    script = person.write("alone.py", _ALONE)
    env = {"PYTHONPATH": str(CHECKOUT)}
    told = person.run([sys.executable, script, person.home / "apart"], env=env).stdout
    assert "Cannot fork" in told
    assert 20 < told.count("born") < 40
    assert "processes:rlimit" in told
