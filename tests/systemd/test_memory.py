"""Memory runs out in a command: the kernel ends the command, the daemon that ran it goes on, and the turn with it.

It is the kernel's own killer, in a group of processes with a limit. Where the machine has the controller (cgroup v2) that is the unit's own;
where the kernel has it in a hierarchy of the old kind, which a machine in namespaces does not see, the daemon is put into one from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.systemd.person import Person
from tests.systemd.world import AGENTD, World, world

_LEFT = 30 << 20  # bytes: less than the daemon has by itself, so that by size alone it would be the one to end
_GREEDY = {"name": "exec", "arguments": {"command": "head -c 1G /dev/zero | tail -n 1 | wc -c; echo ${PIPESTATUS[1]} > of-tail"}}
_V1 = Path("/sys/fs/cgroup/memory")


def _limit(bubbles: World) -> Callable[[], int]:
    """Leave `_LEFT` bytes to agentd and its commands; returns what counts those whom the kernel ended. Skips where no controller can be had."""
    person, machine = bubbles.person, bubbles.machine
    if "memory" in machine.path("/sys/fs/cgroup/cgroup.controllers").read_text().split():
        group = machine.path("/sys/fs/cgroup/" + person.unit(AGENTD)["ControlGroup"])
        most = int((group / "memory.current").read_text()) + _LEFT
        person.systemctl("set-property", "--runtime", AGENTD, f"MemoryMax={most}", "MemorySwapMax=0")
        return lambda: _killed(group / "memory.events")
    if (_V1 / "memory.limit_in_bytes").exists():
        group = _V1 / machine.name  # whoever keeps the machine removes it
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(_LEFT))  # of what is taken from now on
        (group / "cgroup.procs").write_text(str(machine.outside(bubbles.pid(AGENTD))))
        return lambda: _killed(group / "memory.oom_control")
    pytest.skip("the kernel offers no memory controller to a machine in namespaces")


def _killed(counts: Path) -> int:
    return int(dict(line.split() for line in counts.read_text().splitlines())["oom_kill"])


def test_a_command_without_memory_ends_and_its_daemon_does_not(person: Person, tmp_path: Path) -> None:
    script = {"rules": [{"when": "all of it", "times": 1, "calls": [_GREEDY]}], "default": {"reply": "that was too much"}}
    with world(person, tmp_path / "state", script) as bubbles:
        bubbles.start()
        killed = _limit(bubbles)
        before = bubbles.pid(AGENTD)
        assert bubbles.ask("read all of it") == "that was too much"
        assert killed() == 1
        assert person.read(".bubbles/sessions/s/work/of-tail") == "137\n"
        assert bubbles.pid(AGENTD) == before
        assert person.unit(AGENTD)["NRestarts"] == "0"
