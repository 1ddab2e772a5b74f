"""`bubbles cron`: its verbs with and without the daemon, and the daemon as a real process in a real chain."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bubbles import config, starter
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.bus.lock import Lock
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.programs.conftest import Place, until
from tests.programs.run import bubbles


@pytest.fixture(params=["down", "up"])
def cron(request: pytest.FixtureRequest, home: Home) -> Iterator[Home]:
    """A home whose daemon is down, and one whose daemon is up: the verbs make no difference."""
    if request.param == "down":
        yield home
        return
    with daemon(home):
        yield home


@contextmanager
def daemon(home: Home, *args: str) -> Iterator[starter.Started]:
    started = starter.start(home, "cron", *args)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


def told(*argv: str, stdin: str = "", **env: Any) -> list[dict[str, Any]]:
    """What `bubbles cron ARGV...` prints."""
    done = bubbles("cron", *argv, stdin=stdin, **env)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def add(*argv: str, **env: Any) -> dict[str, Any]:
    return told("add", *argv, **env)[0]


def sent(home: Home) -> list[dict[str, Any]]:
    queue = Queue(home.inbound("cron"))
    return [item.body for state in ("new", "cur", "done") for item in queue.list(state)]


# -- the verbs -------------------------------------------------------------------------------------


def test_a_job_through_its_life(cron: Home) -> None:
    job = add("--every", "30m", "--name", "mail", "-s", "work", "any", "mail?")
    assert (job["name"], job["session"], job["text"], job["enabled"]) == ("mail", "work", "any mail?", True)
    assert job["schedule"] == {"kind": "every", "every_s": 1800}
    assert job["when"].startswith("every 30m, next ")
    assert 1790 < job["next"] - time.time() <= 1800
    assert told("list") == told("list", "--json") == [job]
    (off,) = told("disable", "mail", "--json")
    assert (off["enabled"], off["next"], off["when"]) == (False, None, "every 30m, off")
    (on,) = told("enable", job["id"])
    assert on == job
    (ran,) = told("run", job["id"])
    assert [(m["id"], m["text"], m["session"], m["origin"]) for m in sent(cron)] == [(ran["message_id"], "any mail?", "work", "system")]
    assert told("remove", job["id"])[0]["id"] == job["id"]
    assert told("list") == []


def test_one_that_is_off_runs_only_by_force(cron: Home) -> None:
    job = add("--every", "30m", "x")
    told("disable", job["id"])
    refused = bubbles("cron", "run", job["id"])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"bubbles: {job['id']} is switched off\n  try: bubbles cron run -f {job['id']}\n"
    assert len(told("run", "-f", job["id"])) == 1
    assert len(sent(cron)) == 1


def test_ids_may_come_on_standard_input(cron: Home) -> None:
    first, second = add("--every", "30m", "a"), add("--every", "1h", "b")
    assert [job["id"] for job in told("disable", stdin=f"{first['id']}\n{json.dumps(second)}\n")] == [first["id"], second["id"]]
    done = bubbles("cron", "remove", "nothing", first["id"])
    assert done.returncode == 1
    assert json.loads(done.stdout)["id"] == first["id"]
    assert done.stderr == "bubbles: there is no job 'nothing'\n  try: bubbles cron list\n"
    assert [job["id"] for job in told("list")] == [second["id"]]


def test_the_message_may_come_on_standard_input(home: Home) -> None:
    assert told("add", "--every", "1d", stdin="first\nsecond\n")[0]["text"] == "first\nsecond"
    assert told("add", "--every", "1d", "--", "-f", "is a word")[0]["text"] == "-f is a word"


def test_a_daemon_that_is_down_is_told_of(home: Home) -> None:
    done = bubbles("cron", "add", "--every", "30m", "x")
    assert (done.returncode, "the daemon that keeps time is not running" in done.stderr) == (0, True)
    with daemon(home):
        assert bubbles("cron", "add", "--every", "30m", "x").stderr == ""
        assert len(told("list")) == 2


# -- times -----------------------------------------------------------------------------------------


def epoch(text: str) -> float:
    return float(subprocess.run(["date", "-u", "+%s", "-d", text], capture_output=True, check=True).stdout)


def test_times_are_those_of_the_option_then_of_the_configuration_then_of_the_system(home: Home) -> None:
    at = ("--at", "2036-07-01 09:00", "x")
    assert add(*at, TZ="America/New_York")["next"] == epoch("2036-07-01 13:00")
    config.save(home, {"agents.defaults.timezone": "Europe/Berlin"})
    job = add(*at, TZ="America/New_York")
    assert (job["next"], job["when"]) == (epoch("2036-07-01 07:00"), "Tue 2036-07-01 09:00 CEST")
    job = add("--tz", "Asia/Shanghai", *at, TZ="America/New_York")
    assert (job["next"], job["when"], job["schedule"]["tz"]) == (epoch("2036-07-01 01:00"), "Tue 2036-07-01 09:00 CST", "Asia/Shanghai")
    assert add("--at", "2036-07-01T09:00Z", "x", TZ="America/New_York")["next"] == epoch("2036-07-01 09:00")
    assert 590 < add("--at", "in 10m", "x")["next"] - time.time() <= 601


WRONG = {
    ("--at", "2036-13-01 09:00"): "month must be in 1..12",
    ("--at", "2001-01-01 09:00"): "is past: it is ",
    ("--at", "whenever"): "'whenever' is not a time",
    ("--at", "2036-03-30 02:30", "--tz", "Europe/Berlin"): "2036-03-30 02:30 does not exist in Europe/Berlin",
    ("--at", "09:00", "--tz", "Mars/Olympus"): "'Mars/Olympus' is not a time zone",
    ("--every", "30"): "30 of what?",
    ("--every", "now and then"): "is not an interval",
    ("--every", "9s"): "the least is 10s",
    ("--every", "30m", "--tz", "Mars/Olympus"): "is not a time zone",
    ("--every", "30m", "--at", "09:00"): "one time or one interval",
    (): "one time or one interval",
}


@pytest.mark.parametrize("argv", WRONG)
def test_a_wrong_time_is_told_what_is_right(home: Home, argv: tuple[str, ...]) -> None:
    done = bubbles("cron", "add", *argv, "x")
    assert (done.returncode, done.stdout) == (64, "")
    first, second = done.stderr.splitlines()
    assert WRONG[argv] in first
    assert second.startswith("  try: ")
    assert not home.jobs.exists()


def test_other_wrong_calls(home: Home) -> None:
    for argv in (("add", "--every", "30m", " "), ("add", "--every", "30m", "--cron", "* * * * *", "x"), ("fly",), ("--once", "list")):
        done = bubbles("cron", *argv)
        assert (done.returncode, done.stdout) == (64, ""), argv
    assert not home.jobs.exists()


# -- what goes wrong -------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_left_alone(home: Home) -> None:
    home.jobs.parent.mkdir()
    home.jobs.write_text('{"version": 1, "jobs": [,]}')
    for argv in (("list",), ("add", "--every", "30m", "x"), ("--once",)):
        done = bubbles("cron", *argv)
        assert (done.returncode, done.stdout) == (78, "")
        assert f"{home.jobs}: line 1, column 25" in done.stderr
        assert f"mv {home.jobs} " in done.stderr
    with pytest.raises(Misconfigured, match="line 1, column 25"):
        starter.start(home, "cron")
    assert home.jobs.read_text() == '{"version": 1, "jobs": [,]}'
    assert is_running(home, "cron") is None


def test_a_second_daemon_is_told_who_is_the_first(home: Home) -> None:
    with daemon(home) as first:
        done = bubbles("cron")
        assert done.returncode == 75
        assert f"cron is already running (pid {first.pid})" in done.stderr


def test_while_another_tool_has_the_lock_a_verb_waits(home: Home) -> None:
    lock = Lock(home, "cron")
    lock.acquire()
    waiting = subprocess.Popen([sys.executable, "-m", "bubbles.programs", "cron", "list"], stdout=subprocess.PIPE, cwd="/")
    time.sleep(0.2)
    assert waiting.poll() is None
    lock.release()
    assert waiting.communicate(timeout=20)[0] == b""
    assert waiting.returncode == 0


def test_many_at_once_lose_nothing(home: Home) -> None:
    """Ten tools and a daemon that starts among them, all writing one file."""
    argv = [sys.executable, "-m", "bubbles.programs", "cron", "add", "--every", "1h"]
    tools = [subprocess.Popen([*argv, f"job {n}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/") for n in range(5)]
    for _ in range(20):  # it may find the lock taken, as systemd would see, and try again
        try:
            started = starter.start(home, "cron")
            break
        except TryAgain:
            time.sleep(0.05)
    tools += [subprocess.Popen([*argv, f"job {n}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd="/") for n in range(5, 10)]
    try:
        assert [(tool.communicate(timeout=60), tool.returncode)[1] for tool in tools] == [0] * 10
        assert sorted(job["text"] for job in told("list")) == [f"job {n}" for n in range(10)]
    finally:
        started.process.kill()
        started.process.wait()


# -- the daemon ------------------------------------------------------------------------------------


def test_once_sends_what_is_due_and_ends(home: Home) -> None:
    job = add("--every", "30m", "x")
    raw = json.loads(home.jobs.read_text())
    raw["jobs"][0]["next"] = job["next"] - 3600
    raw["jobs"][0]["anchor"] -= 3600
    home.jobs.write_text(json.dumps(raw))
    assert bubbles("cron", "--once").returncode == 0
    assert [message["id"] for message in sent(home)] == [f"cron-{job['id']}-{int(job['next']) - 3600}"]
    assert bubbles("cron", "--once").returncode == 0
    assert len(sent(home)) == 1
    assert 0 < told("list")[0]["next"] - time.time() <= 1800


def test_what_is_due_is_sent_without_being_asked_for(home: Home) -> None:
    with daemon(home) as started:
        assert started.status == "0 jobs, none awaited"
        job = add("--at", "in 1s", "now")
        until(lambda: sent(home))
        assert sent(home)[0]["id"] == f"cron-{job['id']}-{int(job['next'])}"
        assert sent(home)[0]["at"] >= job["next"]
        assert Dial(home, "cron").call("status")[0]["text"] == "1 job, none awaited"
        os.kill(started.pid, signal.SIGTERM)
        assert started.process.wait(timeout=20) == 0


def test_killed_and_started_again_it_keeps_its_beat_and_sends_each_once(home: Home) -> None:
    job = add("--every", "10s", "tick")
    raw = json.loads(home.jobs.read_text())
    raw["jobs"][0]["schedule"]["every_s"] = 1
    raw["jobs"][0]["next"] = raw["jobs"][0]["anchor"] + 1
    home.jobs.write_text(json.dumps(raw))
    queue = Queue(home.inbound("cron"))
    taken: list[str] = []

    def has_taken(wanted: int) -> bool:
        for id in queue.due(time.time()):
            taken.append(queue.claim(id).id)
            queue.finish(id)
        return len(taken) >= wanted

    for wanted in (1, 2, 3, 4):
        with daemon(home):  # and it is killed
            until(lambda: has_taken(wanted))  # noqa: B023
    assert len(taken) == len(set(taken))
    anchor = json.loads(home.jobs.read_text())["jobs"][0]["anchor"]
    assert all(id.startswith(f"cron-{job['id']}-") and int(id.rsplit("-", 1)[1]) > anchor for id in taken)


def test_it_ends_when_nobody_needs_it(home: Home) -> None:
    with starter.client(home):
        started = starter.start(home, "cron", "--until-idle", "0.3")
        time.sleep(0.2)
        assert started.process.poll() is None
    assert started.process.wait(timeout=20) == 0


def test_unknown_operations_and_bad_bodies_are_answered(home: Home) -> None:
    with daemon(home), Dial(home, "cron") as dial:
        for op, body, text in (
            ("job.fly", {}, "no operation"),
            ("job.add", {"message": "x"}, "a schedule is an object"),
            ("job.add", {"message": "x", "schedule": {"kind": "cron", "expression": "0 9 * * *"}}, "not built yet"),
            ("job.run", {"id": ["x"]}, "'id' is a text"),
        ):
            with pytest.raises(Exception, match=text):
                dial.call(op, body)
        assert dial.call("job.list")[0] == {"jobs": []}
        assert sorted(dial.call("ping")[0]["ops"]) == ["job.add", "job.enable", "job.list", "job.remove", "job.run", "ping", "status"]


def test_a_job_runs_a_turn_in_its_session_and_its_outcome_comes_back(own_place: Place) -> None:
    place = own_place
    place.model.play({"rules": [{"when": "any mail?", "reply": "None."}], "default": {"status": 400}})
    starters = [starter.start(place.home, name) for name in ("modeld", "agentd", "cron")]
    try:
        good, bad = add("--at", "in 1s", "-s", "work", "any mail?"), add("--at", "in 1s", "-s", "other", "what else?")
        until(lambda: {job["id"]: job["last"] for job in told("list")} == {good["id"]: "replied", bad["id"]: "failed"})
        assert [(m["role"], m["text"]) for m in place.history("work")] == [("user", "any mail?"), ("assistant", "None.")]
        assert Queue(place.home.inbound("cron")).find(f"cron-{good['id']}-{int(good['next'])}") == "done"
        assert [job["why"] for job in told("list")] == ["", "rejected"]
        assert all(job["when"].startswith("over, was ") for job in told("list"))
    finally:
        for started in starters:
            started.process.kill()
            started.process.wait()
