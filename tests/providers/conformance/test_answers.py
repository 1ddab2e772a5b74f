"""What every provider answers: words, calls, reasoning and tokens, streamed as whole, and by one request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbles.providers import REGISTRY
from tests.providers.conformance.hall import HI, Hall, Told
from tests.providers.conformance.sides import KEY, SIDES, Side

TEXT = "one two three 四 five six seven 🙂"
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}}
FUNCTIONS = [{"name": name, "description": "", "parameters": PARAMETERS} for name in ("exec", "look")]
TOOLS = json.dumps([{"type": "function", "function": function} for function in FUNCTIONS]).encode()
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TOKENS = {"input": 1200, "output": 90, "cached": 1000, "cache_write": 100, "reasoning": 40}


def one(told: Told) -> dict[str, Any]:
    """The answer of one request."""
    assert told.error is None, told.error
    assert (told.requests, told.answer["attempts"], told.slept) == (1, 1, [])
    return told.answer


def both(hall: Hall, side: Side, script: dict[str, Any], *messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The answer, which is the same whole and streamed."""
    whole = one(hall.ask(side, script, *messages, stream=False, **more))
    told = hall.ask(side, script, *messages, **more)
    streamed = one(told)
    assert told.heard == streamed["text"]
    assert {**streamed, "usage": {}, "calls": parsed(streamed)} == {**whole, "usage": {}, "calls": parsed(whole)}
    return {**whole, "usages": [whole["usage"], streamed["usage"]]}


def parsed(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls, whose arguments may be spelled in several ways."""
    return [{**call, "arguments": json.loads(call["arguments"])} for call in answer["calls"]]


def test_every_provider_that_can_be_asked_is_here() -> None:
    asked = {name for name, entry in REGISTRY.items() if entry.implementation}
    assert {side.provider for side in SIDES} | {"embedded"} == asked


def test_words(hall: Hall, side: Side) -> None:
    answer = both(hall, side, {"default": {"reply": TEXT, "chunks": 5}})
    assert (answer["text"], answer["calls"], answer["reasoning"], answer["stop"]) == (TEXT, [], "", "stop")
    assert (answer["provider"], answer["model"]) == (side.provider, side.model)


def test_an_answer_without_what_a_library_looks_for_is_one(hall: Hall) -> None:
    groq = next(side for side in SIDES if side.provider == "groq")
    assert both(hall, groq, {"untiered": True, "default": {"reply": TEXT, "chunks": 5}})["text"] == TEXT


def test_what_is_asked_goes_out_and_nothing_else_of_us(hall: Hall, side: Side) -> None:
    system = {"role": "system", "content": "Be brief."}
    told = hall.ask(side, {}, system, HI, tools=TOOLS)
    one(told)
    (raw,), (headers,) = told.seen["raw"], told.seen["headers"]
    for words in ("Be brief.", '"hi"', "exec", "look", *(["64"] if side.bounded else [])):
        assert words in raw
    assert side.model in raw + told.seen["paths"][0]
    assert KEY in str(headers)
    assert KEY not in raw
    assert headers["user-agent"].startswith("bubbles/")


ODD = [
    {"name": "exec", "arguments": {"command": "du -sh 'ä 木 \U0001f600' \"\\\\\""}, "id": "functions.exec:0"},
    {"name": "look", "arguments": {}, "id": "call|7 ü"},
    {"name": "exec", "arguments": {"command": ""}, "id": "x" * 90},
]


def test_several_calls_with_odd_ids(hall: Hall, side: Side) -> None:
    answer = both(hall, side, {"default": {"calls": ODD}}, tools=TOOLS)
    assert [(call["name"], json.loads(call["arguments"])) for call in answer["calls"]] == [(call["name"], call["arguments"]) for call in ODD]
    if side.ids:
        assert [call["id"] for call in answer["calls"]] == [call["id"] for call in ODD]
    assert len({call["id"] for call in answer["calls"]}) == len(ODD)
    assert (answer["text"], answer["stop"]) == ("", "tool_calls")


@pytest.mark.parametrize("id", [None, "", "call_0"])
def test_calls_without_an_id_of_their_own_get_one(hall: Hall, side: Side, id: str | None) -> None:
    calls = [{"name": name, "arguments": {}, "id": id} for name in ("exec", "look")]
    ids = [call["id"] for call in one(hall.ask(side, {"default": {"calls": calls}}, tools=TOOLS))["calls"]]
    assert all(ids)
    assert len(set(ids)) == 2


def test_words_before_calls(hall: Hall, side: Side) -> None:
    answer = both(hall, side, {"default": {"reply": TEXT, "calls": ODD[:1]}}, tools=TOOLS)
    assert (answer["text"], len(answer["calls"]), answer["stop"]) == (TEXT, 1, "tool_calls")


def test_no_content_is_no_text(hall: Hall, side: Side) -> None:
    answer = both(hall, side, {"default": {"reply": None}})
    assert (answer["text"], answer["calls"], answer["stop"]) == ("", [], "stop")


def test_thoughts_are_no_words(hall: Hall, side: Side) -> None:
    answer = both(hall, side, {"default": {"reply": TEXT, "reasoning": "let me think 木"}})
    assert (answer["text"], answer["reasoning"]) == (TEXT, "let me think 木")


def test_one_that_stopped_for_its_length_says_so(hall: Hall, side: Side) -> None:
    assert both(hall, side, {"default": {"reply": "half a", "finish": "length"}})["stop"] == "length"


def test_tokens(hall: Hall, side: Side) -> None:
    for usage in both(hall, side, {"default": {"reply": TEXT, "tokens": TOKENS}})["usages"]:
        assert (usage["input"], usage["output"]) == (TOKENS["input"], TOKENS["output"])
        assert usage.get("cached", 0) == (TOKENS["cached"] if side.cached else 0)
        if side.cache_write:
            assert usage["cache_write"] == TOKENS["cache_write"]
        if side.thoughts:
            assert usage["reasoning"] == TOKENS["reasoning"]


@pytest.mark.parametrize("side", [side for side in SIDES if side.images], ids=str)
def test_an_image_goes_out_as_the_vendor_wants_it(hall: Hall, side: Side) -> None:
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]
    told = hall.ask(side, {}, {"role": "user", "content": parts})
    one(told)
    assert PIXEL in told.seen["raw"][0]
    assert "what is this?" in told.seen["raw"][0]


@pytest.mark.parametrize("side", [side for side in SIDES if "claude" in side.model], ids=str)
def test_what_stays_the_same_is_marked_for_the_cache_of_who_wants_marks(hall: Hall, side: Side) -> None:
    said = [{"role": "assistant", "content": "so"}, {"role": "user", "content": "and"}]
    told = hall.ask(side, {}, {"role": "system", "content": "Be brief."}, HI, *said, *said, tools=TOOLS)
    one(told)
    assert 2 <= told.seen["raw"][0].count('"cache_control"') <= 4


def test_a_conversation_with_results_goes_out_as_the_vendor_wants_it(hall: Hall, side: Side) -> None:
    def said(text: str, *ids: str) -> list[dict[str, Any]]:
        calls = [{"id": id, "type": "function", "function": {"name": "exec", "arguments": '{"command":"ls ä"}'}} for id in ids]
        return [{"role": "assistant", "content": text, "tool_calls": calls}, *({"role": "tool", "tool_call_id": id, "content": "done"} for id in ids)]

    system = {"role": "system", "content": "Be brief."}
    history = [system, HI, *said("", "a1", "a2"), *said("and", "b1"), {"role": "assistant", "content": "so"}, {"role": "user", "content": "more"}]
    one(hall.ask(side, {}, *history, tools=TOOLS))
    one(hall.ask(side, {}, *history, *said("", "c1", "c2"), tools=TOOLS))
    one(hall.ask(side, {}, *history, *said("", "c1", "c2"), {"role": "user", "content": "stop that"}, tools=TOOLS))
