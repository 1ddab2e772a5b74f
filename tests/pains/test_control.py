"""/stop stops, and nothing comes late; a long life costs no memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import World, world
from tests.disasters.soak import SOAK
from tests.logged import logged
from tests.pains.test_lost import start, town

TURNS = 10_000 if SOAK else 300
SLOW = "echo $$ > pid; (setsid sh -c 'echo $$ > pid2; exec sleep 300' &); sleep 300; echo late"


def alive(path: Path) -> bool:
    """Whether the process that wrote its number there lives."""
    try:
        state = Path(f"/proc/{path.read_text().strip()}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_stop_in_a_chat_ends_a_command_and_all_that_it_started(home: Home) -> None:
    with town(home, {"rules": [{"when": "go", "times": 1, "calls": [call("exec", command=SLOW)]}], "default": {"reply": "fine"}}) as (w, outside):
        start(w, outside)
        outside.say("go", sender={"id": "me", "name": "Me", "owner": True})
        work = home.session("town-42") / "work"
        w.until(lambda: all((work / name).exists() and (work / name).read_text().strip() for name in ("pid", "pid2")))
        outside.say("/stop", sender={"id": "me", "name": "Me", "owner": True})
        w.until(lambda: w.ends("town-42"))
        w.until(lambda: not alive(work / "pid") and not alive(work / "pid2"))
        w.until(lambda: outside.sent())
        assert [end["outcome"] for end in w.ends("town-42")] == ["stopped"]
        outside.say("hello?")
        w.until(lambda: "fine" in [one["text"] for one in outside.sent()])
        assert not any("late" in one["text"] for one in outside.sent())
        assert [one["text"] for one in outside.sent()][-1] == "fine"
        assert len(w.fake.seen()["bodies"]) == 2


def test_stop_in_a_chat_ends_a_model_that_speaks_for_ever(home: Home) -> None:
    script = {"rules": [{"when": "go", "times": 1, "reply": "late words ", "endless": True}], "default": {"reply": "fine"}}
    with town(home, script) as (w, outside):
        start(w, outside)
        outside.say("go")
        w.until(lambda: w.fake.seen()["open"])
        outside.say("/stop")
        w.until(lambda: w.ends("town-42"))
        w.until(lambda: not w.fake.seen()["open"])  # and the provider is told: nobody pays for what nobody reads
        outside.say("hello?")
        w.until(lambda: "fine" in [one["text"] for one in outside.sent()])
        assert not any("late" in one["text"] for one in outside.sent())
        assert not any("late" in message["content"] for message in w.history("town-42"))


@pytest.mark.parametrize("when", ["UserSpoke", "ModelAsked", "ToolStarted", "ToolFinished"])
def test_stopped_anywhere_the_session_goes_on_with_a_strict_provider(home: Home, when: str) -> None:
    """Every call has its result, whatever moment the stop came at: a provider that counts them refuses nothing afterwards."""
    script = {
        "rules": [
            {"when": "fine?", "reply": "fine"},
            {"when": "go", "times": 1, "calls": [call("exec", command="sleep 0.3; echo one"), call("exec", command="sleep 300; echo two")]},
        ],
        "default": {"endless": True},
        "dialect": "anthropic",
    }
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: when.encode() in w.journal())
        w.ask("turn.stop", session="s")
        assert w.wait(id).outcome == "stopped"
        assert w.say("fine?").text == "fine"
        w.kill("agentd")
        w.start("agentd")
        assert w.say("fine?").text == "fine"
        assert "rejected" not in logged(home, "agentd")


@pytest.mark.parametrize("when", ["ModelAsked", "ToolStarted", "ToolFinished"])
def test_killed_anywhere_the_session_goes_on_with_a_strict_provider(home: Home, when: str) -> None:
    script = {
        "rules": [{"when": "go", "times": 1, "calls": [call("exec", command="sleep 0.3; echo one"), call("exec", command="sleep 0.3; echo two")]}],
        "default": {"reply": "fine", "delay_s": 0.1},
        "dialect": "anthropic",
    }
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: when.encode() in w.journal())
        w.kill("agentd")
        w.start("agentd")
        assert w.wait(id).outcome == "replied"
        assert w.say("fine?").text == "fine"
        assert "rejected" not in logged(home, "agentd")


# Memory.


def resident_kb(w: World, name: str) -> int:
    """What a daemon's own memory weighs: its private pages."""
    lines = Path(f"/proc/{w.running[name].pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon lets nobody but root look into it")
def test_a_session_that_lives_long_does_not_grow(home: Home) -> None:
    """Sessions that are compacted again and again: what agentd holds of them is bounded, and so is agentd.

    modeld keeps the answers of a minute (2000 at most) for who asks again: it is looked at when it has as many.
    """
    script = {"rules": [{"when": "ummar", "reply": "They spoke."}], "default": {"reply": "ok"}}
    traits = {"fake-1": {"context_tokens": 3000}}
    with world(home, script, providers__custom__models=traits, agents__defaults__max_tokens=500) as w:
        w.start()
        _turns(w, TURNS // 2)
        before = {name: resident_kb(w, name) for name in ("agentd", "modeld")}
        _turns(w, TURNS)
        for name, size in before.items():
            grown = (resident_kb(w, name) - size) / TURNS
            assert grown < (0.2 if SOAK else 6), f"{name} grows by {grown:.2f} KB a turn"


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon lets nobody but root look into it")
def test_large_requests_are_not_kept_with_their_answers(home: Home) -> None:
    with world(home, agents__defaults__context_tokens=1_000_000) as w:
        w.start()
        for n in range(60):
            if n == 44:  # what is held by reference is at its bound now
                before = resident_kb(w, "modeld")
            assert w.say("word " * 180_000, f"s{n}").outcome == "replied"
        assert resident_kb(w, "modeld") - before < 4000


def _turns(w: World, count: int) -> None:
    """So many turns, over ten sessions, a hundred at a time."""
    for first in range(0, count, 100):
        ids = [(w.put(f"word {n}", f"s{n % 10}"), f"s{n % 10}") for n in range(first, first + min(100, count - first))]
        w.ring()
        for id, session in ids:
            w.wait(id, session)
