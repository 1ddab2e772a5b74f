"""The frame as a daemon: what it says, what it ends with, what it costs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbles import __version__, starter
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.channels.channel import Channel
from bubbles.channels.policy import Rules
from bubbles.errors import DataError, Misconfigured, TryAgain
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.logged import logged

_ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def quiet(home: Home, story: str = "Quiet", *options: str) -> Iterator[starter.Started]:
    argv = ["env", f"PYTHONPATH={_ROOT}", sys.executable, "-m", "tests.channels.small_channel", story, "test", *options]
    started = starter.Started(home, "channel-test", argv, None)
    try:
        yield started.wait()
    finally:
        if started.process.poll() is None:
            started.process.kill()
        started.process.wait()


def put(home: Home, id: str) -> Queue:
    queue = Queue(home.outbound("test"))
    queue.put(id, to_dict(Outbound(id=id, at=time.time(), channel="test", chat="42", text="hi")))
    return queue


def test_it_is_ready_when_it_is_let_in_and_ends_when_asked(home: Home) -> None:
    with quiet(home) as started:
        assert started.status == "connected"
        assert is_running(home, "channel-test") == started.pid
        os.kill(started.pid, signal.SIGTERM)
        assert started.process.wait(10) == 0


def test_rejected_credentials_fail_its_start(home: Home) -> None:
    with pytest.raises(Misconfigured, match="the token is wrong"), quiet(home, "Rejected"):
        pass


def test_a_platform_that_says_nothing_does_not_keep_it_from_being_ready(home: Home) -> None:
    with quiet(home, "Slow") as started:
        assert started.status == "test has not answered yet"
        assert asked(home, "status")["state"] == "connecting"


def test_there_is_one_of_a_name(home: Home) -> None:
    with quiet(home), pytest.raises(TryAgain, match="already running"), quiet(home):
        pass


def asked(home: Home, op: str, **body: object) -> dict:
    with Dial(home, "channel-test") as dial:
        return dial.call(op, body)[0]


def test_what_it_answers_at_its_door(home: Home) -> None:
    with quiet(home) as started:
        expected = {"name": "test", "pid": started.pid, "version": __version__, "state": "up", "why": "", "keyed": False}
        silence = {"silent_s": None, "stale_s": Channel.stale_s, "rebuilds": 0, "last_in": None, "last_out": None}
        assert asked(home, "status") == {**expected, **silence, "waiting": 0, "chats": 0, "sending": 0, "dropped": 0, "policy": Rules().told()}
        assert asked(home, "members.find", chat="42", query="ann") == {"members": []}
        with pytest.raises(DataError):
            asked(home, "members.find", chat=42)


def test_a_ring_at_its_door_lets_it_look(home: Home) -> None:
    with quiet(home):
        queue = put(home, "m")
        with Dial(home, "channel-test") as dial:
            dial.ring()
            for _ in range(500):
                if queue.find("m") == "done":
                    break
                time.sleep(0.01)
        assert "delivered m" in logged(home, "channel-test")


@pytest.mark.parametrize(("story", "code", "state"), [("Quiet", 0, "done"), ("Away", 75, "new"), ("Rejected", 78, "new")])
def test_once_sends_what_waits_and_ends(home: Home, story: str, code: int, state: str) -> None:
    queue = put(home, "m")
    command = [sys.executable, "-m", "tests.channels.small_channel", story, "test", "--once"]
    assert subprocess.run(command, cwd=_ROOT, timeout=30, stderr=subprocess.DEVNULL).returncode == code
    assert queue.find("m") == state


@pytest.mark.parametrize("story", ["Deaf", "DeafAndUnending"])
def test_one_that_is_deaf_though_the_platform_is_there_ends_to_be_replaced(home: Home, story: str) -> None:
    with quiet(home, story) as started:
        assert started.process.wait(20) == 75
    assert is_running(home, "channel-test") is None


def test_a_library_that_will_not_end_does_not_keep_it(home: Home) -> None:
    with quiet(home, "Unending") as started:
        os.kill(started.pid, signal.SIGTERM)
        assert started.process.wait(20) == 0


def test_it_loads_no_more_than_a_daemon_needs(home: Home) -> None:
    code = "import sys, bubbles.channels.frame as f; print(*sorted({n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names)))"
    found = subprocess.run([sys.executable, "-P", "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True)
    settings = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}  # which a channel reads in any case
    ours_and_pythons = {"__main__", "bubbles", "_distutils_hack", "cython_runtime", "_cython_3_0_11"}
    assert {name for name in found.stdout.split() if not name.startswith(("_", "cython"))} - ours_and_pythons <= {"zmq", "sdnotify", *settings}
