"""Anthropic's server, driven by Anthropic's own client: what it says is what the real one would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, vendor

anthropic = pytest.importorskip("anthropic", reason="anthropic is in the dev extra")

HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"name": "exec", "description": "run", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}]
CALLS = [{"name": "exec", "arguments": {"command": "du -sh 'ä 木'"}, "id": "toolu_01"}, {"name": "exec", "arguments": {}, "id": "toolu_02"}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("anthropic") as fake:
        yield fake


@pytest.fixture
def client(server: FakeModel) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=server.url, api_key="k", max_retries=0, timeout=10) as made:
        yield made


def ask(client: Any, *, stream: bool = False, **more: Any) -> Any:
    asked = {"model": "claude", "max_tokens": 64, "messages": HI, **more}
    if not stream:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as streamed:
        return streamed.get_final_message()


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_thoughts_words_and_tokens(server: FakeModel, client: Any, stream: bool) -> None:
    tokens = {"input": 100, "output": 20, "cached": 60, "cache_write": 10}
    server.play({"default": {"reply": "hello there", "reasoning": "a greeting", "tokens": tokens}})
    message = ask(client, stream=stream)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert (message.content[0].thinking, message.content[1].text, message.stop_reason) == ("a greeting", "hello there", "end_turn")
    assert len(message.content[0].signature) > 200
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.output_tokens) == (30, 60, 10, 20)


@both
def test_several_calls(server: FakeModel, client: Any, stream: bool) -> None:
    server.play({"default": {"calls": CALLS}})
    message = ask(client, stream=stream, tools=TOOLS)
    assert [(block.id, block.name, block.input) for block in message.content] == [(c["id"], c["name"], c["arguments"]) for c in CALLS]
    assert message.stop_reason == "tool_use"


def test_thoughts_go_back_with_what_they_were_signed_with(server: FakeModel, client: Any) -> None:
    server.play({"needs_reasoning": True, "rules": [{"when": "hi", "calls": CALLS, "reasoning": "let me look"}]})
    said = [block.model_dump(exclude_none=True) for block in ask(client, tools=TOOLS).content]
    results = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "done"} for call in CALLS]}
    assert ask(client, tools=TOOLS, messages=[*HI, {"role": "assistant", "content": said}, results]).content[0].text == "ok"
    for wrong in (said[1:], [{**said[0], "signature": "c2lnbmVk"}, *said[1:]], [{**said[0], "thinking": "something else"}, *said[1:]]):
        with pytest.raises(anthropic.BadRequestError, match="thinking"):
            ask(client, tools=TOOLS, messages=[*HI, {"role": "assistant", "content": wrong}, results])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("limited", "RateLimitError"),
        ("server", "InternalServerError"),
        ("overloaded", "InternalServerError"),
        ("bad_key", "AuthenticationError"),
        ("forbidden", "PermissionDeniedError"),
        ("no_model", "NotFoundError"),
        ("too_long", "BadRequestError"),
        ("too_large", "RequestTooLargeError"),
        ("policy", "BadRequestError"),
    ],
)
def test_errors_are_those_the_official_client_knows(server: FakeModel, client: Any, fault: str, error: str) -> None:
    server.play({"default": {"fault": fault, "headers": {"Retry-After": "7"}}})
    with pytest.raises(getattr(anthropic, error, anthropic.APIStatusError)) as caught:
        ask(client)
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.body["type"] == "error"
    assert server.seen()["requests"] == 1


def test_streams_that_end_badly(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "one two", "fault": "overloaded", "after": 4}})
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        ask(client, stream=True)
    server.play({"default": {"reply": "one two", "cut": 4}})
    with pytest.raises(Exception, match="closed|Connection|peer"):
        ask(client, stream=True)
    for rule in ({"reply": "one two", "stall": 4}, {"never": True}):
        server.play({"default": rule})
        with pytest.raises(Exception, match=r"timed out|Timeout"):
            ask(client.with_options(timeout=0.3), stream=True)


def test_what_policy_takes_away_stops_with_a_refusal(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "I", "blocked": True}})
    assert {ask(client, stream=stream).stop_reason for stream in (False, True)} == {"refusal"}


USE = {"type": "tool_use", "id": "toolu_01", "name": "exec", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_01", "content": "done"}
SAID = {"role": "assistant", "content": "well"}


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": [SAID, *HI]},
        {"messages": [*HI, SAID]},
        {"messages": [{"role": "system", "content": "be"}, *HI]},
        {"messages": [{"role": "tool", "content": "be"}, *HI]},
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]},
        {"messages": [{"role": "user", "content": [RESULT]}]},
        {"messages": [*HI, {"role": "assistant", "content": [USE]}, *HI]},
        {"messages": [*HI, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [{"type": "text", "text": "x"}, RESULT]}]},
        {"messages": [*HI, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT, RESULT]}]},
        {"messages": [*HI, {"role": "assistant", "content": [USE, USE]}, {"role": "user", "content": [RESULT]}]},
        {"messages": [*HI, {"role": "assistant", "content": [{**USE, "id": "call|1"}]}, {"role": "user", "content": [RESULT]}]},
        {"messages": [*HI, {"role": "assistant", "content": [{**USE, "input": "{}"}]}, {"role": "user", "content": [RESULT]}]},
        {"system": [{"type": "text", "text": ""}]},
        {"max_tokens": 0},
        {"extra_body": {"temperature": 1.5}},
        {"extra_body": {"colour": "blue"}},
        {"tools": [{"name": "not a name", "input_schema": {"type": "object"}}]},
        {"tools": [{"name": "exec", "input_schema": {}}]},
        {"tools": [*TOOLS, *TOOLS]},
        {"tool_choice": {"type": "auto"}},
        {"thinking": {"type": "enabled", "budget_tokens": 32}},
        {"system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5},
    ],
)
def test_what_the_api_would_not_take_is_refused(server: FakeModel, client: Any, change: dict[str, Any]) -> None:
    server.play({})
    with pytest.raises(anthropic.BadRequestError):
        ask(client, **change)


def test_a_key_a_window_and_a_list(server: FakeModel) -> None:
    server.play({"key": "right", "window_tokens": 500, "models": ["claude"]})
    with anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as wrong, pytest.raises(anthropic.AuthenticationError):
        ask(wrong)
    with anthropic.Anthropic(base_url=server.url, api_key="right", max_retries=0) as right:
        assert ask(right).content[0].text == "ok"
        assert [model.id for model in right.models.list()] == ["claude"]
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            ask(right, messages=[{"role": "user", "content": "many words " * 1000}])
