"""The watch over memory where no cgroup bounds it: what a command has, however it is spread, and when that is too much."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bubbles.sandboxes import memory
from bubbles.sandboxes.mark import look
from bubbles.sandboxes.sandbox import Bounds
from tests.sandboxes.cgroups import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")

MIB = 1 << 20
BOUND = 64 * MIB
# Each says "ready" when it has what it wants, and then waits for the end of its input.
READY = "print('ready', flush=True); sys.stdin.read()"
ONE = f"import sys; kept = bytearray(100 << 20); {READY}"
SPREAD = f"""
import os, sys
read, write = os.pipe()
for _ in range(7):
    if os.fork() == 0:
        kept = bytes([1]) * (16 << 20)
        os.write(write, b".")
        sys.stdin.read()
        os._exit(0)
for _ in range(7):
    os.read(read, 1)
{READY}
"""
SHARED = f"""
import os, sys
kept = bytearray(30 << 20)
for _ in range(5):
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
{READY}
"""
GRANDCHILD = f"import os, sys; [turn(os.fork()) and (sys.stdin.read(), os._exit(0)) for turn in (bool, lambda pid: not pid)]; {READY}"
NAMELESS = f"import os, sys; fd = os.memfd_create('x'); [os.write(fd, bytes(1 << 20)) for _ in range(100)]; {READY}"
MAPPED = f"import mmap, sys; kept = mmap.mmap(-1, 100 << 20); kept.write(bytes(100 << 20)); {READY}"
LITTLE = f"import sys; {READY}"
FILE = f"import mmap, sys; file = open(sys.argv[1], 'rb'); kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); sum(kept[::4096]); {READY}"


ROOT = Path(__file__).parents[2]
SYSTEM = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
# As a user to whom they are closed: whether it hides what it has open, and why the watch says to stop.
WATCHED = """
import asyncio, subprocess, sys
from bubbles.sandboxes import memory
from bubbles.sandboxes.sandbox import Bounds

async def watch():
    argv = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-I", "-S", "-c", sys.argv[1]]
    command = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said = asyncio.get_running_loop().create_future()
    watching = asyncio.ensure_future(memory.watch(command.pid, Bounds(memory_bytes=64 << 20), said.set_result))
    await asyncio.sleep(0)  # it has begun, before anything is held
    command.stdout.readline()
    hidden = memory.Opened.by(memory.Kin(command.pid).look()).hidden
    print(hidden, await asyncio.wait_for(said, 20))
    command.stdin.close()
    await watching

asyncio.run(watch())
"""


@contextlib.contextmanager
def ready(source: str, *arguments: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A shell whose child is a Python that runs `source`, by `before`, once that has said so."""
    argv = ["sh", "-c", '"$@"; true', "sh", *before, sys.executable, "-I", "-S", "-c", source, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdin
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.stdin.close()


def kin(pid: int) -> list[int]:
    return memory.Kin(pid).look()


def resident(pid: int) -> int:
    return memory.resident(kin(pid), memory.Opened.by(kin(pid)).nameless)


def together(pid: int) -> int:
    return memory.together(kin(pid), memory.Opened.by(kin(pid)).nameless)


def watched(pid: int, bounds: Bounds, timeout_s: float = 20, **more: str) -> str:
    """Why the watch says to stop; "" where it says nothing for so long."""
    said: list[str] = []

    async def look() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(memory.watch(pid, bounds, said.append, **more), timeout_s)

    asyncio.run(look())
    assert len(said) <= 1
    return "".join(said)


@pytest.mark.parametrize("source", [ONE, SPREAD, NAMELESS, MAPPED], ids=["one process", "many processes", "a file without a name", "shared pages"])
def test_what_is_taken_is_found(source: str) -> None:
    with ready(source) as command:
        assert together(command.pid) > BOUND
        assert resident(command.pid) > BOUND
        assert watched(command.pid, Bounds(memory_bytes=BOUND)) == "memory"


def test_files_in_memory_that_only_they_see_count() -> None:
    if subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", 'mount -t tmpfs own /mnt && exec "$@"', "sh"]
    with ready(f"import sys; open('/mnt/big', 'wb').write(bytes(100 << 20)); {READY}", before=inside) as command:
        assert together(command.pid) > 100 * MIB
        assert watched(command.pid, Bounds(memory_bytes=BOUND)) == "memory"
    mapped = "import mmap, sys; file = open('/mnt/big', 'wb+'); file.truncate(50 << 20); kept = mmap.mmap(file.fileno(), 0)"
    with ready(f"{mapped}; kept.write(bytes(50 << 20)); {READY}", before=inside) as command:
        assert 50 * MIB <= together(command.pid) < BOUND  # not twice


def test_what_processes_share_counts_once() -> None:
    with ready(SHARED) as command:
        pids = kin(command.pid)
        assert len(pids) == 7
        assert resident(command.pid) > 5 * 30 * MIB
        assert 30 * MIB < together(command.pid) < BOUND
        assert watched(command.pid, Bounds(memory_bytes=BOUND), timeout_s=0.6) == ""


def test_what_can_be_read_again_does_not_count(tmp_path: Path) -> None:
    if subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout == "tmpfs\n":
        pytest.skip("files for tests lie in memory here, and so they count")
    path = tmp_path / "big"
    path.write_bytes(bytes(100 * MIB))
    with ready(FILE, str(path)) as command:
        assert resident(command.pid) > 100 * MIB
        assert together(command.pid) < BOUND


def test_a_file_without_a_name_counts_once_for_all_that_have_it_open() -> None:
    with ready(NAMELESS.replace("; print", "; [os.fork() or (sys.stdin.read(), os._exit(0)) for _ in range(3)]; print")) as command:
        pids = kin(command.pid)
        assert len(pids) == 5
        assert 100 * MIB <= together(command.pid) < 200 * MIB


def test_who_was_seen_belongs_to_it_also_when_what_started_it_has_ended() -> None:
    with ready(GRANDCHILD) as command:
        seen = memory.Kin(command.pid)
        _, _, child, grandchild = sorted(seen.look())
        os.kill(child, signal.SIGKILL)
        until(lambda: look(child) is None)
        assert grandchild in seen.look()
        assert grandchild not in kin(command.pid)


def test_too_many_processes_are_told() -> None:
    with ready(SHARED) as command:
        assert watched(command.pid, Bounds(processes=6)) == "processes"
        assert watched(command.pid, Bounds(processes=7), timeout_s=0.4) == ""


def test_they_are_found_by_their_parents_too() -> None:
    with ready(SHARED) as command:
        untold = memory.Kin(command.pid, told=False)
        assert sorted(untold.look()) == sorted(kin(command.pid))
        assert untold.threads == 7


def test_threads_count_with_them() -> None:
    threads = "import sys, threading; [threading.Thread(target=sys.stdin.read).start() for _ in range(20)]"
    with ready(f"{threads}; {READY}") as command:
        seen = memory.Kin(command.pid)
        assert len(seen.look()) == 2
        assert seen.threads == 22
        assert watched(command.pid, Bounds(processes=21)) == "processes"


def test_there_is_room_for_what_runs_already() -> None:
    assert memory.crowd(Bounds(processes=40)) > 1000 + 40
    assert memory.crowd(Bounds(processes=99_000)) > memory.crowd(Bounds(processes=40)) + 90_000


def test_a_process_that_is_gone_has_nothing() -> None:
    with ready(f"import sys; {READY}") as command:
        pass
    assert memory.together([command.pid], 0) == memory.resident([command.pid], 0) == 0
    assert watched(command.pid, Bounds(memory_bytes=1), timeout_s=0.4) == ""


def test_too_many_open_files_are_told_before_all_were_looked_at() -> None:
    opening = "import os, sys; [os.open('/dev/null', 0) for _ in range(900)]"
    with ready(f"{opening}; [os.fork() or (sys.stdin.read(), os._exit(0)) for _ in range(24)]; {READY}") as command:
        assert 20_000 < memory.Opened.by(kin(command.pid)).count < 20_010
        assert watched(command.pid, Bounds()) == "files"


def test_what_a_process_hides_is_seen_in_what_the_machine_has() -> None:
    hides = f"import ctypes; ctypes.CDLL(None).prctl(4, 0); {NAMELESS}"
    as_whom = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"] if os.geteuid() == 0 else []
    told = [*as_whom, SYSTEM, "-c", WATCHED, hides]
    done = subprocess.run(told, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60)
    if "ModuleNotFoundError" in done.stderr or "PermissionError" in done.stderr:
        pytest.skip("an ordinary user cannot read this tree")
    assert done.stdout == "True memory\n", done.stderr


@pytest.mark.parametrize(("left_mib", "source", "why"), [(600, ONE, ""), (400, ONE, "scarce"), (400, LITTLE, ""), (200, LITTLE, "scarce")])
def test_where_the_machine_has_hardly_any_left_the_large_go_first(tmp_path: Path, left_mib: int, source: str, why: str) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text(f"MemTotal: {16 << 20} kB\nMemAvailable: {(left_mib - 50) << 10} kB\nSwapFree: {50 << 10} kB\nShmem: 0 kB\n")
    with ready(source) as command:
        assert watched(command.pid, Bounds(), timeout_s=20 if why else 0.4, machine=str(machine)) == why


def test_a_small_machine_needs_less_and_one_that_tells_nothing_none() -> None:
    small = memory.Machine(total=1 << 30, left=52 * MIB, shared=0)
    assert not small.is_scarce()
    smaller = memory.Machine(total=1 << 30, left=50 * MIB, shared=0)
    assert smaller.is_scarce()
    assert not smaller.is_scarce(2)
    assert not memory.Machine.told("/proc/absent").is_scarce()
