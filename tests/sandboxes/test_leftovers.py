"""Commands whose daemon was killed: ended by the next one, and nobody else's with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bubbles import sandboxes
from bubbles.paths import Home
from bubbles.sandboxes import tether
from bubbles.sandboxes.mark import MARK, Mark, fresh, home_of, look
from bubbles.sandboxes.numbers import everyone
from tests.sandboxes.processes import alive, tag

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")

ROOT = Path(__file__).parents[2]
DAEMON = textwrap.dedent(
    """
    import asyncio, pathlib, sys
    from bubbles.config.tools import Sandbox as Settings
    from bubbles.sandboxes import Limits, open

    root = pathlib.Path(sys.argv[1])
    session = root / "sessions/a"
    session.mkdir(parents=True, exist_ok=True)
    asyncio.run(open("local_isolated", session, root / "session_homes/a", Settings()).run(sys.argv[2], Limits()))
    """
)
TREES = {
    "shell": "while :; do echo . >> ticks; sleep 0.02; : {tag}; done",
    "child": "(while :; do echo . >> ticks; sleep 0.02; done; : {tag}) ; true",
    "setsid, double fork": "(setsid sh -c 'trap \"\" TERM HUP INT; while :; do echo . >> ticks; sleep 0.02; : {tag}; done' &) ; sleep 3600",
    "keeps forking": "touch ticks; (setsid sh -c 'while :; do echo . >> ticks; (setsid sleep {tag} &) ; sleep 0.02; done' &) ; sleep 3600",
}


class Daemon:
    """A process that runs one command of the home at `root`."""

    def __init__(self, root: Path, command: str) -> None:
        self.root, self.tag = root, tag()
        self.ticks = root / "sessions/a/work/ticks"
        argv = [sys.executable, "-c", DAEMON, str(root), command.replace("{tag}", self.tag)]
        self.process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        until(self.ticks.exists)

    def kill(self, *, tether: bool = True) -> None:
        """`tether`: and what would end its commands then, so that only a sweep can."""
        if tether and self.process.poll() is None:
            for pid in tethers(self.process.pid):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    @property
    def left(self) -> list[str]:
        """The marked processes of this home, the daemon's own command line not among them."""
        return [line for line in alive(self.tag) if str(self.root) not in line]

    def goes_on(self) -> bool:
        """Whether a tick comes within a while; False at once where no process is left that could bring one."""
        size = self.ticks.stat().st_size
        until(lambda: self.ticks.stat().st_size > size or not self.left)
        return self.ticks.stat().st_size > size


def tethers(pid: int) -> list[int]:
    """The children of the process `pid` that wait for its end."""
    children = [seen.pid for seen in map(look, everyone()) if seen and seen.parent == pid]
    return [child for child in children if b"end_of" in Path(f"/proc/{child}/cmdline").read_bytes()]


def until(claim: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not claim():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


@contextlib.contextmanager
def daemon(root: Path, command: str) -> Iterator[Daemon]:
    """One such daemon; whatever a failed test leaves of it is ended."""
    made = Daemon(root, command)
    try:
        yield made
    finally:
        made.kill()
        sandboxes.sweep(Home(made.root))


@contextlib.contextmanager
def marked(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours with `mark` in its environment."""
    process = subprocess.Popen(["sleep", "3600"], env={**os.environ, MARK: mark})
    try:
        until(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("tree", TREES)
def test_what_a_killed_daemon_left_is_ended(tmp_path: Path, tree: str) -> None:
    with daemon(tmp_path / "home", TREES[tree]) as killed:
        killed.kill()
        ended = sandboxes.sweep(Home(killed.root))
        assert killed.left == []
        size = killed.ticks.stat().st_size
        time.sleep(0.1)  # five ticks
        assert killed.ticks.stat().st_size == size
        if "setsid" in TREES[tree]:
            assert ended > 0
        assert sandboxes.sweep(Home(killed.root)) == 0


@pytest.mark.parametrize("tree", TREES)
def test_what_a_killed_daemon_left_is_ended_though_no_other_comes(tmp_path: Path, tree: str) -> None:
    with daemon(tmp_path / "home", TREES[tree]) as killed, daemon(tmp_path / "other", TREES[tree]) as living:
        killed.kill(tether=False)
        until(lambda: killed.left == [])
        assert living.goes_on()


def test_what_waits_for_a_daemons_end_knows_nothing_and_is_replaced_when_it_is_gone(tmp_path: Path) -> None:
    for _ in range(2):
        with tether.holding(fresh(tmp_path)):
            (pid,) = tethers(os.getpid())
            assert Path(f"/proc/{pid}/environ").read_bytes().startswith(b"PATH=")
            assert Path(f"/proc/{pid}/environ").read_bytes().count(b"\0") == 1
            assert os.getsid(pid) == pid
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: look(pid) is None)


def test_a_daemon_that_ends_in_order_leaves_nothing_behind(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", DAEMON, str(tmp_path), "ps -o pid= --ppid $PPID > shown"]
    one = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert one.wait() == 0
    shown = [int(line) for line in (tmp_path / "sessions/a/work/shown").read_text().split()]
    assert len(shown) == 2  # the command's shell is the other
    assert [pid for pid in shown if look(pid)] == []


def test_what_left_its_shell_goes_on_until_it_is_swept(tmp_path: Path) -> None:
    with daemon(tmp_path / "home", TREES["setsid, double fork"]) as killed:
        killed.kill()
        assert killed.goes_on()


def test_another_homes_and_a_living_daemons_are_left_alone(tmp_path: Path) -> None:
    loop = TREES["setsid, double fork"]
    with daemon(tmp_path / "one", loop) as one, daemon(tmp_path / "two", loop) as two, daemon(tmp_path / "three", loop) as living:
        one.kill()
        two.kill()
        assert sandboxes.sweep(Home(one.root)) > 0
        assert sandboxes.sweep(Home(living.root)) == 0
        assert one.left == []
        assert two.goes_on()
        assert living.goes_on()


def test_a_home_is_the_same_by_each_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home")
    with daemon(tmp_path / "home", TREES["setsid, double fork"]) as killed:
        killed.kill()
        assert sandboxes.sweep(Home(tmp_path / "link")) > 0
        assert killed.left == []


def test_a_daemon_is_known_by_its_number_and_its_start(tmp_path: Path) -> None:
    own = look(os.getpid())
    assert own is not None
    given = fresh(tmp_path)
    home, pid, start, random = given.split(".")
    assert (home, int(pid), int(start)) == (home_of(tmp_path), own.pid, own.start)
    reused = f"{home}.{pid}.{own.start - 1}.{random}"
    with marked(given) as mine, marked(reused) as left:
        assert Mark.of(mine.pid) == Mark(home, own.pid, own.start)
        assert sandboxes.sweep(Home(tmp_path)) == 1
        assert left.wait() == -signal.SIGKILL
        assert mine.poll() is None


def test_a_daemon_that_nobody_has_reaped_is_dead(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "3600"]) as gone:
        found = look(gone.pid)
        assert found is not None
        mark = f"{home_of(tmp_path)}.{gone.pid}.{found.start}.{'0' * 32}"
        with marked(mark) as left:
            assert sandboxes.sweep(Home(tmp_path)) == 0
            gone.kill()
            until(lambda: look(gone.pid) is None)
            assert sandboxes.sweep(Home(tmp_path)) == 1
            assert left.wait() == -signal.SIGKILL


@pytest.mark.parametrize(
    "form",
    ["", "{}", "{}.1", "{}.4194303.1", "{}.-1.1.{r}", "{}.4194303.1.{r}x", "x{}.4194303.1.{r}", "0123456789abcdef.4194303.1.{r}"],
)
def test_what_bears_no_mark_of_this_home_is_not_touched(tmp_path: Path, form: str) -> None:
    with marked(form.replace("{}", home_of(tmp_path)).replace("{r}", "0" * 32)) as other:
        assert sandboxes.sweep(Home(tmp_path)) == 0
        assert other.poll() is None


def test_a_daemon_that_a_leftover_started_spares_itself_and_those_it_descends_from(tmp_path: Path) -> None:
    mark = f"{home_of(tmp_path)}.4194303.1.{'0' * 32}"
    inner = "import pathlib, sys; from bubbles import paths, sandboxes; print(sandboxes.sweep(paths.Home(pathlib.Path(sys.argv[1]))))"
    script = 'sleep 3600 & "$0" -c "$1" "$2"; echo lives'
    done = subprocess.run(
        ["bash", "-c", script + "; wait $!; echo $?", sys.executable, inner, str(tmp_path)],
        env={**os.environ, MARK: mark, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[:2] == ["1", "lives"]
    assert done.stdout.splitlines()[-1] == str(128 + signal.SIGKILL)
