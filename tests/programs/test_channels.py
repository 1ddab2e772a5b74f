"""What `bubbles channels status` says of each channel, with the test channel running against a platform with faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.programs.channels import Depth, Standing, came, went
from bubbles.programs.running import Running
from bubbles.programs.verdict import of_channel
from bubbles.spool import STATES, Queue
from tests.agentd.world import World, world
from tests.fakes.start import FakePlatform, platform
from tests.programs.built_channel import COMMAND, ENV
from tests.programs.run import BIN, ROOT, bubbles
from tests.programs.test_status import unit

FAST = ("--pace", "0.02", "--timeout-s", "5", "--poll-s", "0.3")


class Chats:
    """A home with agentd, modeld and the test channel, all started by hand."""

    def __init__(self, made: World, fake: FakePlatform) -> None:
        self.world, self.fake, self.home = made, fake, made.home
        self.out = Queue(self.home.outbound("test"))

    def run(self, *options: str) -> None:
        self.world.channel("test", self.fake, *FAST, *options)

    def row(self, name: str = "test") -> dict[str, Any]:
        """What is told of one channel; the exit code is held against it."""
        done = bubbles("channels", "status", name, "--json")
        found: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if found["well"] else 1)
        return found

    def until(self, **wanted: Any) -> dict[str, Any]:
        """What is told once that is so."""

        def found() -> dict[str, Any] | None:
            row = self.row()
            return row if wanted.items() <= row.items() else None

        told: dict[str, Any] = self.world.until(found)
        return told

    def put(self, id: str, at: float | None = None) -> None:
        self.out.put(id, to_dict(Outbound(id, time.time() if at is None else at, "test", "42", "hello")))
        with Dial(self.home, "channel-test") as dial:
            dial.ring()


@pytest.fixture
def chats(home: Home) -> Iterator[Chats]:
    with world(home, {"default": {"reply": "heard ", "echo": True}}) as made, platform() as fake:
        yield Chats(made, fake)


def test_one_that_is_connected_is_well_and_says_when_it_last_spoke_in_each_direction(chats: Chats) -> None:
    chats.world.start()
    chats.run()
    row = chats.row()
    assert (row["state"], row["enabled"], row["built"], row["last_in"], row["last_out"]) == ("up", False, False, None, None)
    assert row["daemon"]["pid"] == is_running(chats.home, "channel-test")
    begun = time.time()
    chats.fake.say("good morning")
    chats.world.until(lambda: chats.row()["last_out"])
    row = chats.row()
    assert begun - 1 < row["last_in"] <= row["last_out"] <= time.time() + 1
    assert (row["waiting"], row["sending"], row["held"], row["uncertain"], row["why"]) == (0, 0, 0, 0, "")
    shown = bubbles("status").stdout
    assert any(line.startswith("test ") and " up " in line and "in " in line and "out " in line for line in shown.splitlines())


def test_when_it_last_spoke_is_known_after_a_restart_too(chats: Chats) -> None:
    chats.world.start()
    chats.run()
    for count in (1, 2):
        chats.fake.say("hello")
        chats.world.until(lambda count=count: len(chats.fake.sent()) >= count, 60)
    before = chats.until(waiting=0, sending=0)
    chats.world.kill("channel-test")
    assert chats.row()["state"] == "off"
    chats.run()
    after = chats.row()
    assert after["daemon"]["pid"] != before["daemon"]["pid"]
    assert (after["last_in"], after["last_out"]) == (pytest.approx(before["last_in"], abs=1), pytest.approx(before["last_out"], abs=1))


def test_a_platform_that_is_away_is_told_with_the_reason_and_is_not_well(chats: Chats) -> None:
    chats.run()
    chats.fake.faults(down=True)
    row = chats.until(state="down")
    assert "cannot be reached" in row["why"]
    done = bubbles("channels", "status")
    assert done.returncode == 1
    assert "test is not connected: cannot be reached" in done.stdout
    assert "try: " in done.stdout
    chats.fake.faults()
    assert chats.until(state="up")["well"]


def test_what_waits_is_held_and_is_uncertain_is_counted(chats: Chats) -> None:
    chats.run("--on-uncertain", "hold")
    chats.fake.faults(store_then_cut=1)
    chats.put("m")
    row = chats.until(held=1)
    assert not row["well"]
    assert "1 held in outbound/test" in bubbles("channels", "status").stdout
    chats.fake.faults(status={"code": 503})
    chats.put("n")
    assert chats.until(waiting=1)["uncertain"] == 1


def test_what_is_being_sent_is_not_uncertain_before_it_is_known_to_be(chats: Chats) -> None:
    chats.world.channel("test", chats.fake, "--pace", "0.02", "--timeout-s", "60", "--poll-s", "0.3")
    chats.fake.faults(store_then_silent=True)
    chats.put("m")
    row = chats.until(sending=1)
    assert (row["waiting"], row["uncertain"]) == (1, 0)
    chats.world.kill("channel-test")
    assert chats.row()["uncertain"] == 1


def test_a_daemon_that_does_not_answer_is_not_waited_for(chats: Chats) -> None:
    chats.run()
    os.kill(pid := chats.world.running["channel-test"].pid, signal.SIGSTOP)
    done = bubbles("channels", "status", timeout_s=12)  # a door is given up after 15 s
    os.kill(pid, signal.SIGCONT)
    assert done.returncode == 1
    assert "does not answer" in done.stdout


# -- switched on -----------------------------------------------------------------------------------


def built(*argv: str) -> subprocess.CompletedProcess[str]:
    """`bubbles ARGV...` of a Bubbles in which telegram is built."""
    return subprocess.run(["env", f"PYTHONPATH={ENV['PYTHONPATH']}", *COMMAND, *argv], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_one_that_is_switched_on_is_missed_only_where_something_runs_for_good(chats: Chats) -> None:
    home = chats.home
    raw = json.loads(home.config.read_text())
    home.config.write_text(json.dumps({**raw, "channels": {"telegram": {"enabled": True, "proxy": chats.fake.url}}}))
    still = built("channels", "status", "--json")
    assert (still.returncode, json.loads(still.stdout)["state"], json.loads(still.stdout)["enabled"]) == (0, "down", True)
    assert built("status").returncode == 0
    home.config.write_text(json.dumps(raw))
    chats.world.start()  # before it is switched on: this agentd is one in which nothing is built
    home.config.write_text(json.dumps({**raw, "channels": {"telegram": {"enabled": True, "proxy": chats.fake.url}}}))
    missed = built("channels", "status")
    assert missed.returncode == 1
    assert "telegram is switched on, and its daemon does not run\n" in missed.stdout
    assert "try: bubbles channel telegram" in missed.stdout
    assert "telegram is switched on" in built("status").stdout
    argv = ["env", f"PYTHONPATH={ENV['PYTHONPATH']}", *COMMAND, "channel", "telegram"]
    with subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL) as running:
        chats.world.until(lambda: built("channels", "status", "telegram").returncode == 0)
        running.terminate()
        assert running.wait(20) == 0


def test_a_configuration_that_is_wrong_is_78_and_what_runs_is_told_all_the_same(chats: Chats) -> None:
    chats.run()
    chats.home.config.write_text("{")
    done = bubbles("channels", "status")
    assert done.returncode == 78
    assert "config.json" in done.stderr
    assert done.stdout.splitlines()[1].split()[:2] == ["test", "up"]


@pytest.mark.parametrize(("argv", "code", "said"), [([], 64, "Missing command"), (["status", "nosuch"], 1, "there is no channel 'nosuch'")])
def test_a_call_that_is_wrong_is_told_with_what_to_do(home: Home, argv: list[str], code: int, said: str) -> None:
    done = bubbles("channels", *argv)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "  try: " in done.stderr


def test_without_a_channel_there_is_none_that_is_not_well(home: Home) -> None:
    done = bubbles("channels", "status")
    assert (done.returncode, done.stdout) == (0, "no channel is on; the terminal is always there: bubbles agent\n")
    assert bubbles("channels", "status", "--json").stdout == ""
    named = bubbles("channels", "status", "telegram")
    assert named.returncode == 0
    assert "it is not built yet" in named.stdout
    assert subprocess.run([BIN / "bubbles-channels", "status"], capture_output=True).returncode == 0


# -- by what was seen ------------------------------------------------------------------------------


_COLLECTED = time.time()


def standing(answer: dict[str, Any] | None = None, *, waits_s: float = 0, enabled: bool = True, **daemon: Any) -> Standing:
    running = Running("channel-test", 7 if answer is not None else None, "hand" if answer is not None else "", answer=answer, **daemon)
    return Standing("test", enabled, running, Depth(new=int(waits_s > 0), oldest=time.time() - waits_s), Depth(), None, None, 0)


OWN = {"drop_ins": (Path("own.conf"),)}  # somebody has made it run something else


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        (standing({"state": "up"}), "up", ""),
        (standing({"state": "up", "silent_s": 100.0, "stale_s": 120.0}), "up", ""),
        (standing({"state": "up", "silent_s": 130.0, "stale_s": 120.0}), "up", "nothing has been heard from test for too long: silent for 2 min"),
        (standing({"state": "up", "silent_s": None, "stale_s": 120.0, "rebuilds": 1}), "up", "1 new clients have heard nothing"),
        (standing({"state": "connecting"}), "connecting", ""),
        (standing({"state": "down", "why": "no route"}), "down", "test is not connected: no route"),
        (standing(), "down", "test is switched on, and its daemon does not run"),
        (standing(enabled=False), "off", ""),
        (standing({"state": "up"}, waits_s=60), "up", ""),
        (standing({"state": "up"}, waits_s=6000), "up", "messages are not delivered: 1 waiting for test, the first for 1"),
        (
            standing(unit=unit("bubbles-channel@test.service", active="inactive", pid=0, enabled="enabled", **OWN), enabled=False),
            "down",
            "does not run",
        ),
        (standing(unit=unit("bubbles-channel@test.service", active="inactive", pid=0, enabled="disabled"), enabled=False), "off", ""),
        (
            standing(unit=unit("bubbles-channel@test.service", active="failed", pid=0, result="exit-code", code=78, **OWN)),
            "failed",
            "configuration is wrong",
        ),
    ],
)
def test_what_is_wrong_with_it(found: Standing, state: str, said: str) -> None:
    since = time.time() - _COLLECTED  # the ages were told when the tests were collected, which may be long ago
    found = replace(found, depth=replace(found.depth, oldest=found.depth.oldest + since))
    faults = list(of_channel(found, resting=False))
    assert found.state == state
    assert bool(faults) == bool(said)
    assert all(said in fault.text and fault.remedy for fault in faults)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"active": "failed", "result": "exit-code", "code": 78}, r"the unit bubbles-channel@x\x20y failed: there is no such channel"),
        ({"active": "inactive"}, r"the unit bubbles-channel@x\x20y is enabled: there is no such channel"),
    ],
)
def test_the_unit_of_a_channel_that_there_is_not_is_to_be_switched_off(how: dict[str, Any], said: str) -> None:
    seen = unit(r"bubbles-channel@x\x20y.service", pid=0, enabled="enabled", **how)
    found = Standing(r"x\x20y", False, Running(r"channel-x\x20y", unit=seen), Depth(), Depth(), None, None, 0)
    (fault,) = of_channel(found, resting=False)
    assert fault.text.startswith(said)
    name = r"'bubbles-channel@x\x20y'"
    assert fault.remedy == f"systemctl --user disable --now {name}; systemctl --user reset-failed {name}"


def test_a_unit_that_is_enabled_is_not_the_owners_word() -> None:
    (fault,) = of_channel(
        standing(unit=unit("bubbles-channel@test.service", active="inactive", pid=0, enabled="enabled", **OWN), enabled=False), resting=False
    )
    assert (fault.text, fault.remedy) == ("the unit bubbles-channel@test is enabled, and does not run", "systemctl --user start bubbles-channel@test")


def test_nothing_is_missed_in_a_home_at_rest() -> None:
    assert list(of_channel(standing(waits_s=1e6), resting=True)) == []


def aged(queue: Path, **ages_s: float) -> None:
    """Make the queue's directories, and change each so long ago."""
    Queue(queue).prepare()
    for state in STATES:
        at = time.time() - ages_s.get(state, 10_000)
        os.utime(queue / state, (at, at))


def test_a_queue_that_nobody_has_used_says_nothing(tmp_path: Path) -> None:
    aged(tmp_path / "q")
    assert (came(tmp_path / "q"), went(tmp_path / "q")) == (None, None)
    assert (came(tmp_path / "none"), went(tmp_path / "none")) == (None, None)


def test_what_went_out_last_is_told_by_the_directory_that_changed_for_no_other_reason(tmp_path: Path) -> None:
    aged(tmp_path / "q", tmp=500, new=500, cur=400, done=400)
    assert went(tmp_path / "q") == pytest.approx(time.time() - 400, abs=5)
    aged(tmp_path / "q", tmp=500, new=500, cur=400, done=20)  # bubbles tidy was there
    assert went(tmp_path / "q") == pytest.approx(time.time() - 400, abs=5)
    aged(tmp_path / "q", tmp=50, new=50, cur=50)  # never finished one
    assert went(tmp_path / "q") is None


def test_what_came_last_is_the_place_that_was_given_away_last(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "q")
    aged(queue.path)
    queue.put("m", {"text": "x"}, sync=False)
    assert came(queue.path) == pytest.approx(time.time(), abs=5)
    os.utime(queue.path, (time.time() + 3000, time.time() + 3000))  # by a clock that was put back since
    assert came(queue.path) == pytest.approx(time.time(), abs=5)
