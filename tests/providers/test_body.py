"""The body of a request: history's own bytes wherever the model takes them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bubbles.kernel import context
from bubbles.providers.body import MARKS, body, shaped
from bubbles.providers.prefix import Messages
from bubbles.providers.provider import Ask, Capabilities

PLAIN = Capabilities(tools=True, window_tokens=0, reasoning="drop", after_tool="user_ok")
CALL = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": '{"command":"ls"}'}}
HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "You are Bubbles."},
    {"role": "user", "content": 'what is here? 你好 "reasoning_content":'},
    {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "look first"},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    {"role": "assistant", "content": "a.txt"},
    {"role": "user", "content": "thanks"},
]
LINES = [context.encode(message) for message in HISTORY]
TOOLS = b'[{"type":"function","function":{"name":"exec","description":"","parameters":{"type":"object","properties":{}}}}]'


def can(**more: Any) -> Capabilities:
    return Capabilities(**{**PLAIN, **more})


def ask(**more: Any) -> Ask:
    return Ask("t.1", 'a "model"', LINES, **more)


def test_a_body_is_json_with_what_was_asked() -> None:
    made = json.loads(body(ask(tools=TOOLS, temperature=0.5, max_tokens=99), PLAIN, streamed=True))
    assert made == {
        "model": 'a "model"',
        "messages": [{k: v for k, v in m.items() if k != "reasoning_content"} for m in HISTORY],
        "tools": json.loads(TOOLS),
        "temperature": 0.5,
        "max_tokens": 99,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@given(st.lists(st.sampled_from(LINES), max_size=5), st.booleans(), st.sampled_from(["drop", "keep", "require"]))
def test_what_is_known_of_the_messages_makes_no_difference(lines: list[bytes], tools: bool, reasoning: str) -> None:
    known = frozenset(mark for mark in MARKS if any(mark in line for line in lines))
    asked, takes = Ask("t.1", "m", lines), can(tools=tools, reasoning=reasoning)
    held = Messages().grown(0, lines)
    assert body(replace(asked, messages=held, marks=known), takes, streamed=True) == body(asked, takes, streamed=True)


def test_without_tools_and_whole() -> None:
    made = json.loads(body(ask(), PLAIN, streamed=False))
    assert {"tools", "stream", "stream_options"} & set(made) == set()


def test_bytes_are_spliced_untouched() -> None:
    assert shaped(LINES, can(reasoning="keep")) is LINES
    kept = list(shaped(LINES, PLAIN))
    assert [a is b for a, b in zip(kept, LINES, strict=True)] == [True, True, False, True, True, True]
    assert b"look first" not in b"".join(kept)
    assert b'\\"reasoning_content\\"' in kept[1]


def test_a_model_without_tools_gets_words() -> None:
    made = json.loads(body(ask(tools=TOOLS), can(tools=False), streamed=False))
    assert "tools" not in made
    assert {m["role"] for m in made["messages"]} == {"system", "user", "assistant"}
    assert not context.check(made["messages"], "strict")


def test_a_model_that_wants_its_reasoning_back_gets_it() -> None:
    lines = [*LINES[:2], context.encode({"role": "assistant", "content": "", "tool_calls": [CALL]}), *LINES[3:]]
    made = [json.loads(line) for line in shaped(lines, can(reasoning="require"))]
    assert all(m.get("reasoning_content") for m in made if m.get("tool_calls"))
    assert shaped(LINES, can(reasoning="require")) is LINES


def test_a_model_that_wants_an_answer_after_a_result_gets_one() -> None:
    lines = [*LINES[:4], LINES[5]]
    made = [json.loads(line)["role"] for line in shaped(lines, can(after_tool="assistant_only"))]
    assert ("tool", "user") not in zip(made, made[1:], strict=False)
    assert shaped(lines, can(reasoning="keep")) is lines


def test_an_answer_cannot_be_longer_than_half_a_known_window() -> None:
    assert json.loads(body(ask(max_tokens=8192), can(window_tokens=8192), streamed=False))["max_tokens"] == 4096
    assert json.loads(body(ask(max_tokens=100), can(window_tokens=8192), streamed=False))["max_tokens"] == 100


@given(st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text()}), min_size=1, max_size=5), st.floats(0, 2), st.text())
def test_any_words_survive(messages: list[dict[str, str]], temperature: float, model: str) -> None:
    made = json.loads(body(Ask("t", model, [json.dumps(m).encode() for m in messages], b"", temperature), PLAIN, streamed=True))
    assert (made["messages"], made["temperature"], made["model"]) == (messages, temperature, model)
