"""Answers that are none, reasoning that is wanted back, bytes that are no text: the next request is one that every provider takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbles.kernel import context
from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import world


def test_a_thinking_model_gets_its_reasoning_back(home: Home) -> None:
    think = {"when": "go", "times": 1, "reasoning": "first I look", "calls": [call("exec", command="echo found")]}
    script = {"rules": [think], "default": {"reply": "so it is", "reasoning": "clear now"}, "needs_reasoning": True}
    with world(home, script, providers__custom__models={"fake-1": {"reasoning": "keep"}}) as w:
        w.start()
        assert w.say("go").text == "so it is"
        assert w.say("and?").text == "so it is"
        w.kill("agentd")
        w.start("agentd")
        assert w.say("and then?").text == "so it is"
        (asked,) = (m for m in w.fake.seen()["bodies"][-1]["messages"] if m.get("tool_calls"))
        assert asked["reasoning_content"] == "first I look"


@pytest.mark.parametrize(
    "rule",
    [{"reply": None}, {"reply": ""}, {"status": 400}, {"status": 500}, {"error": "content_filter"}, {"body": "<html>Bad gateway</html>"}, {"cut": 0}],
    ids=["null", "empty", "400", "500", "filter", "html", "cut"],
)
def test_what_is_no_answer_is_nobodys_words_and_the_next_request_is_clean(home: Home, rule: dict[str, Any]) -> None:
    with world(home, {"default": rule}) as w:
        w.start()
        assert w.say("one").outcome.startswith("failed:")
        w.fake.play({"default": {"reply": "fine"}})
        assert w.say("two").text == "fine"
        (body,) = w.fake.seen()["bodies"]
        assert not context.check(body["messages"])
        assert [m["role"] for m in body["messages"]] == ["system", "user"]
        assert [m["content"] for m in w.history() if m["role"] == "assistant"] == ["fine"]


def test_a_tool_that_prints_bytes(home: Home) -> None:
    command = r"printf '\xff\xfe\x00\xed\xa0\xbd caf\xc3\xa9 \x1b[31m'; head -c 3000 /dev/urandom"
    with world(home, {"rules": [{"when": "go", "times": 1, "calls": [call("exec", command=command)]}], "default": {"reply": "odd"}}) as w:
        w.start()
        assert w.say("go").text == "odd"
        assert w.say("half \ud83d of a face").text == "odd"
        w.kill("agentd")
        w.start("agentd")
        assert w.say("and now?").text == "odd"
        for raw in w.fake.seen()["raw"]:
            raw.encode("utf-8")
            json.dumps(json.loads(raw), ensure_ascii=False).encode("utf-8")
