"""A cgroup for each command: whose cgroup may be divided, what a group bounds, and that nothing of a command outlives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.errors import ToolError
from bubbles.sandboxes.cgroup import Parent
from bubbles.sandboxes.delegation import places
from bubbles.sandboxes.mark import look
from bubbles.sandboxes.sandbox import Bounds
from tests.sandboxes.cgroups import controllers, subtree, until, within

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no cgroups")

ROOT = Path(__file__).parents[2]
SLEEP = ["sleep", "3600"]
STUBBORN = ["sh", "-c", "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' &); (sleep 3600 &); sleep 3600"]
FINDS = """
import json, os
from pathlib import Path
from bubbles.sandboxes.cgroup import Parent, why_not
parent = Parent.find()
where = [line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")][0]
print(json.dumps({"path": parent and str(parent.path), "why": why_not(), "where": where, "again": Parent.find() is parent}))
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with subtree() as made:
        yield made


def pids(group: str | Path) -> set[int]:
    return set(map(int, Path(group, "cgroup.procs").read_text().split()))


def found(place: Path, **environ: str) -> dict[str, object]:
    """What a process in the cgroup `place` finds."""
    env = {name: value for name, value in os.environ.items() if name not in ("BUBBLES_CGROUP", "SYSTEMD_EXEC_PID")}
    process = within(place, [sys.executable, "-c", FINDS], cwd=ROOT, env=env | environ, stdout=subprocess.PIPE)
    told: dict[str, object] = json.loads(process.communicate()[0])
    return told


# -- whose it is ---------------------------------------------------------------------------------------


def test_a_process_that_systemd_did_not_start_stays_where_it_is(place: Path) -> None:
    told = found(place)
    assert told["path"] is None
    assert told["why"] == "this process is not the one that systemd started for a unit"
    assert str(told["where"]).endswith(place.name)
    assert not (place / "main").exists()


def test_nor_does_one_whose_parent_systemd_has_started(place: Path) -> None:
    assert found(place, SYSTEMD_EXEC_PID=str(os.getpid()))["path"] is None


def _started(place: Path, unit: str) -> dict[str, object]:
    """What a process finds that has the number systemd would have told it, in a unit of that name."""
    (place / unit).mkdir(exist_ok=True)
    script = 'SYSTEMD_EXEC_PID=$$ exec "$@"'
    process = within(place / unit, ["sh", "-c", script, "sh", sys.executable, "-c", FINDS], cwd=ROOT, stdout=subprocess.PIPE)
    told: dict[str, object] = json.loads(process.communicate()[0])
    return told


def test_our_unit_is_ours(place: Path) -> None:
    told = _started(place, "bubbles-agentd.service")
    assert told == {"path": str(place / "bubbles-agentd.service"), "why": "", "where": told["where"], "again": True}
    assert str(told["where"]).endswith(f"{place.name}/bubbles-agentd.service/main")


def test_a_unit_of_another_name_is_not_unless_it_is_delegated(place: Path) -> None:
    assert _started(place, "terminal.scope")["why"] == "terminal.scope has no Delegate=yes"
    os.setxattr(place / "terminal.scope", "user.delegate", b"1")
    assert _started(place, "terminal.scope")["path"] == str(place / "terminal.scope")


def test_the_environment_can_say_so(place: Path) -> None:
    assert found(place, BUBBLES_CGROUP="own")["path"] == str(place)
    assert found(place / "main", BUBBLES_CGROUP="own")["path"] == str(place)  # who is in main/ already: systemd's DelegateSubgroup=


@pytest.mark.parametrize(
    ("cgroups", "mounts", "seen"),
    [
        ("0::/a.service\n", "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", ["/sys/fs/cgroup/a.service"]),
        ("4:memory:/x\n0::/\n", "9 2 0:3 / /sys/fs rw - tmpfs t rw\n10 9 0:4 / /sys/fs/unified rw - cgroup2 c rw\n", ["/sys/fs/unified"]),
        ("0::/docker/f/x\n", "29 23 0:26 /docker/f /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", ["/sys/fs/cgroup/x"]),
        ("0::/elsewhere\n", "29 23 0:26 /docker/f /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", []),
        ("0::/../outside\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", []),
        ("0::/a\n", "29 23 0:26 / /mnt/my\\040groups rw - cgroup2 cgroup2 rw\n", ["/mnt/my groups/a"]),
        ("4:memory:/x\n", "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", []),
        ("", "", []),
    ],
)
def test_where_a_cgroup_is_seen(cgroups: str, mounts: str, seen: list[str]) -> None:
    assert [str(path) for path in places(cgroups, mounts)] == seen


# -- a command's group ---------------------------------------------------------------------------------


def test_what_is_there_is_moved_and_nothing_else(place: Path) -> None:
    ours, below = within(place, SLEEP), place / "below"
    below.mkdir()
    theirs = within(below, SLEEP)
    until(lambda: pids(place) == {ours.pid} and pids(below) == {theirs.pid})
    Parent(place)
    assert (pids(place), pids(place / "main"), pids(below)) == (set(), {ours.pid}, {theirs.pid})


def test_nothing_outlives_a_group(place: Path) -> None:
    parent = Parent(place)
    with parent.command(Bounds()) as group:
        command = within(group.path, STUBBORN)
        until(lambda: len(pids(group.path)) >= 4)
        everyone = pids(group.path)
    assert not Path(group.path).exists()
    assert command.wait() == -9
    until(lambda: not any(map(look, everyone)))


def test_what_forks_while_it_is_killed_is_killed(place: Path) -> None:
    storm = "for i in 1 2 3 4; do (while :; do (sleep 0.01 &); done) & done; sleep 3600"
    with Parent(place).command(Bounds()) as group:
        command = within(group.path, ["bash", "-c", storm])
        until(lambda: len(pids(group.path)) > 4)
        group.kill()
        command.wait()
        until(lambda: not pids(group.path))


def test_groups_that_a_command_made_go_with_it(place: Path) -> None:
    with Parent(place).command(Bounds()) as group:
        inner = Path(group.path, "a/b")
        inner.mkdir(parents=True)
        command = within(inner, SLEEP)
        until(lambda: pids(inner))
    assert not Path(group.path).exists()
    assert command.wait() == -9


def test_each_command_has_a_group_of_its_own(place: Path) -> None:
    parent = Parent(place)
    with parent.command(Bounds()) as one, parent.command(Bounds()) as other:
        first, second = within(one.path, SLEEP), within(other.path, SLEEP)
        until(lambda: pids(one.path) and pids(other.path))
        one.kill()
        assert first.wait() == -9
        assert pids(other.path) == {second.pid}
    second.wait()


def test_a_group_is_gone_also_when_the_command_failed(place: Path) -> None:
    parent = Parent(place)
    with pytest.raises(KeyError), parent.command(Bounds()) as group:
        raise KeyError
    assert not Path(group.path).exists()
    assert not group.oom()
    assert group.peak_bytes() == 0


def test_where_no_group_can_be_made_the_command_is_not_run(place: Path) -> None:
    parent = Parent(place)
    (place / "cgroup.max.descendants").write_text("1\n")  # main/ is that one
    with pytest.raises(ToolError, match="no cgroup can be made"), parent.command(Bounds()):
        pytest.fail("it was run")


def test_what_a_dead_daemon_left_is_swept_and_what_a_living_one_has_is_not(place: Path) -> None:
    parent = Parent(place)
    living = within(place / "main", SLEEP)
    names = {"dead": f"cmd-{2**22 + 1}-1", "living": f"cmd-{living.pid}-1", "reused": f"cmd-{os.getpid()}-77", "other": "somebody.scope"}
    for name in names.values():
        (place / name).mkdir()
    commands = {who: within(place / name, SLEEP) for who, name in names.items()}
    until(lambda: all(pids(place / name) for name in names.values()))
    with parent.command(Bounds()) as group:
        assert parent.sweep() == 2
        assert {path.name for path in place.iterdir() if path.is_dir()} == {"main", names["living"], names["other"], Path(group.path).name}
    assert commands["dead"].wait() == commands["reused"].wait() == -9
    assert commands["living"].poll() is commands["other"].poll() is None
    assert parent.sweep() == 0


# -- what it bounds, where the kernel has the controllers ----------------------------------------------


@pytest.fixture
def parent(place: Path) -> Parent:
    return Parent(place)


def _needs(parent: Parent, *names: str) -> None:
    if missing := {*names} - controllers(parent.path):
        pytest.skip(f"cgroup2 has no controller here for: {', '.join(sorted(missing))}")


def test_what_is_bounded_is_told(parent: Parent) -> None:
    has = controllers(parent.path) & {"memory", "pids", "cpu"}
    assert parent.controllers == has
    with parent.command(Bounds()) as group:
        assert set(group.active) == {{"memory": "memory:cgroup", "pids": "processes:cgroup"}[name] for name in has - {"cpu"}}
    with parent.command(Bounds(cpu_percent=30)) as group:
        assert ("cpu:cgroup" in group.active) is ("cpu" in has)


def test_memory_that_is_taken_ends_the_whole_group(parent: Parent) -> None:
    _needs(parent, "memory")
    with parent.command(Bounds(memory_bytes=64 << 20)) as group:
        command = within(group.path, ["sh", "-c", "(sleep 3600 &); head -c 200M /dev/zero | tail -n 1 | wc -c; sleep 3600"])
        assert command.wait() == -9
        assert group.oom()
        until(lambda: not pids(group.path))


def test_memory_of_a_tmpfs_counts(parent: Parent) -> None:
    _needs(parent, "memory")
    with parent.command(Bounds(memory_bytes=64 << 20)) as group:
        mounts = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /mnt && head -c 200M /dev/zero >/mnt/big; sleep 3600"]
        assert within(group.path, mounts).wait() == -9
        assert group.oom()


def test_a_command_that_stays_within_it_is_left_alone(parent: Parent) -> None:
    _needs(parent, "memory")
    with parent.command(Bounds(memory_bytes=128 << 20)) as group:
        assert within(group.path, ["sh", "-c", "head -c 20M /dev/zero | tail -n 1 >/dev/null"]).wait() == 0
        assert not group.oom()


def test_a_fork_bomb_is_held(parent: Parent) -> None:
    _needs(parent, "pids")
    with parent.command(Bounds(processes=40)) as group:
        bomb = within(group.path, ["bash", "-c", "b() { b | b & }; b 2>/dev/null; sleep 3600"], stderr=subprocess.DEVNULL)
        until(lambda: "max 0" not in Path(group.path, "pids.events").read_text())
        assert int(Path(group.path, "pids.current").read_text()) <= 40
        group.kill()
        bomb.wait()


def test_the_processor_is_bounded_where_that_is_asked_for(parent: Parent) -> None:
    _needs(parent, "cpu")
    with parent.command(Bounds(cpu_percent=25)) as group:
        assert Path(group.path, "cpu.max").read_text() == "25000 100000\n"
        burner = within(group.path, ["sh", "-c", "while :; do :; done"])
        until(lambda: "nr_throttled 0" not in Path(group.path, "cpu.stat").read_text())
        group.kill()
        burner.wait()
