"""kill -9 of agentd at every step of a command in the background: it runs at most once, and its end or its loss is told exactly once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bubbles import starter
from bubbles.agentd.job import Job
from bubbles.kernel import turn as rules
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.world import World, world
from tests.crash import doom
from tests.crash.hops import JOB_HOPS
from tests.crash.runs import SOAK

_ROOT = Path(__file__).resolve().parents[2]
_SHOWN = "job.shown"
# Of a message's own way those steps by which the end comes in, and of a call's way those at which it began.
STEPS = [*((hop, side) for hop in JOB_HOPS for side in ("before", "after")), ("finished", "before"), ("finished", "after")]
COMING = [("claim", "before"), ("claim", "after"), ("spoke", "after"), ("finish", "before"), ("history", "after"), ("reset", "before")]

SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": "wait for it", "calls": [call("exec", command="echo ran >> ran; sleep 0.3; echo 忙完了", background=True)]},
        {"when": "go", "calls": [call("exec", command="echo ran >> ran; sleep 0.3; echo 忙完了", background=True)]},
        {"when": "The background job", "reply": "noted"},
    ],
    "default": {"reply": "so be it"},
}


class Life:
    """A world whose agentd dies at the step that it is told to."""

    def __init__(self, w: World, orders: Path) -> None:
        self.w, self.orders = w, orders
        orders.mkdir()

    def start(self) -> None:
        argv = ["env", f"PYTHONPATH={_ROOT}", f"CRASH_DIR={self.orders}", sys.executable, "-m", "tests.crash.launch", "agentd"]
        self.w.running["agentd"] = starter.Started(self.w.home, "agentd", argv, None).wait()

    def dies(self, hop: str, side: str) -> None:
        """agentd has died at a step, and another one has taken up what it left."""
        agentd = self.w.running["agentd"]
        self.w.until(lambda: agentd.process.poll() is not None)
        assert [(death["hop"], death["side"]) for death in doom.deaths(self.orders)[-1:]] == [(hop, side)]
        self.start()

    def settled(self, session: str) -> bool:
        jobs = Queue(self.w.home.inbound("jobs"))
        waits = any(next(jobs.list(state), None) for state in ("new", "cur")) if jobs.path.exists() else False
        records = [Job.load(path) for path in (self.w.home.background / session).glob("j*.json")]
        return not waits and not self.w.journal(session) and all(job.told for job in records)


def told(w: World, session: str) -> list[str]:
    """The texts of the messages that told of ends."""
    return [m["text"] for end in w.ends(session) for m in end["messages"] if str(m["id"]).startswith("job-")]


def test_the_end_is_told_once_wherever_agentd_is_killed(home: Home, tmp_path: Path, record_property: Any) -> None:
    steps = [step for step in STEPS if step[0] != _SHOWN] + COMING
    with world(home, SCRIPT) as w:
        life = Life(w, tmp_path / "orders")
        w.start("modeld")
        life.start()
        lost = 0
        for n, (hop, side) in enumerate(steps * (5 if SOAK else 1)):
            session = f"s{n}"
            is_coming = (hop, side) in COMING
            if not is_coming:
                doom.order(life.orders, "agentd", hop, side)
            w.put("go", session)
            w.ring()
            if is_coming:
                w.until(lambda session=session: w.ends(session))
                doom.order(life.orders, "agentd", hop, side)
            life.dies(hop, side)
            w.until(lambda session=session: w.ends(session) and life.settled(session))
            ran = home.session(session) / "work/ran"
            runs = ran.read_text().count("ran") if ran.exists() else 0
            known = told(w, session)
            assert runs <= 1, (hop, side)
            records = list((home.background / session).glob("j*.json"))
            assert len(known) == len(records) == ((hop, side) != ("job.record", "before")), (hop, side, known)
            lost += "was lost" in "".join(known)
            if hop == "job.run":
                assert "was lost" in known[0]
            if hop in ("job.noted", "job.put", "job.closed") and (hop, side) != ("job.noted", "before"):
                assert "ended with exit code 0" in known[0]
                assert "| 忙完了" in known[0]
            if hop in ("job.record", "job.run") or (hop, side) == ("finished", "before"):
                assert rules.INTERRUPTED in [m["content"] for m in w.history(session)]
        record_property("told", f"{len(steps)} deaths, {lost} jobs lost and told of.")


@pytest.mark.parametrize("side", ["before", "after"])
def test_an_end_that_the_model_has_seen_may_be_told_again_and_is_never_lost(home: Home, tmp_path: Path, side: str) -> None:
    script = json.loads(json.dumps(SCRIPT))
    script["rules"].insert(1, {"when": "[job j1 has begun", "calls": [call("job_result", id="j1", wait_s=20)]})
    with world(home, script) as w:
        life = Life(w, tmp_path / "orders")
        w.start("modeld")
        life.start()
        doom.order(life.orders, "agentd", _SHOWN, side)
        w.put("wait for it")
        w.ring()
        life.dies(_SHOWN, side)
        w.until(lambda: w.ends() and life.settled("s"))
        results = [m["content"] for m in w.history() if m["role"] == "tool"]
        assert "[job j1 ended with exit code 0" in results[-1]
        assert len(told(w, "s")) == (side == "before")


CUT = [("/new", "before", False, 1), ("/new", "after", True, 0), ("/stop jobs", "after", True, 0)]


@pytest.mark.parametrize(("text", "side", "named", "woken"), CUT)
def test_a_command_that_ends_jobs_may_be_cut_short(home: Home, tmp_path: Path, text: str, side: str, named: bool, woken: int) -> None:
    script = {"rules": [{"when": "go", "calls": [call("exec", command="sleep 3600", background=True)]}, SCRIPT["rules"][-1]]}
    with world(home, script) as w:
        life = Life(w, tmp_path / "orders")
        w.start("modeld")
        life.start()
        w.say("go")
        doom.order(life.orders, "agentd", "job.closed", side)
        id = w.put(text)
        w.ring()
        life.dies("job.closed", side)
        answer = w.wait(id).text
        assert ("Ended in the background: j1" in answer) == named
        w.until(lambda: life.settled("s") and len(told(w, "s")) == woken)
        (record,) = (home.background / "s").glob("j*.json")
        assert Job.load(record).how == ("stopped" if named else "lost")
