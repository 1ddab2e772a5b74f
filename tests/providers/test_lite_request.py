"""What a question becomes for LiteLLM, and what is kept of an answer beside history: each as its vendor wants it, with nothing loaded."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.providers.lite_request import most, request
from bubbles.providers.lite_thoughts import Kept, Thoughts
from bubbles.providers.provider import Answer, Ask, Capabilities

CAN = Capabilities(tools=True, vision=False, cache=True, window_tokens=0, output_tokens=0, reasoning="keep", after_tool="user_ok")
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}} for name in ("exec", "look")]


def call(id: str, name: str = "exec", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def result(id: str, text: str = "done") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}


def asked(*messages: dict[str, Any], thoughts: Thoughts | None = None, marked: bool = False, prefix: str = "", **more: Any) -> dict[str, Any]:
    can = Capabilities(**{**CAN, **{name: more.pop(name) for name in list(more) if name in CAN}})
    ask = Ask("t", "m", [json.dumps(message).encode() for message in messages], json.dumps(TOOLS).encode(), **more)
    return request(ask, can, thoughts or Thoughts(), streamed=True, marked=marked, prefix=prefix)


def places(value: Any, path: str = "") -> list[str]:
    """Where in a request there are marks."""
    if isinstance(value, dict):
        own = [path] if "cache_control" in value else []
        return own + [place for key, one in value.items() for place in places(one, f"{path}.{key}")]
    if isinstance(value, list):
        return [place for n, one in enumerate(value) for place in places(one, f"{path}.{n}")]
    return []


def test_a_question_without_marks_is_what_was_said() -> None:
    messages = [SYSTEM, user("hi"), said("so", call("a")), result("a")]
    found = asked(*messages, max_tokens=64)
    assert found["messages"] == messages
    assert found["tools"] == TOOLS
    assert (found["max_tokens"], found["stream"], found["stream_options"]) == (64, True, {"include_usage": True})


def test_a_model_without_tools_is_given_none() -> None:
    assert "tools" not in asked(user("hi"), tools=False)


@pytest.mark.parametrize(
    ("wanted", "window", "output", "found"),
    [(8192, 0, 0, 8192), (8192, 4096, 0, 2048), (8192, 200_000, 4096, 4096), (100, 200_000, 4096, 100), (8192, 1, 0, 1)],
)
def test_an_answer_is_no_longer_than_the_model_can(wanted: int, window: int, output: int, found: int) -> None:
    assert most(Ask("t", "m", [], max_tokens=wanted), {"window_tokens": window, "output_tokens": output}) == found


# -- marks for the cache -----------------------------------------------------------------------------------


def test_what_stays_is_marked() -> None:
    history = [SYSTEM, user("one"), said("1", call("a"), call("b")), result("a"), result("b"), said("2"), user("two")]
    assert places(asked(*history, marked=True)) == [".messages.0.content.0", ".messages.4", ".messages.6.content.0", ".tools.1"]
    assert places(asked(user("hi"), marked=True)) == [".messages.0.content.0", ".tools.1"]
    assert places(asked(*history)) == []


@given(st.lists(st.sampled_from([user("u"), said("a"), result("r"), SYSTEM]), min_size=1, max_size=12))
def test_never_more_marks_than_there_may_be(messages: list[dict[str, Any]]) -> None:
    found = places(asked(*messages, marked=True))
    assert 1 <= len(found) <= 4
    assert len(set(found)) == len(found)


def test_an_image_can_bear_the_mark() -> None:
    parts = [{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    assert places(asked({"role": "user", "content": parts}, marked=True))[0] == ".messages.0.content.1"


# -- Gemini ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["gemini", "openai"])
def test_calls_alone_have_no_words(prefix: str) -> None:
    found = asked(user("hi"), said("", call("a")), result("a"), prefix=prefix)["messages"]
    assert found[1]["content"] is None


def test_of_the_same_calls_gemini_gets_one_with_all_results() -> None:
    calls = [call("a", arguments='{"x": 1}'), call("b", "look"), call("c", arguments='{"x":1}')]
    history = [user("hi"), said("", *calls), result("a", "first"), result("b", "other"), result("c", "second"), said("so"), user("more")]
    found = asked(*history, prefix="gemini")["messages"]
    assert [one["id"] for one in found[1]["tool_calls"]] == ["a", "b"]
    assert [(one["tool_call_id"], one["content"]) for one in found[2:4]] == [("a", "first\n\nsecond"), ("b", "other")]
    assert found[4:] == history[5:]
    assert asked(*history)["messages"][1]["tool_calls"] == calls


@given(st.lists(st.lists(st.sampled_from(["{}", '{"x":1}', '{"x": 1}', "not json"]), max_size=4), max_size=4))
def test_each_call_of_gemini_has_one_result(turns: list[list[str]]) -> None:
    messages = [user("hi")]
    for n, turn in enumerate(turns):
        messages += [said("", *(call(f"c{n}-{k}", arguments=one) for k, one in enumerate(turn))), *(result(f"c{n}-{k}") for k in range(len(turn)))]
    found = asked(*messages, prefix="gemini")["messages"]
    calls = [one["id"] for message in found for one in message.get("tool_calls", ())]
    assert calls == [message["tool_call_id"] for message in found if message["role"] == "tool"]
    words = Counter(word for message in found if message["role"] == "tool" for word in message["content"].split())
    assert words["done"] == sum(map(len, turns))


# -- what a vendor wants back ------------------------------------------------------------------------------

ANSWER = Answer("so", ({"id": "toolu_1", "name": "exec", "arguments": '{"a":1}'}, {"id": "toolu_2", "name": "exec", "arguments": '{"b":1}'}))
BACK = said("so", call("changed-1", arguments='{"a": 1}'), call("changed-2", arguments='{"b":1}'))


def kept(*deltas: dict[str, Any]) -> Kept:
    found = Kept()
    for delta in deltas:
        found.take(delta)
    return found


def test_thoughts_come_in_pieces_and_go_back_whole() -> None:
    pieces = [
        {"thinking_blocks": [{"type": "thinking", "thinking": "let me", "signature": ""}]},
        {"content": "x", "thinking_blocks": [{"type": "thinking", "thinking": " see"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "S1"}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "and", "signature": "S2"}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "xx"}]},
    ]
    thoughts = Thoughts()
    thoughts.keep(ANSWER, kept(*pieces))
    found = asked(user("hi"), BACK, thoughts=thoughts)["messages"][1]
    assert found["thinking_blocks"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "S1"},
        {"type": "thinking", "thinking": "and", "signature": "S2"},
        {"type": "redacted_thinking", "data": "xx"},
    ]
    assert found["content"] == "so"


def test_thoughts_that_nobody_signed_do_not_go_back() -> None:
    thoughts = Thoughts()
    thoughts.keep(ANSWER, kept({"thinking_blocks": [{"type": "thinking", "thinking": "broken o", "signature": ""}]}))
    assert thoughts.given_back(BACK) is BACK


def test_a_call_gets_its_own_signature_back() -> None:
    signed = {"index": 1, "function": {"name": "exec"}, "provider_specific_fields": {"thought_signature": "GS"}}
    thoughts = Thoughts()
    thoughts.keep(ANSWER, kept({"tool_calls": [{"index": 0, "function": {"name": "exec"}}]}, {"tool_calls": [signed]}))
    first, second = thoughts.given_back(BACK)["tool_calls"]
    assert "provider_specific_fields" not in first
    thoughts.keep(ANSWER, kept({"tool_calls": [{"function": {"name": "exec"}}, {**signed, "index": None}]}))
    assert thoughts.given_back(BACK)["tool_calls"] == [first, second]
    assert second == BACK["tool_calls"][1] | {"provider_specific_fields": {"thought_signature": "GS"}}


def test_what_is_not_known_again_goes_as_it_is() -> None:
    thoughts = Thoughts()
    thoughts.keep(ANSWER, kept({"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "S"}]}))
    for other in (said("so"), said("otherwise", *BACK["tool_calls"]), said("so", call("x")), user("so"), said("so", *BACK["tool_calls"][::-1])):
        assert thoughts.given_back(other) is other


def test_old_thoughts_are_forgotten() -> None:
    thoughts, block = Thoughts(), {"thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "S"}]}
    for n in range(501):
        thoughts.keep(Answer(str(n), ({"id": "a", "name": "exec", "arguments": "{}"},)), kept(block))
    assert "thinking_blocks" not in thoughts.given_back(said("0", call("a")))
    assert "thinking_blocks" in thoughts.given_back(said("1", call("a")))


def test_of_a_gateways_details_those_go_back_that_can_be_checked() -> None:
    text, claude = {"type": "reasoning.text", "index": 0}, {"type": "reasoning.text", "format": "anthropic-claude-v1"}
    pieces: list[dict[str, Any]] = [text | {"text": "let me"}, text | {"text": " see"}, claude | {"index": 1, "text": "x"}]
    pieces += [claude | {"index": 2, "text": "y"}, claude | {"index": 2, "signature": "S"}, {"type": "reasoning.encrypted", "data": "xx"}]
    thoughts = Thoughts()
    thoughts.keep(ANSWER, kept(*({"reasoning_details": [piece]} for piece in pieces)))
    signed = claude | {"index": 2, "text": "y", "signature": "S"}
    assert thoughts.given_back(BACK)["reasoning_details"] == [text | {"text": "let me see"}, signed, pieces[-1]]
