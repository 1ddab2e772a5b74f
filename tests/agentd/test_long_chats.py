"""Chats that outgrow a window, with a real agentd and modeld: summaries are made beside them, and no length ends one."""

from __future__ import annotations

import json
import re
from typing import Any

from bubbles.kernel import context
from bubbles.kernel.summary import HEAD, MARK
from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.test_sessions import ended
from tests.agentd.world import World, world
from tests.logged import logged

WINDOW = 8000
SUMMARY = "replaced by a summary"
LONG = "word " * 400


def small(window: int = WINDOW) -> dict[str, Any]:
    return {"providers__custom__models": {"fake-1": {"context_tokens": window}}, "agents__defaults__max_tokens": 500}


def asked(w: World, summaries: bool) -> list[dict[str, Any]]:
    """The requests for summaries, or the others."""
    return [body for body in w.fake.seen()["bodies"] if (SUMMARY in body["messages"][-1]["content"]) == summaries]


def fill(w: World, turns: int) -> None:
    for n in range(turns):
        assert w.say(f"Never forget AB-{n:03d}. {LONG}").outcome == "replied"


def fill_until_a_summary_is_asked_for(w: World) -> int:
    """How many turns that took."""
    for n in range(20):
        assert w.say(f"Never forget AB-{n:03d}. {LONG}").outcome == "replied"
        if asked(w, summaries=True):
            return n + 1
    raise AssertionError("none was")


def test_a_summary_is_made_beside_the_chat_and_put_in_place_between_two_turns(home: Home) -> None:
    script = {"rules": [{"when": SUMMARY, "never": True}], "default": {"reply": "ok"}}
    with world(home, script, **small()) as w:
        w.start()
        fill_until_a_summary_is_asked_for(w)
        for n in range(3):
            assert w.say(f"and {n}?").outcome == "replied", "nobody waits for it, and nobody's words end it"
        assert len(asked(w, summaries=True)) == 1
        assert w.fake.seen()["open"] == 1
        assert HEAD not in json.dumps(w.fake.seen()["bodies"])


def test_what_was_made_is_used_from_the_next_turn_on_and_costs_no_request(home: Home) -> None:
    script = {"rules": [{"when": SUMMARY, "reply": "They counted."}], "default": {"reply": "ok"}}
    with world(home, script, **small()) as w:
        w.start()
        turns = fill_until_a_summary_is_asked_for(w)
        w.until(lambda: not w.fake.seen()["open"])
        requests = w.fake.seen()["requests"]
        assert w.say("and now?").outcome == "replied"
        assert w.fake.seen()["requests"] == requests + 1
        first = w.fake.seen()["bodies"][-1]["messages"][1]["content"]
        assert first.startswith(HEAD.strip())
        assert "They counted." in first
        assert MARK in first
        assert "Never forget AB-000." in first
        assert sum("Never forget" in message["content"] for message in w.history() if message["role"] == "user") == turns
        assert "system" not in {message["role"] for message in asked(w, summaries=True)[0]["messages"]}
        assert "tools" not in asked(w, summaries=True)[0]
        w.kill("agentd")
        w.start("agentd")
        assert w.say("still?").outcome == "replied"
        assert w.fake.seen()["bodies"][-1]["messages"][1]["content"] == first


def test_a_clock_s_turn_waits_for_no_summary_and_is_answered_all_the_same(home: Home) -> None:
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        fill(w, 8)
        w.fake.play({"rules": [{"when": SUMMARY, "never": True}], "default": {"reply": "ok"}, "window_tokens": 4000})
        w.put("look at the disk", queue="cron", id="cron-j-1", origin="system")
        w.ring()
        w.until(lambda: ended(w, "s", "cron-j-1"))
        assert w.ends()[-1]["outcome"] == "replied"
        assert context.LEFT_OUT in asked(w, summaries=False)[-1]["messages"][1]["content"]
        assert len(asked(w, summaries=False)) == 2, "one refusal, which named the window"


def test_a_window_is_learned_from_a_refusal_that_names_it(home: Home) -> None:
    """The model reads half of what there is: once that is known, nothing is refused again."""
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        fill(w, 20)
        w.fake.play({"rules": [{"when": SUMMARY, "reply": "They counted."}], "default": {"reply": "ok"}, "window_tokens": 5000})
        for n in range(5):
            assert w.say(f"{n}? {LONG}").outcome == "replied"
        assert logged(home, "agentd").count("maximum context length") == 1


def test_where_a_refusal_names_no_window_half_of_it_is_tried(home: Home) -> None:
    refusal = {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "too long"}}}
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        fill(w, 20)
        w.fake.play({"rules": [{"when": SUMMARY, "reply": "They counted."}, {"when": "and now?", "times": 1, **refusal}], "default": {"reply": "ok"}})
        assert w.say("and now?").outcome == "replied"
        first, second = (context.tokens(body["messages"]) for body in asked(w, summaries=False))
        assert second < first * 0.6
        assert w.say("still?").outcome == "replied"


def test_one_word_larger_than_the_window_is_cut_visibly_and_answered(home: Home) -> None:
    with world(home, {"default": {"reply": "ok"}, "window_tokens": WINDOW}, **small()) as w:
        w.start()
        assert w.say("word " * 30_000).outcome == "replied"
        assert "characters left out" in w.fake.seen()["bodies"][-1]["messages"][-1]["content"]
        assert w.say("and now?").outcome == "replied"
        assert logged(home, "agentd").count("context_too_long") == 0


def test_what_is_no_summary_leaves_an_outline_and_never_its_own_words(home: Home) -> None:
    faults: list[dict[str, Any]] = [
        {"reply": " "},
        {"reply": '{"error": {"message": "overloaded"}}'},
        {"reply": "word " * 4000},
        {"calls": [call("exec", command="touch pwned")]},
        {"status": 400},
    ]
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        for n, fault in enumerate(faults):
            w.fake.play({"rules": [{"when": SUMMARY, **fault}], "default": {"reply": "ok"}})
            for k in range(4):
                w.say(f"fact {n}.{k} " + "word " * 100, f"s{n}")
            assert w.ask("session.compact", session=f"s{n}")["how"] == "outline", fault
            assert len(asked(w, summaries=True)) == 1, fault
            assert w.say("go on", f"s{n}").outcome == "replied"
            assert "this is what was said, in part" in w.fake.seen()["bodies"][-1]["messages"][1]["content"]
            assert sum("fact" in message["content"] for message in w.history(f"s{n}")) == 4
            assert not (home.session(f"s{n}") / "work" / "pwned").exists()


def test_one_turn_of_three_hundred_calls_ends_with_a_small_window(home: Home) -> None:
    """The provider refuses what is over the window, and never has to; what the model sees of the turn are its words and its newest calls."""
    rounds = [{"when": None, "times": 1, "calls": [call("list_dir", path=f"nowhere/{n}/{k}") for k in range(10)]} for n in range(30)]
    with world(home, {"rules": rounds, "default": {"reply": "all looked at"}, "window_tokens": WINDOW}, **small()) as w:
        w.start()
        heard = w.say("look at all of them")
        assert (heard.outcome, heard.text) == ("replied", "all looked at")
        assert logged(home, "agentd").count("context_too_long") == 0
        last = w.fake.seen()["bodies"][-1]["messages"]
        assert "look at all of them" in last[1]["content"]
        assert "nowhere/29/9" in json.dumps(last[-11:])
        assert sum(message["role"] == "tool" for message in w.history()) == 300
        assert w.say("and now?").outcome == "replied"
        assert logged(home, "agentd").count("context_too_long") == 0


def test_a_large_result_is_kept_whole_in_the_session_s_data(home: Home) -> None:
    run = call("exec", command="seq 1 20000")
    with world(home, {"rules": [{"when": "count", "times": 1, "calls": [run]}], "default": {"reply": "counted"}}, **small(32_000)) as w:
        w.start()
        assert w.say("count").text == "counted"
        result = next(message for message in w.history() if message["role"] == "tool")["content"]
        assert result.startswith("1\n2\n")
        assert "characters left out" in result
        assert "20000\n[exit code 0" in result
        found = re.search(r"The whole of it is in \.\./data/(exec-\S+\.txt): 20001 lines", result)
        assert found
        kept = (home.session("s") / "data" / found[1]).read_text()
        assert kept.splitlines()[:20_000] == [str(n) for n in range(1, 20_001)]
        assert context.tokens(result) <= 8000


def test_a_result_that_cannot_be_kept_is_clipped_all_the_same(home: Home) -> None:
    run = call("exec", command="rm -rf ../data; touch ../data; seq 1 20000")
    with world(home, {"rules": [{"when": "count", "times": 1, "calls": [run]}], "default": {"reply": "counted"}}, **small(32_000)) as w:
        w.start()
        assert w.say("count").text == "counted"
        result = next(message for message in w.history() if message["role"] == "tool")["content"]
        assert result.startswith("1\n2\n")
        assert "characters left out" in result
        assert "whole of it" not in result


def test_a_small_window_gets_a_smaller_prompt_from_the_first_request_on(home: Home) -> None:
    sizes = []
    for window in (6000, 32_000):
        with world(home, {"default": {"reply": "ok"}}, **small(window)) as w:
            w.start()
            w.say("hello")
            w.say("and now?")
            first, second = (body["messages"][0]["content"] for body in w.fake.seen()["bodies"])
            assert first == second
            sizes.append(len(first))
    assert sizes[0] < sizes[1] * 0.7
