"""Answers as endpoints give them, liberties included, and what is made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import ModelDown, ModelError, RateLimited, Rejected
from bubbles.providers.answer import Draft
from bubbles.providers.provider import Answer
from tests.fakes.script import Speech


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> Answer:
    return Draft("t.1").whole({"model": "m", "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}], **more})


def streamed(*deltas: dict[str, Any], finish: str = "stop") -> Answer:
    draft = Draft("t.1")
    for delta in deltas:
        draft.feed({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    draft.feed({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return draft.finish()


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


def test_a_plain_answer() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}}
    answer = whole({"content": "hello", "reasoning_content": "a greeting"}, usage=usage)
    assert answer == Answer("hello", (), "a greeting", {"input": 10, "output": 2, "cached": 8}, "stop", "m")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": "a \ud83d b\0"}, "a \ufffd b\ufffd"),
        ({"content": 7}, ""),
    ],
)
def test_text_in_other_shapes(message: dict[str, Any], text: str) -> None:
    assert whole(message).text == text


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, {}),
        ({}, {"cached": 0}),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_hit_tokens": 4}, {"input": 5, "output": 1, "cached": 4}),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": None}, {"input": 5, "output": 1, "cached": 0}),
        ({"prompt_tokens": "many", "completion_tokens": -1}, {}),
        ({"prompt_tokens": 5, "completion_tokens": 10**25}, {}),
        ({"prompt_tokens": 5, "completion_tokens": float("inf")}, {}),
        ({"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": [1]}}, {"input": 5, "output": 1}),
        ("lots", {}),
    ],
)
def test_usage_as_it_is_counted_elsewhere(usage: Any, counted: dict[str, int]) -> None:
    assert whole({"content": "x"}, usage=usage).usage == counted


@pytest.mark.parametrize(
    ("given_", "arguments"),
    [('{"a": 1}', '{"a": 1}'), ({"a": 1}, '{"a": 1}'), ("", "{}"), (None, "{}"), ({}, "{}"), ('{"a": ', '{"a": ')],
)
def test_arguments_in_other_shapes(given_: Any, arguments: str) -> None:
    (found,) = whole({"content": None, "tool_calls": [call("exec", given_, id="c1")]}, "tool_calls").calls
    assert found == {"id": "c1", "name": "exec", "arguments": arguments}


def test_calls_without_ids_or_with_one_for_all_get_their_own() -> None:
    for ids in ([{}, {}], [{"id": ""}, {"id": None}], [{"id": "same"}, {"id": "same"}]):
        made = [whole({"tool_calls": [call("a", "{}", **ids[0]), call("b", "{}", **ids[1])]}).calls for _ in range(2)]
        assert made[0] == made[1]
        assert len({c["id"] for c in made[0]}) == 2
        assert all(c["id"] for c in made[0])


def test_a_call_without_a_name_is_a_broken_answer() -> None:
    with pytest.raises(ModelDown):
        whole({"tool_calls": [call("", "{}", id="c1")]})


def test_why_it_stopped() -> None:
    assert whole({"content": "x"}, "length").stop == "length"
    assert whole({"content": "x"}, None).stop == "stop"
    assert whole({"content": None, "tool_calls": [call("a", "{}", id="c")]}, "stop").stop == "tool_calls"
    with pytest.raises(Rejected, match="content filter"):
        whole({"content": "x"}, "content_filter")


@pytest.mark.parametrize("body", [None, [], "x", {}, {"choices": []}, {"choices": [None]}, {"choices": [{}]}, {"choices": [{"message": None}]}])
def test_a_body_that_is_no_answer(body: Any) -> None:
    with pytest.raises(ModelDown):
        Draft("t.1").whole(body)


def test_an_error_with_status_200() -> None:
    with pytest.raises(RateLimited):
        Draft("t.1").whole({"error": {"message": "slow down", "code": 429}})
    with pytest.raises(ModelDown):
        Draft("t.1").whole({"choices": [{"error": {"message": "upstream", "code": 502}, "message": {"content": ""}}]})
    with pytest.raises(RateLimited):
        Draft("t.1").feed({"error": {"message": "slow down", "code": 429}})


FRAGMENTS = {
    "as OpenAI sends them": [
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "a", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "b", "arguments": "{}"}}]},
    ],
    "mixed": [
        {
            "tool_calls": [
                {"index": 0, "id": "c1", "function": {"name": "a", "arguments": '{"x"'}},
                {"index": 1, "id": "c2", "function": {"name": "b"}},
            ]
        },
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}, {"index": 0, "function": {"arguments": ": 1}"}}]},
    ],
    "id and name in every piece": [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "a", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "a", "arguments": ": 1}"}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "b", "arguments": "{}"}}]},
    ],
    "one index for all": [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "a", "arguments": '{"x": 1}'}}]},
        {"tool_calls": [{"index": 0, "id": "c2", "function": {"name": "b", "arguments": "{}"}}]},
    ],
    "no index": [
        {"tool_calls": [{"id": "c1", "function": {"name": "a", "arguments": '{"x"'}}]},
        {"tool_calls": [{"function": {"arguments": ": 1}"}}]},
        {"tool_calls": [{"id": "c2", "function": {"name": "b", "arguments": "{}"}}]},
    ],
    "all at once": [{"tool_calls": [call("a", '{"x": 1}', id="c1"), call("b", "{}", id="c2")]}],
}


@pytest.mark.parametrize("deltas", FRAGMENTS.values(), ids=FRAGMENTS)
def test_calls_in_fragments(deltas: list[dict[str, Any]]) -> None:
    answer = streamed({"role": "assistant", "content": None}, *deltas, finish="tool_calls")
    assert [(c["id"], c["name"], json.loads(c["arguments"])) for c in answer.calls] == [("c1", "a", {"x": 1}), ("c2", "b", {})]


def test_reasoning_by_either_name() -> None:
    assert streamed({"reasoning_content": "a"}, {"reasoning": "b"}, {"content": "c"}).reasoning == "ab"


@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.lists(st.tuples(st.sampled_from(["exec", "read_file"]), st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3)), max_size=3),
    st.integers(1, 12),
)
def test_a_stream_says_what_the_whole_says(text: str, reasoning: str, calls: list[Any], chunks: int) -> None:
    rule = {"reply": text, "reasoning": reasoning, "chunks": chunks, "calls": [{"name": n, "arguments": a} for n, a in calls]}
    speech = Speech(rule, "", 1)
    assert streamed(*speech.deltas(), finish=speech.finish) == whole(speech.message(), speech.finish)


KEYS = ["choices", "delta", "message", "content", "tool_calls", "function", "name", "arguments", "index", "id", "usage", "error", "finish_reason"]
WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=20,
)


@given(st.lists(WILD, max_size=4))
def test_no_chunk_is_a_crash(chunks: list[Any]) -> None:
    draft = Draft("t.1")
    try:
        for chunk in chunks:
            draft.feed(chunk)
        draft.finish()
        Draft("t.2").whole(chunks[0] if chunks else None)
    except ModelError:
        pass
