"""A daemon that is killed, frozen or restarted while a turn runs: the answer comes all the same, no tool runs twice, and the others do not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.systemd.person import Person
from tests.systemd.world import AGENTD, ALL, CHANNEL, CHAT, CHATS_SESSION, CRON, MODELD, World, command, world

_TALK = {  # a turn of two commands, the first of which takes a while, and an answer that the model thinks about
    "rules": [
        {"when": "from a terminal", "times": 1, "calls": [command("terminal-1", 1.5), command("terminal-2")]},
        {"when": "from a chat", "times": 1, "calls": [command("chat-1", 1.5), command("chat-2")]},
    ],
    "default": {"reply": "all done", "delay_s": 0.5},
}
_TERMINAL, _CHAT = ["terminal-1", "terminal-2"], ["chat-1", "chat-2"]


@pytest.fixture
def bubbles(person: Person, tmp_path: Path) -> Any:
    """All units run, and the model plays `_TALK`."""
    with world(person, tmp_path / "state", _TALK) as made:
        made.start()
        yield made


def _both_speak(bubbles: World) -> Any:
    """Somebody asks in a terminal and somebody in a chat; returns the first, while a command of each runs."""
    asking = bubbles.asking("from a terminal")
    bubbles.platform.say("from a chat", chat=CHAT)
    bubbles.person.until(lambda: bubbles.ran() and bubbles.ran(CHATS_SESSION))
    return asking


def _both_are_answered(bubbles: World, asking: Any) -> None:
    printed, complaints = asking.communicate(timeout=60)
    assert printed.strip() == "all done", complaints
    assert bubbles.person.until(lambda: [sent["text"] for sent in bubbles.platform.sent()]) == ["all done"]


@pytest.mark.parametrize("unit", ALL)
def test_whoever_is_killed_during_a_command_comes_back(bubbles: World, unit: str) -> None:
    asking = _both_speak(bubbles)
    before = bubbles.pids(*ALL)
    bubbles.signal("KILL", before[unit])
    _both_are_answered(bubbles, asking)
    bubbles.person.until(lambda: bubbles.pid(unit) not in (0, before[unit]))
    assert {name: pid for name, pid in bubbles.pids(*ALL).items() if name != unit} == {n: pid for n, pid in before.items() if n != unit}
    for ran, planned in ((bubbles.ran(), _TERMINAL), (bubbles.ran(CHATS_SESSION), _CHAT)):
        assert ran == (planned if unit != AGENTD else planned[: len(ran)])  # after its own end the model decides anew what is still to do
        assert ran


def test_whoever_asks_while_a_unit_is_coming_back_waits_for_it(bubbles: World) -> None:
    """A daemon of the terminal's own would answer too, without the unit's limits and out of its log."""
    for unit, how in ((AGENTD, "kill"), (MODELD, "kill"), (AGENTD, "restart")):
        before = bubbles.pid(unit)
        if how == "kill":
            bubbles.signal("KILL", before)
        else:
            bubbles.person.systemctl("restart", "--no-block", unit)
        assert bubbles.ask(f"after {how}", "gap") == "all done"
        bubbles.person.until(lambda unit=unit, before=before: bubbles.pid(unit) not in (0, before))
        assert not list(bubbles.machine.path(bubbles.person.home / ".bubbles/log").rglob("*.*"))  # files: there are directories of units
    assert len(bubbles.entries("BUBBLES_SESSION=gap", "BUBBLES_EVENT=turn.close")) == 3


def test_a_model_daemon_that_is_killed_during_a_question_asks_it_again(bubbles: World) -> None:
    bubbles.model.play({"default": {"reply": "thought about", "delay_s": 1.0}})
    asking = bubbles.asking("anything")
    bubbles.person.until(lambda: bubbles.model.seen()["open"])
    bubbles.signal("KILL", bubbles.pid(MODELD))
    assert asking.communicate(timeout=60)[0].strip() == "thought about"
    assert bubbles.said() == ["thought about"]


def test_a_clock_that_is_killed_during_its_jobs_turn_learns_how_it_ended(bubbles: World) -> None:
    bubbles.model.play({"rules": [{"when": "every morning", "times": 1, "calls": [command("job", 1.5)]}], "default": {"reply": "good morning"}})
    bubbles.person.run(["bubbles", "cron", "add", "--at", "in 1s", "--session", "s", "every morning"])
    bubbles.person.until(bubbles.ran)
    bubbles.signal("KILL", bubbles.pid(CRON))
    bubbles.person.until(lambda: '"replied"' in bubbles.person.run(["bubbles", "cron", "list"]).stdout)
    assert bubbles.ran() == ["job"]
    assert bubbles.said() == ["good morning"]


def test_a_channel_is_restarted_without_the_rest(bubbles: World) -> None:
    asking = _both_speak(bubbles)
    before = bubbles.pids(*ALL)
    bubbles.person.systemctl("restart", CHANNEL)
    after = bubbles.pids(*ALL)
    assert {name for name in ALL if after[name] != before[name]} == {CHANNEL}
    _both_are_answered(bubbles, asking)
    assert bubbles.ran() == _TERMINAL
    assert bubbles.ran(CHATS_SESSION) == _CHAT


@pytest.mark.parametrize("unit", [AGENTD, CHANNEL, MODELD])
def test_a_frozen_daemon_is_ended_by_the_watchdog_and_comes_back(bubbles: World, unit: str) -> None:
    bubbles.adjust(unit, "short", "[Service]\nWatchdogSec=1\nRestartSec=0.1\n")
    bubbles.person.systemctl("restart", unit)
    frozen = bubbles.pid(unit)
    bubbles.signal("STOP", frozen)
    bubbles.platform.say("is anybody there?", chat=CHAT)
    assert bubbles.person.until(lambda: [sent["text"] for sent in bubbles.platform.sent()]) == ["all done"]
    assert bubbles.pid(unit) != frozen
    assert "watchdog" in bubbles.person.run(["journalctl", "--user", "-u", unit]).stdout.lower()
