"""The clock of the whole house is set a day forward or back while messages wait, turns run and jobs are due.

The daemons are real processes whose clock the test sets (bent.py); what waits for a while is not waited for but rung for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus.dial import Dial
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import World, world
from tests.disasters import bending
from tests.disasters.bent import Clock
from tests.disasters.test_modeld import stopped

DAY = 86_400


class House:
    """A world whose clock may be set."""

    def __init__(self, w: World, clock: Clock) -> None:
        self.w = w
        self.clock = clock

    def start(self, *names: str) -> None:
        for name in names:
            self.w.running[name] = bending.start(self.w.home, name, clock=self.clock)

    def put(self, text: str) -> str:
        """A message of somebody whose clock is the house's."""
        queue = Queue(self.w.home.inbound("cli"), clock=self.clock.now_ns)
        me = Sender("me", "Me", owner=True)
        inbound = Inbound(id=f"cli-{text}", at=self.clock.now(), channel="cli", chat="s", text=text, sender=me, session="s")
        queue.put(inbound.id, to_dict(inbound))
        return inbound.id

    def cron(self, op: str, **body: Any) -> dict[str, Any]:
        with Dial(self.w.home, "cron") as dial:
            return dial.call(op, body)[0]

    def look(self) -> None:
        """cron looks at its clock now, as it does once a minute anyway."""
        self.cron("status")

    def fired(self, job: dict[str, Any]) -> list[str]:
        """The messages that a job has sent."""
        queue = self.w.home.inbound("cron")
        return sorted(path.stem for path in queue.glob(f"*/cron-{job['id']}-*.json"))

    def settled(self, job: dict[str, Any], messages: int) -> None:
        """Return when a job has sent so many messages, and all that cron has sent was taken."""
        self.w.until(lambda: len(self.fired(job)) >= messages)
        self.w.until(lambda: not any(path.parent.name in ("new", "cur") for path in self.w.home.inbound("cron").glob("*/*.json")))


@contextlib.contextmanager
def house(home: Home, path: Path, script: dict[str, Any] | None = None) -> Iterator[House]:
    with world(home, script or {"default": {"reply": "ok"}}) as w:
        made = House(w, Clock(path / "clock"))
        made.start("modeld", "agentd")
        yield made


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_what_waits_is_answered_at_once_and_in_its_order(home: Home, tmp_path: Path, step: int) -> None:
    with house(home, tmp_path) as h:
        with stopped(h.w, "agentd"):
            words = [h.put("one"), h.put("two")]
            h.clock.step(step)
            words += [h.put("three"), h.put("four")]
        h.w.ring()
        for id in words:
            assert h.w.wait(id).outcome == "replied"
        assert [m["text"] for end in h.w.ends() for m in end["messages"]] == ["one", "two", "three", "four"]


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_turn_that_runs_meanwhile_ends_once(home: Home, tmp_path: Path, step: int) -> None:
    with house(home, tmp_path, {"rules": [{"when": "slowly", "reply": "done", "delay_s": 0.5}], "default": {"reply": "ok"}}) as h:
        id = h.put("slowly")
        h.w.ring()
        h.w.until(lambda: h.w.fake.seen()["open"])
        h.clock.step(step)
        joined = h.put("also")
        h.w.ring()
        assert h.w.wait(id).text == "done"
        assert h.w.wait(joined).outcome == "replied"
        h.w.kill("agentd")  # what a restart makes of it is the same
        h.start("agentd")
        h.clock.step(-step)
        assert h.w.wait(h.put("again")).outcome == "replied"
        assert [m["text"] for end in h.w.ends() for m in end["messages"]] == ["slowly", "also", "again"]


def test_a_clock_that_goes_there_and_back_loses_nothing(home: Home, tmp_path: Path) -> None:
    with house(home, tmp_path) as h:
        with stopped(h.w, "agentd"):
            words = []
            for n, step in enumerate([DAY, -2 * DAY, DAY, 30 * DAY, -30 * DAY]):
                words.append(h.put(f"w{n}"))
                h.clock.step(step)
        h.w.ring()
        for id in words:
            assert h.w.wait(id).outcome == "replied"
        said = [m["text"] for end in h.w.ends() for m in end["messages"]]
        assert sorted(said) == [f"w{n}" for n in range(5)]


def test_a_failure_is_told_though_the_last_was_told_in_the_future(home: Home, tmp_path: Path) -> None:
    """At most one notice a minute: a minute is not a day long, because the clock was set back."""
    with house(home, tmp_path, {"default": {"status": 500}}) as h:
        assert h.w.wait(h.put("one")).text
        h.clock.step(-DAY)
        assert h.w.wait(h.put("two")).text


def test_jobs_neither_stay_away_for_a_day_nor_make_up_for_one(home: Home, tmp_path: Path) -> None:
    with house(home, tmp_path) as h:
        h.start("cron")
        beat = h.cron("job.add", name="beat", message="tick", session="b", schedule={"kind": "every", "every_s": 10})
        once = h.cron("job.add", name="once", message="now", session="o", schedule={"kind": "at", "at": h.clock.now() + 3600})
        due = 0
        for step, beats in ((11, 1), (-DAY, 0), (11, 1), (DAY, 1), (11, 1)):
            h.clock.step(step)
            h.look()
            due += beats
            h.settled(beat, due)
            assert len(h.fired(beat)) == due
        h.clock.step(DAY)
        h.look()
        h.w.until(lambda: h.fired(once))
        for step in (-DAY, DAY, DAY):
            h.clock.step(step)
            h.look()
        assert len(h.fired(once)) == 1
        h.w.until(lambda: len(h.w.ends("o")) == 1)
        assert [m["text"] for end in h.w.ends("o") for m in end["messages"]] == ["now"]
