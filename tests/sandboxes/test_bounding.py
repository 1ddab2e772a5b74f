"""What bounds a command in each backend: limits of its own processes, watches where no cgroup can be had, and a cgroup where one can."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Limits as Bounding
from bubbles.config.tools import Sandbox
from bubbles.paths import Home
from bubbles.sandboxes.sandbox import Limits, Outcome
from tests.sandboxes.cgroups import subtree, within
from tests.sandboxes.refusing import needs_a_jail

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")

ROOT = Path(__file__).parents[2]
BACKENDS = ["local_isolated", "bwrap"]
MANY = "for n in $(seq 60); do sleep 3600 & done; wait"
# Runs the commands of argv[3:] with the backend argv[2] in the home argv[1], and prints what came of each.
RUNS = textwrap.dedent(
    """
    import asyncio, dataclasses, json, sys
    from pathlib import Path
    from bubbles import sandboxes
    from bubbles.config.tools import Sandbox
    from bubbles.sandboxes.cgroup import Parent

    root, backend, *commands = sys.argv[1:]
    session = Path(root, "sessions/a")
    box = sandboxes.open(backend, session, Path(root, "session_homes/a"), Sandbox())
    for command in commands:
        print(json.dumps(dataclasses.asdict(asyncio.run(box.run(command, sandboxes.Limits(timeout_s=60))))))
    print(json.dumps([path.name for path in Parent.find().path.iterdir() if path.is_dir()]))
    """
)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    name: str = request.param
    (tmp_path / "sessions/a/work").mkdir(parents=True)
    if name == "bwrap":
        needs_a_jail(Home(tmp_path))
    return name


def run(root: Path, backend: str, command: str, **bounds: int) -> Outcome:
    settings = Sandbox(limits=Bounding(**bounds))
    box: Any = sandboxes.open(backend, root / "sessions/a", root / "session_homes/a", settings)
    outcome: Outcome = asyncio.run(box.run(command, Limits(timeout_s=60)))
    return outcome


def test_a_file_ends_where_it_may_not_grow_further(backend: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, backend, "head -c 3M /dev/zero >big; echo $?", file_bytes=1 << 20)
    assert outcome.output.splitlines()[-1] == "153"  # SIGXFSZ
    assert (tmp_path / "sessions/a/work/big").stat().st_size == 1 << 20
    assert "file:rlimit" in outcome.limits_active
    ended = run(tmp_path, backend, "exec head -c 3M /dev/zero >big", file_bytes=1 << 20)
    assert (ended.note, ended.ended_for) == ("it wrote more into a file than it may: 1 MiB, by the kernel", "file")


def test_no_core_few_files_and_no_way_back(backend: str, tmp_path: Path) -> None:
    assert run(tmp_path, backend, "ulimit -Hc; ulimit -Hn; ulimit -Hf").output.split() == ["0", "4096", str(2 << 20)]
    # In a jail also for who is root outside; otherwise root may raise them, who needs no such limit to do harm.
    raised = "for limit in -c -n -f; do ulimit $limit 99999999 2>/dev/null && echo raised; done; ulimit -n"
    if backend == "bwrap" or os.geteuid():
        assert run(tmp_path, backend, raised).output == "4096\n"


def test_memory_is_watched(backend: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, backend, "head -c 200M /dev/zero | tail -n 1 | wc -c; sleep 3600", memory_bytes=64 << 20)
    assert outcome.oom
    assert outcome.note == "it took more memory than it may: 64 MiB, watched"
    assert outcome.ended_for == "memory"
    assert not outcome.timed_out
    assert "memory:watch" in outcome.limits_active


def test_so_is_how_many_they_are(backend: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, backend, MANY, processes=40)
    assert outcome.signal == 9 or "fork" in outcome.output
    assert not outcome.timed_out
    assert not outcome.oom
    assert not outcome.ended_for or outcome.note == "it started more processes than it may: 40, watched"


def test_what_ended_by_itself_says_nothing_of_its_bounds(backend: str, tmp_path: Path) -> None:
    outcome = run(tmp_path, backend, "true")
    assert (outcome.note, outcome.ended_for) == ("", "")
    assert "memory:watch" in outcome.limits_active


def test_a_full_tmp_is_the_jails_own(backend: str, tmp_path: Path) -> None:
    if backend != "bwrap":
        pytest.skip("it has the owner's /tmp")
    outcome = run(tmp_path, backend, "head -c 8M /dev/zero >/tmp/big; df --output=size -k /tmp | tail -n 1", tmp_bytes=4 << 20)
    assert "No space left on device" in outcome.output
    assert outcome.output.split()[-1] == "4096"


def test_a_command_lives_in_a_group_of_its_own_where_there_can_be_one(backend: str, tmp_path: Path) -> None:
    with subtree() as place:
        place.chmod(0o755)
        argv = [sys.executable, "-c", RUNS, str(tmp_path), backend, "grep ^0:: /proc/self/cgroup", "(setsid sleep 3600 &); echo left; exit 3"]
        process = within(place, argv, cwd=ROOT, env={**os.environ, "BUBBLES_CGROUP": "own", "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE)
        where, left, rest = map(json.loads, process.communicate(timeout=120)[0].splitlines())
        if backend == "bwrap":
            assert where["output"] == "0::/\n"  # it does not see which
        else:
            assert where["output"].endswith(f"{place.name}/cmd-{process.pid}-1\n")
        assert (left["output"], left["exit"]) == ("left\n", 3)
        assert rest == ["main"]
