"""What a model thought goes back to it with the calls that it made, as its vendor wants it: signed where it was signed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbles.kernel import canonical
from bubbles.kernel.events import Call
from tests.providers.conformance.hall import HI, Hall, Told
from tests.providers.conformance.sides import SIDES, Side

PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = json.dumps([{"type": "function", "function": {"name": "exec", "description": "", "parameters": PARAMETERS}}]).encode()
CALLS = [{"name": "exec", "arguments": {"command": "ls ä"}, "id": "a"}, {"name": "exec", "arguments": {"command": "du"}, "id": "b"}]
THINKERS = [side for side in SIDES if side.reasoning != "drop"]


def remembered(told: Told) -> list[dict[str, Any]]:
    """An answer as it stands in history with the results of its calls."""
    answer = told.answer
    calls = [Call(canonical.rare_id(call["id"], "c", "turn"), call["name"], call["arguments"]) for call in answer["calls"]]
    return [canonical.assistant(answer["text"], calls, answer["reasoning"]), *(canonical.result(call.id, "done") for call in calls)]


@pytest.mark.parametrize("side", THINKERS, ids=str)
@pytest.mark.parametrize("reply", [None, "I look."])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_thoughts_go_back_with_their_calls(hall: Hall, side: Side, reply: str | None, stream: bool) -> None:
    only = f"{reply} {stream}"  # what is kept of one answer is not to serve for another
    look = {"calls": [*CALLS, {"name": "exec", "arguments": {"command": only}, "id": "x"}], "reasoning": "let me look 木", "reply": reply}
    more = {"calls": [{"name": "exec", "arguments": {"command": f"more {only}"}, "id": "c"}], "reasoning": "and further"}
    script = {"needs_reasoning": True, "rules": [{"when": "hi", **look}, {"when": "done", **more, "times": 1}], "default": {"reply": "so it is"}}
    history: list[dict[str, Any]] = [HI]
    for n in range(2):
        told = hall.ask(side, script if n == 0 else {**script, "rules": script["rules"][1:]}, *history, tools=TOOLS, stream=stream)
        assert told.error is None, told.error
        assert told.answer["calls"]
        history += remembered(told)
    last = hall.ask(side, {**script, "rules": []}, *history, tools=TOOLS, stream=stream)
    assert last.error is None, last.error
    assert (last.answer["text"], last.requests) == ("so it is", 1)


@pytest.mark.parametrize("side", [side for side in SIDES if side.reasoning == "drop"], ids=str)
def test_what_is_not_wanted_back_does_not_go(hall: Hall, side: Side) -> None:
    said = {**canonical.assistant("I look.", [Call("call_abcdefgh", "exec", "{}")]), "reasoning_content": "let me look"}
    told = hall.ask(side, {}, HI, said, canonical.result("call_abcdefgh", "done"), tools=TOOLS)
    assert told.error is None, told.error
    assert "let me look" not in told.seen["raw"][0]
