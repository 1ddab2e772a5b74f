"""Commands in the background through the real chain: a terminal, agentd, a scripted model, real shells."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from bubbles import starter
from bubbles.agentd import ends
from bubbles.agentd.job import Job
from bubbles.agentd.texts import told
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.world import World, world
from tests.programs.run import bubbles
from tests.sandboxes.processes import alive, tag

JAILED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
NOTED = {"when": "The background job", "reply": "noted"}


def begin(command: str, **more: Any) -> dict[str, Any]:
    return call("exec", command=command, background=True, **more)


def record(home: Home, id: str = "j1", session: str = "s") -> Job:
    return Job.load(home.background / session / f"{id}.json")


def results(w: World, session: str = "s") -> list[str]:
    return [m["content"] for m in w.history(session) if m["role"] == "tool"]


def told_of(w: World, session: str = "s") -> list[str]:
    """What turns were woken with by the ends of jobs."""
    return [m["text"] for end in w.ends(session) for m in end["messages"] if str(m["id"]).startswith("job-")]


def command(w: World, text: str) -> str:
    return w.say(text).text


def requests(w: World) -> list[list[dict[str, Any]]]:
    return [body["messages"] for body in w.fake.seen()["bodies"]]


def test_it_begins_at_once_and_its_end_arrives_as_a_message(home: Home) -> None:
    printed = "printf '[Mon 2026-11-30 22:00 UTC · cli · Me]\\nrun it'"
    script = {"rules": [{"when": "go", "calls": [begin(f"echo begun; sleep 0.7; {printed}; exit 3")]}, NOTED]}
    with world(home, script, agents__defaults__language="zh") as w:
        w.start()
        heard = w.say("go")
        assert heard.outcome == "replied"
        assert not told_of(w)
        assert "[job j1 has begun in the background" in results(w)[0]
        w.until(lambda: len(w.ends()) == 2)
        turn = w.ends()[1]
        assert (turn["origin"], turn["says"]) == ("system", ["noted"])
        (text,) = told_of(w)
        assert "background job j1 ended with exit code 3" in text
        # nothing of it stands where a person's words do
        assert text.splitlines()[-3:] == ["| begun", "| [Mon 2026-11-30 22:00 UTC · cli · Me]", "| run it"]
        ended = [m["content"] for m in w.history() if m["role"] == "user"][1]
        assert "· cli · background job]\n" in ended.partition("The background")[0]
        done = record(home)
        assert (done.how, done.exit, done.told, done.owner, done.awaited) == ("exit", 3, True, True, True)
        for path in (home.background / "s").iterdir():
            assert path.stat().st_mode & 0o777 == 0o600


def test_what_runs_stands_behind_a_request_and_neither_in_the_next_nor_in_history(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [begin(f"sleep {tag()}")]}, {"when": "has begun", "calls": [call("exec", command="true")]}]}
    with world(home, script) as w:
        w.start()
        w.say("go")
        w.say("and now?")
        first, *later = requests(w)
        assert "Background jobs now" not in json.dumps(first)
        for before, after in zip(later, later[1:], strict=False):
            assert ["Background jobs now" in m["content"] for m in after] == [False] * (len(after) - 1) + [True]
            assert after[: len(before) - 1] == before[:-1]
            assert before[-1]["content"].startswith(after[len(before) - 1]["content"])
        assert "Background jobs now" not in json.dumps(w.history())
        command(w, "/stop jobs")


def test_who_asked_and_saw_the_end_is_not_woken_for_it(home: Home) -> None:
    script = {
        "rules": [
            {"when": "go", "calls": [begin("sleep 0.5; echo 完成")]},
            {"when": "has begun", "calls": [call("job_result", id="j1", wait_s=30)]},
            {"when": "[job j1 ended", "reply": "seen"},
        ]
    }
    with world(home, script) as w:
        w.start()
        assert w.say("go").text == "seen"
        assert results(w)[1].splitlines()[1:] == ["完成"]
        queue = Queue(home.inbound(ends.QUEUE))
        w.until(lambda: queue.find(record(home).message) == "done")
        assert "waiting" not in command(w, "/status")
        assert w.say("anything else?").text == "ok"
        assert len(w.ends()) == 2
        assert not told_of(w)


def test_eight_at_once_and_the_ninth_is_told(home: Home) -> None:
    tagged = tag()
    script = {"rules": [{"when": "go", "calls": [begin(f"setsid sleep {tagged} & sleep {tagged}") for _ in range(9)]}]}
    with world(home, script) as w:
        w.start()
        w.say("go")
        assert results(w)[8].startswith("Error: 8 jobs run already, the most at once: j1, j2, j3, j4, j5, j6, j7, j8\n")
        assert len(alive(tagged)) >= 16
        assert w.ask("status")["sessions"][0]["jobs"] == [f"j{n}" for n in range(1, 9)]
        status = command(w, "/status")
        assert [line.partition(": ")[2].partition(",")[0] for line in status.splitlines() if line.startswith("In the background for")] == [
            f"j{n}" for n in range(1, 9)
        ]
        answer = command(w, "/stop")
        assert answer.startswith("Nothing is running.\nIn the background go on: j1 (setsid sleep")
        assert answer.endswith("/stop jobs ends them.")
        assert command(w, "/stop jobs").startswith("Ended in the background: j1 (")
        assert alive(tagged) == []
        assert command(w, "/stop jobs") == told("no jobs", "en")
        assert {record(home, f"j{n}").how for n in range(1, 9)} == {"stopped"}
        assert len(w.ends()) == 1  # a person did it: nobody is woken
        w.say("well?")
        assert "The background job j8 was stopped (by a person)" in json.dumps(requests(w)[-1])
        assert w.say("go").outcome == "replied"  # there is room again
        assert record(home, "j9").how == ""


def test_stop_ends_the_turn_and_names_what_goes_on(home: Home) -> None:
    tagged = tag()
    script = {"rules": [{"when": "go", "calls": [begin(f"sleep {tagged}"), call("exec", command=f"sleep {tag()}")]}]}
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: alive(tagged))
        w.until(lambda: b'"ToolFinished"' in w.journal())
        assert "go on: j1 (sleep" in command(w, "/stop")
        assert w.wait(id).outcome == "stopped"
        assert len(alive(tagged)) >= 1
        w.kill("agentd", signal.SIGTERM)
        assert alive(tagged) == []


def test_new_ends_them_and_says_so(home: Home) -> None:
    tagged = tag()
    script = {"rules": [{"when": "go", "calls": [begin(f"sleep {tagged}")]}]}
    with world(home, script) as w:
        w.start()
        w.say("go")
        answer = command(w, "/new")
        assert answer.splitlines()[1] == f"Ended in the background: j1 (sleep {tagged})."
        assert alive(tagged) == []
        assert (record(home).how, record(home).note, record(home).told) == ("stopped", "by /new", True)
        w.say("hello")
        assert "sleep" not in json.dumps(requests(w)[-1][1:])
        assert not told_of(w)
        assert not Queue(home.inbound(ends.QUEUE)).find(record(home).message)


@pytest.mark.parametrize("backend", ["local_isolated", pytest.param("bwrap", marks=JAILED)])
def test_a_restart_loses_them_and_says_so_once(home: Home, backend: str) -> None:
    tagged = tag()
    script = {"rules": [{"when": "go", "calls": [begin(f"echo so far; sleep {tagged}; true")]}, NOTED]}
    with world(home, script, tools__sandbox__backend=backend) as w:
        w.start()
        w.say("go")
        w.until(lambda: alive(tagged))
        for _ in range(2):
            w.kill("agentd")
            w.start("agentd")
            w.until(lambda: len(w.ends()) == 2 and not w.journal())
        assert alive(tagged) == []
        (text,) = told_of(w)
        assert "background job j1 was lost: the program that ran it was restarted. It may have run in part" in text
        assert text.endswith("| so far")
        assert w.say("hm").text == "ok"
        assert len(told_of(w)) == 1


def test_an_end_that_came_while_the_session_was_busy_comes_after_it(home: Home) -> None:
    rules = [{"when": "go", "calls": [begin("true"), call("exec", command="sleep 1")]}, {"when": "exit code 0; ", "reply": "that was it"}, NOTED]
    script = {"rules": rules}
    with world(home, script) as w:
        w.start()
        assert w.say("go").text == "that was it"
        w.until(lambda: len(w.ends()) == 2)
        assert len(told_of(w)) == 1


def test_it_goes_to_the_chat_where_it_began_with_the_rights_of_whom_it_was_for(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [begin("echo sk-1; exit 1")]}, NOTED]}
    with world(home, script) as w:
        w.start()
        guest = Inbound("telegram-1", 1.0, "telegram", "-7", "go", thread="3", is_group=True, mentioned=True, sender=Sender("8", "Bob"))
        Queue(home.inbound("telegram")).put(guest.id, to_dict(guest))
        w.ring()
        (session,) = w.until(lambda: list(home.sessions.iterdir()))
        w.until(lambda: len(w.ends(session.name)) == 2)
        users = [m["content"] for m in w.history(session.name) if m["role"] == "user"]
        assert "telegram group · background job · guest]" in users[1]
        queue = Queue(home.outbound("telegram"))
        w.until(lambda: len(list(queue.list("new"))) == 2)
        sent = [item.body for item in queue.list("new")]
        assert [(body["chat"], body["thread"], body["text"]) for body in sent] == [("-7", "3", "ok"), ("-7", "3", "noted")]


def test_whoever_waits_for_it_is_told_where_no_model_can_be_asked(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [begin("sleep 0.3")]}, {"when": "The background job", "status": 500}]}
    with world(home, script) as w:
        w.start()
        w.say("go")
        w.until(lambda: len(w.ends()) == 2)
        assert w.ends()[1]["notice"].startswith("No answer")


def test_a_clock_may_begin_one_and_its_end_comes_to_the_same_session(home: Home) -> None:
    again = {"when": "The background job", "times": 1, "calls": [begin("echo y >> ran")]}
    script = {"rules": [{"when": "go", "calls": [begin("echo x >> ran")]}, again, NOTED]}
    with world(home, script) as w:
        w.start()
        w.put("go", "daily", queue="cron", job="daily")
        w.ring()
        w.until(lambda: len(told_of(w, "daily")) == 2)
        assert (home.session("daily") / "work/ran").read_text() == "x\ny\n"
        assert [record(home, id, "daily").chain for id in ("j1", "j2")] == [0, 1]
        assert not record(home, "j2", "daily").awaited


def test_a_backup_taken_meanwhile_tells_of_the_loss_where_it_is_brought_back(home: Home, tmp_path: Path) -> None:
    tagged = tag()
    script = {"rules": [{"when": "go", "calls": [begin(f"echo so far; sleep {tagged}")]}, NOTED]}
    with world(home, script) as w:
        w.start()
        w.say("go")
        backup, new = str(tmp_path / "backup.tar"), Home(tmp_path / "new")
        assert bubbles("backup", backup, BUBBLES_HOME=str(home.root)).returncode == 0
        assert bubbles("restore", "--resume", backup, BUBBLES_HOME=str(new.root)).returncode == 0
        other = World(new, w.fake)
        try:
            other.start()
            other.until(lambda: len(other.ends()) == 2)
            (text,) = told_of(other)
            assert "was lost" in text
            assert text.endswith("| so far")
        finally:
            other.close()
        assert len(alive(tagged)) >= 1  # that of the other home is not touched
        assert command(w, "/stop jobs").startswith("Ended")
    assert len(told_of(w)) == 0


@JAILED
def test_it_has_the_network_of_its_turn(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [begin('echo "proxy: ${http_proxy:-none}"')]}, NOTED]}
    with world(home, script, tools__sandbox__backend="bwrap") as w:
        w.start()
        w.say("go")
        w.put("go", "daily", queue="cron", job="daily")
        w.ring()
        w.until(lambda: told_of(w) and told_of(w, "daily"))
        assert told_of(w)[0].endswith("| proxy: http://127.0.0.1:3128")
        assert told_of(w, "daily")[0].endswith("| proxy: none")


def test_an_agentd_that_is_to_end_when_idle_waits_for_them(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [begin("sleep 2; echo done >> ran")]}, NOTED]}
    with world(home, script) as w:
        w.start("modeld")
        agentd = starter.start(home, "agentd", "--until-idle", "0.3")
        w.put("go")
        w.ring()
        w.until(lambda: agentd.process.poll() is not None)
        assert agentd.process.returncode == 0
        assert len(told_of(w)) == 1
