"""Words that a provider refuses each time: they cost the turn they are in, and neither the session nor money without end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import world

POISON = "hemlock"


def refusing(*rules: dict[str, Any], status: int = 0) -> dict[str, Any]:
    fault = {"status": status} if status else {"error": "content_filter"}
    return {"rules": [{"anywhere": POISON, **fault}, *rules], "default": {"reply": "ok"}}


@pytest.mark.parametrize("status", [0, 400], ids=["policy", "invalid"])
def test_the_session_goes_on(home: Home, status: int) -> None:
    with world(home, refusing(status=status), agents__defaults__api_retries=2) as w:
        w.start()
        assert w.say("first").text == "ok"
        assert w.say(f"some {POISON}").outcome == "failed:rejected"
        assert w.fake.seen()["requests"] == 2, "it is not asked again"
        assert w.say("and now?").text == "ok"
        sent = w.fake.seen()["bodies"][-1]["messages"]
        assert POISON not in json.dumps(sent)
        assert "refused" in json.dumps(sent), "the model knows that something was"
        assert POISON in json.dumps(w.history()), "nothing is lost"


def test_a_wrong_name_of_a_model_costs_no_words(home: Home) -> None:
    with world(home, {"rules": [{"times": 1, "status": 404}], "default": {"reply": "ok"}}) as w:
        w.start()
        assert w.say("remember this").outcome == "failed:rejected"
        assert w.say("well?").text == "ok"
        assert "remember this" in json.dumps(w.fake.seen()["bodies"][-1])


def test_a_poisonous_result_is_left_out_and_what_was_done_is_not(home: Home) -> None:
    with world(home, refusing({"when": "work", "calls": [call("exec", command="echo hem''lock")]})) as w:
        w.start()
        assert w.say("work").outcome == "failed:rejected"
        assert w.say("what was it?").text == "ok"
        sent = w.fake.seen()["bodies"][-1]["messages"]
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "user"]


def test_it_is_not_asked_again_after_a_restart(home: Home) -> None:
    with world(home, refusing()) as w:
        w.start()
        assert w.say(POISON).outcome == "failed:rejected"
        w.kill("agentd")
        w.start("agentd")
        assert w.say("and now?").text == "ok"
        assert w.fake.seen()["requests"] == 2
        assert POISON not in json.dumps(w.fake.seen()["bodies"][-1])


def test_retry_asks_once_and_the_session_still_goes_on(home: Home) -> None:
    with world(home, refusing(), agents__defaults__language="en") as w:
        w.start()
        w.say(POISON)
        w.say("/retry")
        w.until(lambda: len(w.ends()) == 2)
        assert w.fake.seen()["requests"] == 2
        assert w.ends()[-1]["outcome"] == "failed:rejected"
        assert w.say("and now?").text == "ok"
        assert json.dumps(w.fake.seen()["bodies"][-1]).count("refused by the model's provider") == 1


def test_a_job_that_is_refused_poisons_nobody_else(home: Home) -> None:
    with world(home, refusing()) as w:
        w.start()
        for n in range(3):
            w.put(POISON, queue="cron", id=f"cron-j-{n}", job="j")
            w.ring()
        w.until(lambda: len(w.ends()) == 3)
        assert w.fake.seen()["requests"] == 3, "once for each time that it was due"
        assert w.say("hello").text == "ok"
