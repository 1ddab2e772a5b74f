"""Other models that answer where the one that is set cannot: in order, with a word to the reader, and only where another may do better."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bubbles import config
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import World, world
from tests.fakes.start import FakeModel, model

DOWN = {"default": {"status": 503}}


@contextmanager
def two(home: Home, first: dict[str, Any], second: dict[str, Any], **more: Any) -> Iterator[tuple[World, FakeModel]]:
    """A model and one that stands in for it, at two addresses."""
    with model(second) as other, world(home, first, **more) as w:
        w.configure(providers__ollama__base_url=other.url, agents__defaults__fallbacks=["ollama/spare"])
        w.start()
        yield w, other


def test_the_next_model_answers_and_says_so(home: Home) -> None:
    with two(home, DOWN, {"default": {"reply": "Good day."}}) as (w, other):
        heard = w.say("hello")
        assert heard.text == "Good day.\n\n(custom/fake-1 could not answer: the model cannot be reached. This answer is by ollama/spare.)"
        assert heard.says() == [heard.text]
        assert other.seen()["bodies"][-1]["model"] == "spare"
        assert w.history()[-1]["content"] == "Good day.", "the model does not learn to say it"
        w.fake.play({"default": {"reply": "Back."}})
        assert w.say("and now?").text == "Back."
        assert "could not answer" not in json.dumps(w.fake.seen()["bodies"])


def test_within_a_turn_it_stays_with_who_answered_and_is_told_once(home: Home) -> None:
    work = {"rules": [{"when": "work", "times": 1, "calls": [call("exec", command="echo hi")]}], "default": {"reply": "done"}}
    with two(home, {"default": {"status": 429}}, work) as (w, other):
        heard = w.say("work")
        assert heard.text.count("limits requests just now") == 1
        assert w.fake.seen()["requests"] == 1
        assert other.seen()["requests"] == 2


def test_an_empty_account_is_worth_another_model(home: Home) -> None:
    with two(home, {"default": {"error": "insufficient_quota"}}, {"default": {"reply": "ok"}}) as (w, _):
        assert "no credit" in w.say("hello").text


@pytest.mark.parametrize(("rule", "outcome"), [({"status": 401}, "failed:not_authorized"), ({"error": "content_filter"}, "failed:rejected")])
def test_what_another_model_would_not_mend_asks_none(home: Home, rule: dict[str, Any], outcome: str) -> None:
    with two(home, {"default": rule}, {"default": {"reply": "ok"}}) as (w, other):
        assert w.say("hello").outcome == outcome
        assert other.seen()["requests"] == 0


def test_where_none_answers_the_first_failure_is_told_with_all_attempts(home: Home) -> None:
    with two(home, DOWN, {"default": {"status": 401}}, agents__defaults__language="en") as (w, other):
        heard = w.say("hello")
        assert heard.outcome == "failed:model_down"
        assert "1 retry" in heard.text
        assert (w.fake.seen()["requests"], other.seen()["requests"]) == (1, 1)


def test_one_with_a_smaller_window_is_asked_with_less(home: Home) -> None:
    with two(home, {"default": {"reply": "ok"}}, {"default": {"reply": "ok"}, "window_tokens": 4000}) as (w, other):
        for n in range(8):
            w.say(f"{n} " + "word " * 500)
        w.fake.play(DOWN)
        assert w.say("and now?").text.startswith("ok\n\n(")
        assert other.seen()["requests"] == 2
        w.fake.play({"default": {"reply": "ok"}})
        assert w.say("who are you?").text == "ok"
        assert sum("word word" in message["content"] for message in w.fake.seen()["bodies"][-1]["messages"]) == 8, "nothing was given up for it"


@pytest.mark.parametrize("name", ["openai_codex/gpt-5", "GitHub-Copilot/gpt-4.1", ""])
def test_who_is_signed_in_to_is_no_fallback(home: Home, name: str) -> None:
    with pytest.raises(Misconfigured, match="fallbacks"):
        config.save(home, {"agents.defaults.fallbacks": [name]})


def test_a_summary_is_had_from_the_same_models(home: Home) -> None:
    small = {"agents__defaults__result_tokens": 100, "agents__defaults__keep_tokens": 256}
    with two(home, {"default": {"reply": "ok " * 60}}, {"default": {"reply": "They spoke of words."}}, **small) as (w, other):
        for n in range(6):
            w.say(f"{n} " + "word " * 300)
        w.fake.play(DOWN)
        w.say("/compact")
        w.until(lambda: other.seen()["requests"])
        w.until(lambda: '"meta":"compaction"' in (home.session("s") / "session.jsonl").read_text())
        line = next(line for line in (home.session("s") / "session.jsonl").read_text().splitlines() if '"meta":"compaction"' in line)
        assert json.loads(line)["how"] == "model"
        assert "They spoke of words." in json.loads(line)["summary"]
        assert (w.fake.seen()["requests"], other.seen()["requests"]) == (1, 1)
