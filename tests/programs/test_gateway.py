"""`bubbles gateway`: children started, told, restarted or not, and ended; what it did not start is left alone."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import pytest

from bubbles import logfile, starter
from bubbles.bus import is_running
from bubbles.config.channels import Channels, Slack, Telegram
from bubbles.daemon import idle
from bubbles.paths import Home
from bubbles.programs import gateway as gateway_
from bubbles.programs.children import CHANNEL_RESTART_S, IDLE, RESTART_S, WATCHDOG_S, Children, Spawn, daemons, switched_on
from bubbles.programs.daily import FIRST_S, Tidier
from bubbles.readable import readable
from tests.fakes.start import platform
from tests.programs.conftest import DAEMONS, Place, until
from tests.programs.run import BIN, ROOT
from tests.tidying.home import aged, file

ESCAPE = re.compile(r"\x1b")


class Gateway:
    """A running gateway; `said` is its standard error so far."""

    def __init__(self, place: Place) -> None:
        env, pipe = {**os.environ, **place.env}, subprocess.PIPE
        self.process = subprocess.Popen([BIN / "bubbles", "gateway"], env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said += line

    def expect(self, wanted: str, times: int = 1) -> None:
        until(lambda: self.said.count(wanted) >= times or self.process.poll() is not None)
        assert self.said.count(wanted) >= times, self.said

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(30)
        self._reader.join(5)
        return code


@contextmanager
def gateway(place: Place) -> Iterator[Gateway]:
    found = Gateway(place)
    try:
        yield found
    finally:
        try:
            if found.process.poll() is None:
                found.end()
        finally:
            found.process.kill()


@contextmanager
def process(argv: list[str | Path], place: Place, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """One that is gone at the end, whatever becomes of the test."""
    with subprocess.Popen(argv, env={**os.environ, **place.env, "PYTHONPATH": str(ROOT)}, **how) as found:
        try:
            yield found
        finally:
            found.kill()


def test_it_starts_all_says_so_serves_and_ends_all(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "by the gateway"}})
    with gateway(own_place) as running:
        running.expect("gateway: all run; Ctrl-C ends all")
        assert running.said.startswith("gateway: starting modeld, agentd and cron as children of this program (no service manager answers here)\n")
        assert all(f"gateway: {name} is ready (pid {is_running(own_place.home, name)})" in running.said for name in DAEMONS)
        assert own_place.run("ask", "hi").stdout == "by the gateway\n"
        running.expect("agentd turn.close replied")
        assert not re.search(r"^<\d>", running.said, re.MULTILINE)
        assert not ESCAPE.search(running.said)
        assert "turn.close" in (own_place.home.log / "agentd.jsonl").read_text()
        pids = [is_running(own_place.home, name) for name in DAEMONS]
        assert running.end(signal.SIGINT) == 0
        assert "gateway: ending modeld, agentd and cron" in running.said
        assert running.process.stdout
        assert running.process.stdout.read() == ""
    assert [is_running(own_place.home, name) for name in DAEMONS] == [None, None, None]
    assert all(pid and not Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_that_is_killed_comes_back(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "alive"}})
    with gateway(own_place) as running:
        running.expect("all run")
        for name in DAEMONS:
            before = is_running(own_place.home, name)
            own_place.kill(name)
            running.expect(f"gateway: {name} was ended by SIGKILL; it is started again in 0.5 s")
            running.expect(f"gateway: {name} is back (pid ")
            assert is_running(own_place.home, name) not in (None, before)
        assert own_place.run("ask", "hi").stdout == "alive\n"


def test_its_children_end_with_it_however_it_ends(own_place: Place) -> None:
    with gateway(own_place) as running:
        running.expect("all run")
        running.end(signal.SIGKILL)
        until(lambda: [is_running(own_place.home, name) for name in DAEMONS] == [None, None, None])
    with gateway(own_place) as running:
        running.expect("agentd is ready")


def test_a_terminal_that_is_closed_ends_it(own_place: Place) -> None:
    screen, terminal = pty.openpty()
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with process([BIN / "bubbles", "gateway"], own_place, **streams, preexec_fn=_own_terminal) as running:
        os.close(terminal)
        said = b""
        while b"all run" not in said:
            assert readable([screen], 30), said
            said += os.read(screen, 1 << 16)
        os.close(screen)
        assert running.wait(30) == 0
    assert [is_running(own_place.home, name) for name in DAEMONS] == [None, None, None]


def _own_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_a_wrong_setting_is_told_and_not_tried_again(own_place: Place) -> None:
    own_place.home.config.write_text('{"agents": {"defaults": {"temperature": "hot"}}}')
    with gateway(own_place) as running:
        running.expect("gateway: modeld and agentd will not run; the others run; Ctrl-C ends cron")
        assert "gateway: agentd ended with 78 and is not started again" in running.said
        assert "gateway: modeld ended with 78 and is not started again" in running.said
        assert "agents.defaults.temperature" in running.said
        assert running.said.count("agentd daemon.start") <= 1
        assert is_running(own_place.home, "agentd") is None


def test_a_configuration_that_is_none_starts_nothing(own_place: Place) -> None:
    own_place.home.config.write_text('{"agents": }')
    done = own_place.run("gateway")
    assert done.returncode == 78
    assert done.stderr.startswith(f"bubbles: {own_place.home.config}: line 1, column 12: ")
    assert "  try: mend it there" in done.stderr


def test_one_that_stays_is_left_alone_and_replaced_when_it_ends(own_place: Place) -> None:
    before = starter.start(own_place.home, "agentd")
    with gateway(own_place) as running:
        running.expect("gateway: all run; Ctrl-C ends modeld and cron")
        assert f"agentd runs already (pid {before.pid}), and is left alone" in running.said
        assert running.end() == 0
    assert is_running(own_place.home, "agentd") == before.pid
    with gateway(own_place) as running:
        running.expect("agentd runs already")
        before.process.terminate()
        before.process.wait(20)
        running.expect("agentd has ended; one of ours takes its place")
        running.expect("agentd is ready")


def test_one_that_a_terminal_started_is_replaced_at_once(own_place: Place) -> None:
    with starter.client(own_place.home):
        (theirs,) = starter.ensure(own_place.home, ["agentd"])
        until(lambda: is_running(own_place.home, idle("agentd")) == theirs.pid)
        with gateway(own_place) as running:
            running.expect(f"agentd runs for a terminal (pid {theirs.pid}); one that stays takes its place")
            running.expect("all run; Ctrl-C ends all")
            assert theirs.process.wait(20) == 0
            assert is_running(own_place.home, "agentd") not in (None, theirs.pid)
    assert IDLE.format("agentd") == idle("agentd")


_HELD = """
import sys, time
from bubbles.bus.lock import Lock
from bubbles.paths import Home
for name in ("agentd", "agentd.idle"):
    lock = Lock(Home.find(), name)
    lock.acquire()
    globals()[name] = lock
print(flush=True)
sys.stdin.read()
"""


def test_one_that_a_terminal_started_in_another_container_is_waited_for(own_place: Place) -> None:
    """There, its number is another process's here: whoever has it is left alone."""
    with process([sys.executable, "-c", _HELD], own_place, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as theirs:
        assert theirs.stdin
        assert theirs.stdout
        theirs.stdout.readline()
        with gateway(own_place) as running:
            running.expect(f"gateway: agentd runs already in another container, for a terminal (pid {theirs.pid}), and is left alone")
            running.expect("all run; Ctrl-C ends modeld and cron")
            assert theirs.poll() is None
            theirs.stdin.close()
            running.expect("gateway: agentd is ready")
            assert theirs.wait(30) == 0


def test_a_second_gateway_says_that_there_is_one(own_place: Place) -> None:
    with gateway(own_place) as running:
        running.expect("all run")
        done = own_place.run("gateway")
        assert (done.returncode, done.stderr.splitlines()[0]) == (75, f"bubbles: gateway is already running (pid {running.process.pid})")
        assert own_place.run("gateway", "--children").returncode == 75


def test_a_home_that_cannot_be_used_is_told(own_place: Place) -> None:
    own_place.home.root.chmod(0o777)
    done = own_place.run("gateway")
    assert done.returncode == 78
    assert "may be written by other users" in done.stderr
    own_place.home.root.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="mounting takes root")
def test_a_disk_that_is_read_only_is_told(own_place: Place) -> None:
    seal = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", seal, own_place.home.root, BIN / "bubbles", "gateway"]
    done = subprocess.run(command, env={**os.environ, **own_place.env}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75, done.stderr
    assert "Read-only file system" in done.stderr
    assert "  try: " in done.stderr
    assert "is started again" not in done.stderr


# -- children of other kinds -----------------------------------------------------------------------


class Family:
    """Children that run in a thread of the test; `said` is what they have said so far."""

    def __init__(self, home: Home, spawns: Mapping[str, Spawn] = MappingProxyType({}), **wanted: list[str]) -> None:
        self.said: list[str] = []
        own = {name.replace("_", "-"): self._spawn(home, name.replace("_", "-"), argv) for name, argv in wanted.items()}
        self.children = Children(home, {**spawns, **own}, say=self.said.append, show=self._show, patience_s=0.05)
        self.code: int | None = None
        self._thread = threading.Thread(target=self._run)

    def _spawn(self, home: Home, name: str, argv: list[str]) -> Spawn:
        return lambda stderr: starter.Started(home, name, argv, stderr, with_us=True)

    def _show(self, home: Home, name: str, lines: BinaryIO) -> None:
        with lines:
            self.said.extend(line.decode().rstrip() for line in lines)

    def _run(self) -> None:
        self.code = self.children.run()

    def expect(self, wanted: str) -> None:
        until(lambda: any(wanted in line for line in self.said))

    def __enter__(self) -> Family:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.children.wake.heard(signal.SIGTERM)
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("frozen", DAEMONS)
def test_one_that_hangs_is_ended_and_comes_back_and_the_others_stay(own_place: Place, frozen: str) -> None:
    """A turn that it is stopped in the middle of is answered all the same."""
    own_place.model.play({"rules": [{"when": "slowly", "reply": "done", "delay_s": 1.0}], "default": {"reply": "by another"}})
    with Family(own_place.home, daemons(own_place.home, watchdog_s=2.0)) as family:
        family.expect("gateway: all run")
        before = {name: is_running(own_place.home, name) or 0 for name in DAEMONS}
        with process([BIN / "bubbles", "ask", "-s", "s", "slowly"], own_place, stdout=subprocess.PIPE) as asking:
            until(lambda: own_place.model.seen()["open"])
            os.kill(before[frozen], signal.SIGSTOP)
            family.expect(f"gateway: {frozen} did not feed its watchdog for 2 s and was ended by SIGABRT; it is started again in 0.5 s")
            family.expect(f"gateway: {frozen} is back (pid ")
            asking.communicate(timeout=30)
        until(lambda: [line["text"] for line in own_place.history("s") if line["role"] == "assistant"] == ["done"])
        assert own_place.run("ask", "hi").stdout == "by another\n"
        assert {name for name in DAEMONS if is_running(own_place.home, name) != before[name]} == {frozen}
        assert list(own_place.home.sockets.glob("notify-*")) == []
    assert family.code == 0


NEVER_READY = ["sh", "-c", "echo begun >&2; exec sleep 600"]
DEAF = ["sh", "-c", "trap '' TERM; echo begun >&2; while :; do sleep 0.1; done"]


def test_what_is_not_ready_is_named_and_ended_all_the_same(home: Home) -> None:
    with Family(home, slow=NEVER_READY) as family:
        family.expect("begun")
        family.expect("gateway: slow not ready yet, after 0 s")
    assert family.code == 0


def test_ctrl_c_before_anything_began_starts_and_ends(home: Home) -> None:
    family = Family(home, slow=NEVER_READY)
    family.children.wake.heard(signal.SIGINT)
    with family:
        pass
    assert family.code == 0


def test_a_second_ctrl_c_kills_what_is_slow_to_end(home: Home) -> None:
    with Family(home, deaf=DEAF) as family:
        family.expect("begun")
        family.children.wake.heard(signal.SIGINT)
        family.expect("gateway: ending deaf; Ctrl-C again kills")
        family.children.wake.heard(signal.SIGINT)
        family.expect("gateway: killed deaf")
    assert family.code == 0


def test_what_cannot_be_started_is_told_and_tried_again(home: Home) -> None:
    with Family(home, absent=["/nowhere/at/all"]) as family:
        family.expect("gateway: absent cannot be started: No such file or directory")
        family.expect("gateway: absent ended with 75 before it was ready; it is started again in 0.5 s")
    assert family.code == 0


def channel(url: str) -> list[str]:
    return [sys.executable, "-m", "tests.fakes.channel", "test", "--url", url, "--pace", "0.05", "--poll-s", "2"]


def test_a_channel_is_a_child_like_the_others_but_slower_to_come_back(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with platform() as chats, Family(home, channel_test=channel(chats.url)) as family:
        family.expect("gateway: all run; Ctrl-C ends all")
        until(lambda: chats.state()["logins"])
        os.kill(is_running(home, "channel-test") or 0, signal.SIGKILL)
        family.expect("gateway: channel-test was ended by SIGKILL; it is started again in 5 s")
    assert family.code == 0


def test_a_channel_with_a_wrong_token_is_not_started_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with platform(status={"code": 401, "path": ""}) as chats, Family(home, channel_test=channel(chats.url)) as family:
        family.expect("gateway: channel-test ended with 78 and is not started again")
        until(lambda: family.code is not None)
        assert family.code == 78
        assert "bubbles: the platform rejects the token: 401 " in "\n".join(family.said)


def test_delays_are_those_of_the_units() -> None:
    for unit in (*DAEMONS, "channel@"):
        lines = (ROOT / "units" / f"bubbles-{unit}.service.in").read_text().splitlines()
        restart = f"RestartSec={RESTART_S * 1000:g}ms" if unit in DAEMONS else f"RestartSec={CHANNEL_RESTART_S:g}"
        assert {restart, f"WatchdogSec={WATCHDOG_S:g}"} <= set(lines)


def test_channels_that_are_built_and_switched_on_are_children(home: Home) -> None:
    assert list(daemons(home)) == ["modeld", "agentd", "cron"]
    settings = Channels.model_construct(telegram=Telegram.model_construct(enabled=True), slack=Slack())
    assert switched_on(settings, ["slack", "telegram", "nothing"]) == ["telegram"]
    assert switched_on(settings, []) == []


def test_entries_are_shown_and_what_is_none_is_kept_as_well(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    gateway_.forward(home, "small", io.BytesIO(b"<6>an entry\nbubbles: it broke\n<4>another\nTraceback\x1b[2J"))
    assert capfd.readouterr().err == "an entry\nbubbles: it broke\nanother\nTraceback\\x1b[2J\n"
    assert (home.log / "small.log").read_bytes() == b"bubbles: it broke\nTraceback\x1b[2J\n"


def test_what_daemons_say_for_long_is_moved_aside_and_not_lost(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    told = [b"%d %s\n" % (n, b"x" * 100_000) for n in range(logfile.MOST_BYTES // 100_000 + 20)]
    gateway_.forward(home, "small", io.BytesIO(b"".join(told)))
    assert len(capfd.readouterr().err.splitlines()) == len(told)
    path = home.log / "small.log"
    assert Path(f"{path}.1").read_bytes() + path.read_bytes() == b"".join(told)
    assert 0 < path.stat().st_size < logfile.MOST_BYTES


# -- once a day ------------------------------------------------------------------------------------


def tidied(home: Home, *, first_s: float, until_said: str, again_s: float = 3600.0) -> list[str]:
    """What a tidier says, up to a line with `until_said` in it, after which it is stopped."""
    said: list[str] = []
    stopping = threading.Event()
    tidier = Tidier(home, stopping, said.append, first_s=first_s, again_s=again_s)
    tidier.start()
    try:
        until(lambda: any(until_said in line for line in said))
    finally:
        stopping.set()
        tidier.join(20)
    assert not tidier.is_alive()
    return said


def test_it_tidies_and_says_how_much(home: Home) -> None:
    aged(file(home.session("work") / "data" / "old.txt"), -4)
    assert tidied(home, first_s=0.0, until_said="tidied") == ["gateway: tidied 1 files, 0.0 MB"]


def test_where_a_run_leaves_something_it_does_not_wait_for_a_day(home: Home) -> None:
    for n in range(1001):
        aged(file(home.session("work") / "data" / str(n)), -4)
    said = tidied(home, first_s=0.0, again_s=0.0, until_said="tidied 1 files")
    assert said == ["gateway: tidied 1000 files, 0.0 MB", "gateway: tidied 1 files, 0.0 MB"]


def test_before_its_time_nothing_is_tidied_and_it_ends_at_once(home: Home) -> None:
    old = aged(file(home.session("work") / "data" / "old.txt"), -4)
    stopping = threading.Event()
    tidier = Tidier(home, stopping, print)
    tidier.start()
    stopping.set()
    tidier.join(5)
    assert not tidier.is_alive()
    assert old.exists()
    assert FIRST_S >= 60


def test_what_goes_wrong_with_it_is_said(home: Home) -> None:
    home.root.chmod(0o777)
    said = tidied(home, first_s=0.0, until_said="tidy ended with 78")
    assert any("may be written by other users" in line for line in said)
    home.root.chmod(0o700)


def test_the_gateway_has_it_done(home: Home) -> None:
    old = aged(file(home.session("work") / "data" / "old.txt"), -4)
    wanted = {"slow": lambda stderr: starter.Started(home, "slow", NEVER_READY, stderr, with_us=True)}
    children = Children(home, wanted, say=print, show=gateway_.forward, first_tidy_s=0.0)
    thread = threading.Thread(target=children.run)
    thread.start()
    until(lambda: not old.exists())
    children.wake.heard(signal.SIGTERM)
    thread.join(30)
    assert not thread.is_alive()
