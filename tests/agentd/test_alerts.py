"""What the owner is told of: each trouble once, a line an hour at most, and never by the channel that is the trouble."""

from __future__ import annotations

import pytest

from bubbles.agentd.alerts import HOUR_S, UNDELIVERED_S, Alerts
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue


class Owner:
    """Alerts with a clock of their own, and what they have sent."""

    def __init__(self, home: Home, target: str = "telegram:42", language: str = "en") -> None:
        self.home, self.target, self.language = home, target, language
        self.now = 1_764_500_400.0
        self.sent: list[Outbound] = []
        self.broken: dict[str, str] = {}
        self.down: set[str] = set()
        self.day = "2025-11-30"
        self.restart()

    def restart(self) -> None:
        how = {"is_running": lambda home, name: None if name in self.down else 1, "now": lambda: self.now, "day": lambda: self.day}
        self.alerts = Alerts(self.home, self.target, self.language, self._put, lambda: self.broken, **how)  # type: ignore[arg-type]

    def _put(self, message: Outbound) -> None:
        """As a queue: one id, one message."""
        if message.id not in {each.id for each in self.sent}:
            self.sent.append(message)

    def look(self, after_s: float = 0.0) -> list[str]:
        """The lines that were sent by a look so long after the last."""
        before = len(self.sent)
        self.now += after_s
        self.alerts.look()
        return [message.text for message in self.sent[before:]]

    def hold(self, id: str, way: str = "inbound", channel: str = "telegram") -> Queue:
        queue = Queue(self.home.root / "spool" / way / channel)
        queue.prepare()
        queue.put(id, {"id": id, "at": self.now})
        queue.claim(id)
        queue.hold(id, "why")
        return queue

    def wait(self, id: str, channel: str) -> Queue:
        queue = Queue(self.home.outbound(channel))
        queue.prepare()
        queue.put(id, to_dict(Outbound(id, self.now, channel, "1", "hello")))
        return queue


def test_nothing_is_told_where_nothing_is_wrong_or_nobody_is_to_be_told(home: Home) -> None:
    assert Owner(home).look() == []
    owner = Owner(home, target="")
    owner.hold("m1")
    assert owner.look() == []


def test_a_trouble_is_told_once_also_over_a_restart_and_again_when_it_comes_back(home: Home) -> None:
    owner = Owner(home)
    queue = owner.hold("m1")
    [line] = owner.look()
    assert "m1" in line
    assert "bubbles queue list --state held" in line
    assert owner.sent[0].chat == "42"
    for _ in range(3):
        owner.restart()
        assert owner.look(2 * HOUR_S) == []
    queue.release("m1")
    assert owner.look(60) == []
    owner.hold("m1")
    assert len(owner.look(2 * HOUR_S)) == 1


def test_a_line_an_hour_and_then_all_that_is_new(home: Home) -> None:
    owner = Owner(home)
    owner.hold("m1")
    assert len(owner.look()) == 1
    for n in range(2, 8):
        owner.hold(f"m{n}")
        owner.restart()
        assert owner.look(60) == []
    [line] = owner.look(HOUR_S)
    assert "m1" not in line
    assert "m2" in line
    assert "3 more" in line


def test_a_channel_that_delivers_nothing_is_told_of_elsewhere_and_not_by_itself(home: Home) -> None:
    owner = Owner(home)
    owner.wait("m1", "slack")
    assert owner.look(UNDELIVERED_S - 1) == []
    assert "slack" in owner.look(2)[0]
    own = owner.wait("m2", "telegram")
    assert owner.look(2 * HOUR_S) == []
    own.drop("m2")
    owner.hold("m3")
    assert len(owner.look(60)) == 1


def test_what_a_channel_keeps_claimed_is_not_delivered_either(home: Home) -> None:
    owner = Owner(home)
    owner.wait("m1", "slack").claim("m1")
    assert "slack" in owner.look(UNDELIVERED_S + 1)[0]
    owner.wait("m2", "telegram").claim("m2")
    owner.hold("m3")
    assert owner.look(2 * HOUR_S) == [], "it would be told by the channel that is the trouble"


def test_a_channel_that_does_not_run_is_told_of_and_a_restart_is_not(home: Home) -> None:
    owner = Owner(home)
    owner.wait("m1", "slack").drop("m1")
    owner.down.add("channel-slack")
    assert owner.look(60) == []
    owner.down.clear()
    assert owner.look(60) == []
    owner.down.add("channel-slack")
    assert owner.look(60) == []
    assert "slack" in owner.look(60)[0]


def test_a_line_that_was_sent_and_not_noted_is_not_sent_twice(home: Home) -> None:
    owner = Owner(home)
    owner.hold("m1")
    assert len(owner.look()) == 1
    (home.run / "alerts.json").unlink()
    owner.restart()
    assert owner.look(60) == []


def test_jobs_turns_and_sessions(home: Home) -> None:
    owner = Owner(home, language="zh")
    owner.alerts.job_ended("j1", "failed:model_down")
    owner.alerts.job_ended("j2", "failed:model_down")
    owner.alerts.job_ended("j2", "replied")
    owner.alerts.job_ended("j3", "limit")
    owner.restart()
    owner.broken["work"] = "why"
    (home.turns / "held").mkdir()
    (home.turns / "held" / "cli-7.jsonl").touch()
    [line] = owner.look()
    assert "j1, j3" in line
    assert "j2" not in line
    assert "work" in line
    assert "cli-7" in line
    assert "处理" in line


@pytest.mark.parametrize("content", ["", "[]", '{"at": "x"}', "\0"])
def test_what_was_told_is_forgotten_rather_than_trusted_where_it_cannot_be_read(home: Home, content: str) -> None:
    (home.run / "alerts.json").write_text(content)
    owner = Owner(home)
    owner.hold("m1")
    assert len(owner.look()) == 1


@pytest.mark.parametrize("back_s", [600, 86_400])
def test_a_clock_that_was_set_back_loses_no_trouble(home: Home, back_s: float) -> None:
    owner = Owner(home)
    owner.hold("m1")
    assert len(owner.look()) == 1
    owner.now -= back_s
    owner.hold("m2")
    assert len(owner.look()) == 1


def test_a_budget_that_stopped_jobs_is_told_once_a_day_and_no_job_beside_it(home: Home) -> None:
    owner = Owner(home)
    owner.alerts.job_ended("j1", "failed:over_budget")
    owner.alerts.job_ended("j2", "failed:over_budget")
    [line] = owner.look()
    assert "the budget of 2025-11-30 is used up" in line
    assert "j1" not in line
    owner.restart()
    owner.alerts.job_ended("j1", "failed:over_budget")
    assert owner.look(2 * HOUR_S) == []
    owner.day = "2025-12-01"
    assert owner.look(2 * HOUR_S) == []
    owner.alerts.job_ended("j1", "failed:over_budget")
    assert "2025-12-01" in owner.look(60)[0]
