"""The builder: whatever goes in, no provider refuses what comes out; and what was good stays as it was."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.kernel.canonical import arguments, call_id, call_name, encode
from bubbles.kernel.context import GO_ON, LEFT_OUT, MISSING, NO_REASONING, SEEN, Request, Shape, build, check
from tests.kernel.test_dialects import ELSEWHERE, EVERYWHERE, GOOD, SYSTEM, call, calls, result, said, user

STRICT = Shape(after_tool="assistant_only")
SHAPES = {
    Shape(): ("openai", "anthropic"),
    Shape(reasoning="keep"): ("openai", "anthropic"),
    Shape(reasoning="require"): ("openai", "anthropic"),
    Shape(system=False): ("openai", "anthropic"),
    STRICT: ("openai", "anthropic", "strict"),
    Shape(tools=False): ("openai", "anthropic", "strict"),
    Shape(tools=False, system=False, reasoning="require"): ("openai", "anthropic", "strict"),
}

TEXT = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(["", " ", "\n", "hi", "\ud83d", "a\0"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
IDS = st.sampled_from(["c1", "c2", "c1", "", "a/b", "x" * 70, None, 7]) | TEXT
ARGUMENTS = st.sampled_from(["{}", "", "{", "[]", '{"a":"\\ud83d"}', '{"a":NaN}', '{"a":1e400}', '{"a": 1}', None, {"a": "\ud83d"}]) | JSON
NAMES = st.sampled_from(["exec", "functions.exec", "", None]) | TEXT
FUNCTIONS = st.fixed_dictionaries({}, optional={"name": NAMES, "arguments": ARGUMENTS})
TOOL_CALLS = st.fixed_dictionaries({}, optional={"id": IDS, "type": st.just("function"), "function": FUNCTIONS | JSON})
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system", "developer", "wizard", None])},
    optional={
        "content": TEXT | JSON | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}), max_size=2),
        "tool_calls": st.lists(TOOL_CALLS | JSON, max_size=3) | JSON,
        "tool_call_id": IDS,
        "reasoning_content": TEXT | JSON,
        "at": st.integers(),
    },
)
ANYTHING = st.lists(MESSAGES | JSON, max_size=12)


@settings(max_examples=200)
@given(ANYTHING, st.sampled_from(list(SHAPES)))
def test_anything_becomes_well_formed(messages: list[Any], shape: Shape) -> None:
    before = copy.deepcopy(messages)
    request = build(messages, shape)
    for dialect in SHAPES[shape]:
        assert check(request, dialect) == []
    assert repr(messages) == repr(before)
    assert build(request, shape) == request
    for message in request:
        assert json.loads(encode(message).decode("utf-8")) == message


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("messages", [*EVERYWHERE.values(), *(messages for _, messages in ELSEWHERE.values()), *GOOD])
def test_every_malformed_history_is_mended(messages: list[Any], shape: Shape) -> None:
    for dialect in SHAPES[shape]:
        assert check(build(messages, shape), dialect) == []


@pytest.mark.parametrize("messages", GOOD)
def test_what_is_well_formed_passes_unchanged(messages: list[dict[str, Any]]) -> None:
    assert build(messages, Shape(reasoning="keep")) == messages
    assert [encode(message) for message in build(messages, Shape(reasoning="keep"))] == [encode(message) for message in messages]


@settings(max_examples=150)
@given(ANYTHING, ANYTHING, st.sampled_from(list(SHAPES)))
def test_a_longer_history_begins_with_the_shorter_request(first: list[Any], more: list[Any], shape: Shape) -> None:
    """The prompt cache lives on this. `first` is made a request: no calls open, a user or a result last."""
    first = build(first, Shape(reasoning="keep"))
    while more and isinstance(more[0], dict) and more[0].get("role") == "tool":
        more = more[1:]
    short, long = build(first, shape), build(first + more, shape)
    assert long[: len(short) - 1] == short[:-1]
    assert len(long) >= len(short)


@given(ANYTHING, ANYTHING, ANYTHING, st.sampled_from(list(SHAPES)))
def test_a_request_that_grows_is_the_one_built_at_once(history: list[Any], first: list[Any], second: list[Any], shape: Shape) -> None:
    history, first = build(history, Shape(reasoning="keep")), build(first, Shape(reasoning="keep"))
    base = Request(shape).add(history)
    before = list(base.messages)
    assert base.fork().add(first).add(second).ended() == build([*history, *first, *second], shape)
    assert base.fork().add(second).ended() == build([*history, *second], shape)
    assert base.messages == before
    kept = base.fork().add(first).ended()[: len(before) - 1]
    assert all(now is then for now, then in zip(kept, before, strict=False))


def test_users_and_assistants_in_a_row_become_one() -> None:
    assert build([user("a"), user("b"), said("c"), said("d"), user("e")]) == [user("a\n\nb"), said("c\n\nd"), user("e")]


def test_an_answer_and_the_calls_behind_it_become_one() -> None:
    thinking = calls(call(), content="I look.") | {"reasoning_content": "hm"}
    request = build([user(), said("Yes.", reasoning_content="so"), thinking, result(), user()], Shape(reasoning="keep"))
    assert request == [user(), calls(call(), content="Yes.\n\nI look.") | {"reasoning_content": "so\n\nhm"}, result(), user()]


def test_a_history_that_begins_in_the_middle_gets_a_beginning() -> None:
    assert build([result("c0"), said("as I said"), user("go")]) == [user(LEFT_OUT), said("as I said"), user("go")]


def test_a_request_never_ends_with_the_assistant() -> None:
    assert build([user(), said()]) == [user(), said(), user(GO_ON)]
    assert build([]) == [user(GO_ON)]
    assert build([SYSTEM]) == [SYSTEM, user(GO_ON)]


def test_each_call_is_answered_once_and_in_order() -> None:
    results = [result("c3", "three"), result("c9"), result("c1", "one"), result("c1", "again")]
    assert build([user(), calls(call("c1"), call("c2"), call("c3")), *results, user()]) == [
        user(),
        calls(call("c1"), call("c2"), call("c3")),
        result("c1", "one"),
        result("c2", MISSING),
        result("c3", "three"),
        user(),
    ]


def test_ids_that_repeat_are_told_apart_over_the_whole_request() -> None:
    again = [user(), calls(call("c1")), result("c1", "1"), calls(call("c1"), call("c1")), result("c1", "2"), result("c1", "3")]
    assert build(again)[3:] == [calls(call("c1_2"), call("c1_3")), result("c1_2", "2"), result("c1_3", "3")]


def test_a_model_without_tools_is_told_of_calls_in_words() -> None:
    history = [user(), calls(call("c1"), call("c2", "list_dir"), content="I look."), result("c1", "a"), result("c2", "b"), user("well?")]
    assert build(history, Shape(tools=False)) == [
        user(),
        said("I look.\n[called exec with {}]\n[called list_dir with {}]"),
        user("[result of exec]\na\n\n[result of list_dir]\nb\n\nwell?"),
    ]


def test_a_model_without_system_messages_gets_it_from_the_user() -> None:
    assert build([SYSTEM, user("hi")], Shape(system=False)) == [user("be kind\n\nhi")]


def test_a_late_system_message_becomes_words() -> None:
    both = {"role": "system", "content": "be kind\n\nbe kind"}
    assert build([SYSTEM, SYSTEM, user("hi"), said(), SYSTEM]) == [both, user("hi"), said(), user("be kind")]


def test_where_no_user_may_follow_a_result_the_assistant_does() -> None:
    assert build([user(), calls(call()), result(), user("and?")], STRICT) == [user(), calls(call()), result(), said(SEEN), user("and?")]


def test_reasoning_is_dropped_kept_or_always_there() -> None:
    history = [user(), said("a", reasoning_content="hm"), user(), said("b"), user()]
    assert build(history) == [user(), said("a"), user(), said("b"), user()]
    assert build(history, Shape(reasoning="keep")) == history
    required = build(history, Shape(reasoning="require", after_tool="assistant_only"))
    assert [message.get("reasoning_content") for message in required if message["role"] == "assistant"] == ["hm", NO_REASONING]


def test_parts_of_text_become_text() -> None:
    assert build([user([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}])]) == [user("a\nb")]


def test_pictures_stay_beside_the_words_they_came_with() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    broken = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    shown = user([{"type": "text", "text": "look"}, picture])
    for shape in SHAPES:
        assert build([user("hi"), said(), shown], shape)[-1] == shown
    assert build([user("hi"), shown])[-1] == user([{"type": "text", "text": "hi"}, *shown["content"]])
    assert build([user([broken, {"type": "text", "text": "look"}])]) == [user("look")]
    assert build([user([picture])]) == [user([{"type": "text", "text": "(empty)"}, picture])]
    assert check([user([picture])])
    assert check([user([{"type": "text", "text": "look"}, broken, picture])])


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (" ", "{}"),
        (None, "{}"),
        ({"a": [float("nan"), (1, 2)]}, '{"a":["nan",[1,2]]}'),
        ('{"a":"\\ud83d"}', '{"a":"\ufffd"}'),
        ('{"a":"\\ud83d\\ude00"}', '{"a":"\\ud83d\\ude00"}'),
        ("[1]", '{"not_a_json_object":"[1]"}'),
        ('{"a":NaN}', '{"not_a_json_object":"{\\"a\\":NaN}"}'),
        (7, '{"not_a_json_object":"7"}'),
        ("[" * 100_000, '{"not_a_json_object":"' + "[" * 500 + '"}'),
        ('{"a":' * 900 + "1" + "}" * 900, None),
        ("9" * 5000, '{"not_a_json_object":"' + "9" * 500 + '"}'),
    ],
)
def test_arguments(given: Any, made: str | None) -> None:
    found = arguments(given)
    assert check([user(), calls(call(arguments=found)), result()]) == []
    assert made is None or found == made


def test_names_and_ids() -> None:
    assert [*map(call_name, ("exec", "a b", "x" * 99, "文", None))] == ["exec", "a_b", "x" * 64, "unknown", "unknown"]
    assert call_id("x" * 64, "c1", {"x" * 40}) == "x" * 36 + "_2"
    assert call_id(None, "c1", {"c1", "c1_2"}) == "c1_3"
