"""`bubbles gateway`: children started, told, restarted or not, and ended; what it did not start is left alone."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles import logfile, starter
from bubbles.bus import is_running
from bubbles.paths import Home
from bubbles.programs import gateway as gateway_
from tests.programs.conftest import DAEMONS, Place, until
from tests.programs.run import BIN

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
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(30)
        self._reader.join(5)
        return code


@contextmanager
def gateway(place: Place) -> Iterator[Gateway]:
    found = Gateway(place)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.end()


def test_it_starts_all_says_so_serves_and_ends_all(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "by the gateway"}})
    with gateway(own_place) as running:
        running.expect("Ctrl-C stops what was started here")
        summary = next(line for line in running.said.splitlines() if line.startswith("gateway: "))
        assert all(f"{name} is ready (pid {is_running(own_place.home, name)})" in summary for name in DAEMONS)
        assert own_place.run("ask", "hi").stdout == "by the gateway\n"
        running.expect("agentd turn.close replied")
        assert not re.search(r"^<\d>", running.said, re.MULTILINE)
        assert not ESCAPE.search(running.said)
        assert "turn.close" in (own_place.home.log / "agentd.log").read_text()
        pids = [is_running(own_place.home, name) for name in DAEMONS]
        assert running.end(signal.SIGINT) == 0
        assert running.process.stdout
        assert running.process.stdout.read() == ""
    assert [is_running(own_place.home, name) for name in DAEMONS] == [None, None, None]
    assert all(pid and not Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_that_is_killed_comes_back(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "alive"}})
    with gateway(own_place) as running:
        running.expect("Ctrl-C stops")
        for name in DAEMONS:
            before = is_running(own_place.home, name)
            own_place.kill(name)
            running.expect(f"gateway: {name} was ended by SIGKILL; starting it again")
            until(lambda name=name, before=before: is_running(own_place.home, name) not in (None, before))
        until(lambda: all(is_running(own_place.home, name) for name in DAEMONS))
        assert own_place.run("ask", "hi").stdout == "alive\n"


def test_its_children_end_with_it_however_it_ends(own_place: Place) -> None:
    with gateway(own_place) as running:
        running.expect("Ctrl-C stops")
        running.end(signal.SIGKILL)
        until(lambda: [is_running(own_place.home, name) for name in DAEMONS] == [None, None, None])
    with gateway(own_place) as running:
        running.expect("agentd is ready")


def test_a_wrong_configuration_is_told_and_not_tried_again(own_place: Place) -> None:
    own_place.home.config.write_text('{"agents": {"defaults": {"temperature": "hot"}}}')
    with gateway(own_place) as running:
        running.expect("gateway: agentd ended with 78 and is not started again")
        running.expect("gateway: modeld ended with 78 and is not started again")
        assert "agents.defaults.temperature" in running.said
        assert running.said.count("agentd daemon.start") <= 1
        assert is_running(own_place.home, "agentd") is None


def test_what_ran_before_is_left_alone_and_replaced_when_it_ends(own_place: Place) -> None:
    before = starter.start(own_place.home, "agentd")
    with gateway(own_place) as running:
        running.expect(f"agentd runs already (pid {before.pid})")
        assert running.end() == 0
    assert is_running(own_place.home, "agentd") == before.pid
    with gateway(own_place) as running:
        running.expect("runs already")
        before.process.terminate()
        before.process.wait(20)
        until(lambda: is_running(own_place.home, "agentd") not in (None, before.pid))


def test_when_nothing_is_left_to_look_after_it_ends_with_the_reason(own_place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    own_place.home.root.chmod(0o777)
    done = own_place.run("gateway")
    assert done.returncode == 78
    assert "may be written by other users" in done.stderr
    own_place.home.root.chmod(0o700)


def test_what_daemons_say_for_long_is_moved_aside_and_not_lost(home: Home, capfd: pytest.CaptureFixture[str]) -> None:
    told = [b"<6>%d %s\n" % (n, b"x" * 100_000) for n in range(logfile.MOST_BYTES // 100_000 + 20)]
    gateway_.forward(home, "small", io.BytesIO(b"".join(told)))
    assert len(capfd.readouterr().err.splitlines()) == len(told)
    path = home.log / "small.log"
    assert Path(f"{path}.1").read_bytes() + path.read_bytes() == b"".join(told)
    assert 0 < path.stat().st_size < logfile.MOST_BYTES
