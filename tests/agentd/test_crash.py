"""kill -9 of agentd and modeld in the middle of a turn: nothing lost, nothing done twice."""

from __future__ import annotations

import json
import time

import pytest

from bubbles.kernel import turn as rules
from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import world


def test_killed_while_the_model_thinks(home: Home) -> None:
    with world(home, {"default": {"reply": "4", "delay_s": 0.7}}) as w:
        w.start()
        id = w.put("2+2?")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        w.kill("agentd")
        w.start("agentd")
        assert w.wait(id).text == "4"
        assert w.fake.seen()["requests"] == 1  # modeld was still at it, and was joined
        assert [m["role"] for m in w.history()] == ["user", "assistant"]


def test_modeld_killed_while_the_model_thinks(home: Home) -> None:
    with world(home, {"default": {"reply": "4", "delay_s": 0.7}}) as w:
        w.start()
        id = w.put("2+2?")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        w.kill("modeld")
        w.start("modeld")
        assert w.wait(id).text == "4"
        assert len(w.ends()) == 1


def test_a_tool_that_was_running_is_told_as_interrupted_and_not_run_again(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [call("exec", command="echo x >> ran; sleep 60")]}], "default": {"reply": "I see"}}
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        ran = home.session("s") / "work" / "ran"
        w.until(ran.exists)
        w.kill("agentd")
        w.start("agentd")
        assert w.wait(id).text == "I see"
        assert ran.read_text() == "x\n"
        assert rules.INTERRUPTED in [m["content"] for m in w.history()]


LOOPS = {
    "shell": "while true; do date >> ticks; sleep .1; done",
    "detached": "(setsid sh -c 'while true; do date >> ticks; sleep .1; done' &) ; sleep 60",
}


@pytest.mark.parametrize("loop", LOOPS)
def test_a_command_that_was_running_is_ended_before_the_model_hears_of_it(home: Home, loop: str) -> None:
    script = {"rules": [{"when": "go", "calls": [call("exec", command=LOOPS[loop])]}], "default": {"reply": "I see"}}
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        ticks = home.session("s") / "work" / "ticks"
        w.until(ticks.exists)
        w.kill("agentd")
        w.start("agentd")
        size = ticks.stat().st_size
        assert w.wait(id).text == "I see"
        assert rules.INTERRUPTED in [m["content"] for m in w.history()]
        time.sleep(0.3)  # three ticks
        assert ticks.stat().st_size == size


def test_words_put_while_nobody_runs_are_answered(home: Home) -> None:
    with world(home, {"default": {"reply": "here"}}) as w:
        ids = [w.put(f"word {n}") for n in range(5)]
        w.start()
        assert {w.wait(id).outcome for id in ids} == {"replied"}
        assert [m["text"] for end in w.ends() for m in end["messages"]] == [f"word {n}" for n in range(5)]


def test_the_same_message_twice_is_one(home: Home) -> None:
    with world(home) as w:
        w.start()
        id = w.put("hello", id="cli-one")
        w.ring()
        w.wait(id)
        w.put("hello", id="cli-one")
        (home.inbound("cli") / "done" / "cli-one.json").unlink()
        w.put("hello", id="cli-one")
        w.ring()
        w.say("and another")
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["hello", "and another"]


def test_a_turn_that_kills_agentd_is_given_up_in_the_end(home: Home) -> None:
    with world(home, {"rules": [{"when": "hello", "reply": "fine"}, {"when": "poison", "endless": True}], "default": {"reply": "fine"}}) as w:
        w.start()
        id = w.put("poison")
        w.ring()
        for _ in range(4):
            w.until(lambda: b"ModelAsked" in w.journal())
            w.kill("agentd")
            w.start("agentd")
        heard = w.wait(id)
        assert heard.outcome == "failed:gave_up"
        assert heard.text
        assert w.ask("status")["held_turns"] == [id]
        assert w.ends()[0]["messages"][0]["text"] == "poison"
        assert w.say("hello").text == "fine"


def test_a_journal_with_a_line_nobody_can_read_costs_the_turn_and_no_words(home: Home) -> None:
    with world(home, {"rules": [{"when": "slow", "endless": True}], "default": {"reply": "fine"}}) as w:
        w.start()
        id = w.put("slow")
        w.ring()
        journal = home.turns / "s.jsonl"
        w.until(lambda: b"ModelAsked" in w.journal())
        w.kill("agentd")
        journal.write_bytes(journal.read_bytes() + b'{"event":"ToolFinished","call":"never"}\n')
        w.start("agentd")
        assert w.wait(id).outcome == "failed:gave_up"
        assert w.ends()[0]["messages"][0]["text"] == "slow"


def test_killed_between_history_and_journal(home: Home) -> None:
    with world(home, {"default": {"reply": "once"}}) as w:
        w.start()
        w.say("hello")
        w.kill("agentd")
        end = w.ends()[0]
        lines = [
            {"format": "bubbles.journal", "version": 1, "turn": end["turn"], "session": "s", "origin": "user"},
            {"event": "UserSpoke", "at": 1.0, "id": end["messages"][0]["id"], "text": "hello", "address": {"channel": "cli", "chat": "s"}},
        ]
        (home.turns / "s.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        w.start("agentd")
        w.say("again")
        assert [m["text"] for e in w.ends() for m in e["messages"]] == ["hello", "again"]
