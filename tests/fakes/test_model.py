"""The fake model, driven by OpenAI's own client where it is installed: what it says is what the real API would say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, model

openai = pytest.importorskip("openai", reason="openai is in the dev extra")

HI = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "exec", "description": "run", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}},
}
ORPHANED = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "x", "arguments": "{}"}}]}
CALLS = [{"name": "exec", "arguments": {"command": "du -sh 'ä ö'"}}, {"name": "exec", "arguments": {"command": "ls"}}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with model() as fake:
        yield fake


@pytest.fixture
def client(server: FakeModel) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0, timeout=10) as made:
        yield made


def test_a_reply_and_its_usage(server: FakeModel, client: Any) -> None:
    server.play({"rules": [{"when": "hi", "reply": "hello", "reasoning": "a greeting"}]})
    answer = client.chat.completions.create(model="fake", messages=HI)
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].message.reasoning_content == "a greeting"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert [m.id for m in client.models.list()] == ["fake"]


def test_a_stream_brings_the_text_then_the_usage(server: FakeModel, client: Any) -> None:
    server.play({"rules": [{"reply": "one two three four five six", "chunks": 6}]})
    chunks = list(client.chat.completions.create(model="fake", messages=HI, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two three four five six"
    assert sum(1 for c in chunks if c.choices and c.choices[0].delta.content) == 6
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens > 0


def test_several_calls_whole_and_in_fragments(server: FakeModel, client: Any) -> None:
    server.play({"default": {"calls": CALLS}})
    whole = client.chat.completions.create(model="fake", messages=HI, tools=[TOOL]).choices[0]
    assert [json.loads(c.function.arguments) for c in whole.message.tool_calls] == [c["arguments"] for c in CALLS]
    assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
    with client.chat.completions.stream(model="fake", messages=HI, tools=[TOOL]) as stream:
        streamed = stream.get_final_completion().choices[0].message.tool_calls
    assert [json.loads(c.function.arguments) for c in streamed] == [c["arguments"] for c in CALLS]
    assert len({c.id for c in streamed}) == 2


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, "RateLimitError"),
        ({"error": "insufficient_quota"}, "RateLimitError"),
        ({"status": 500}, "InternalServerError"),
        ({"status": 401}, "AuthenticationError"),
        ({"status": 403}, "PermissionDeniedError"),
        ({"status": 404}, "NotFoundError"),
        ({"error": "context_length_exceeded"}, "BadRequestError"),
        ({"error": "content_filter"}, "BadRequestError"),
    ],
)
def test_errors_are_those_the_official_client_knows(server: FakeModel, client: Any, rule: dict[str, Any], error: str) -> None:
    server.play({"default": rule})
    with pytest.raises(getattr(openai, error)) as caught:
        client.chat.completions.create(model="fake", messages=HI)
    if "error" in rule:
        assert caught.value.code == rule["error"]
    if "headers" in rule:
        assert caught.value.response.headers["retry-after"] == "7"
    assert server.seen()["requests"] == 1


def test_a_rule_answers_as_often_as_it_may(server: FakeModel, client: Any) -> None:
    server.play(
        {"rules": [{"when": "hi", "reply": "first", "times": 1}, {"when": "bye", "reply": "bye"}], "default": {"reply": "you said: ", "echo": True}}
    )
    said = [client.chat.completions.create(model="fake", messages=HI).choices[0].message.content for _ in range(2)]
    assert said == ["first", "you said: hi"]
    assert [b["messages"][-1]["content"] for b in server.seen()["bodies"]] == ["hi", "hi"]


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_connection_is_cut(server: FakeModel, client: Any, cut: int) -> None:
    server.play({"default": {"reply": "one two three four", "cut": cut}})
    with pytest.raises(Exception, match="closed|Connection"):
        list(client.chat.completions.create(model="fake", messages=HI, stream=True))


def test_a_stream_that_fails_in_the_middle(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "one two", "fail": {"message": "overloaded", "type": "server_error", "code": 500}}})
    with pytest.raises(openai.APIError, match="overloaded"):
        list(client.chat.completions.create(model="fake", messages=HI, stream=True))


def test_an_endless_stream_ends_when_the_client_hangs_up(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "on and on ", "endless": True}})
    with client.chat.completions.create(model="fake", messages=HI, stream=True) as stream:
        for n, _ in enumerate(stream):
            if n == 20:
                break
    client.close()
    for _ in range(200):
        if server.seen()["aborted"] == 1:
            break
    assert (server.seen()["aborted"], server.seen()["open"]) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [*HI, {"role": "tool", "tool_call_id": "c1", "content": "orphan"}]},
        {"messages": [*HI, ORPHANED]},
        {"tools": []},
        {"tools": [{"type": "function", "function": {"name": "not a name"}}]},
        {"tool_choice": "auto"},
        {"stream_options": {"include_usage": True}},
        {"max_tokens": 0},
        {"temperature": 3},
        {"extra_body": {"colour": "blue"}},
    ],
)
def test_a_body_that_the_api_would_not_take_is_refused(server: FakeModel, client: Any, change: dict[str, Any]) -> None:
    server.play({})
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(**{"model": "fake", "messages": HI, **change})


def test_a_key_and_a_window_are_held_to(server: FakeModel) -> None:
    server.play({"key": "right", "window_tokens": 500})
    with openai.OpenAI(base_url=server.url, api_key="wrong", max_retries=0) as wrong, pytest.raises(openai.AuthenticationError):
        wrong.chat.completions.create(model="fake", messages=HI)
    with openai.OpenAI(base_url=server.url, api_key="right", max_retries=0) as right:
        assert right.chat.completions.create(model="fake", messages=HI).choices[0].message.content == "ok"
        with pytest.raises(openai.BadRequestError, match="maximum context length"):
            right.chat.completions.create(model="fake", messages=[{"role": "user", "content": "many words " * 1000}])
