"""Ollama's server, driven by Ollama's own client, and by OpenAI's at its /v1: what it says is what the real one would say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, vendor

ollama = pytest.importorskip("ollama", reason="ollama is in the dev extra")
openai = pytest.importorskip("openai", reason="openai is in the dev extra")

HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": "exec", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}}}]
CALLS = [{"name": "exec", "arguments": {"command": "du -sh 'ä 木'"}}, {"name": "exec", "arguments": {}}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("ollama") as fake:
        yield fake


@pytest.fixture(scope="module")
def client(server: FakeModel) -> Any:
    return ollama.Client(host=server.url, timeout=10)


def streamed(client: Any, **more: Any) -> list[Any]:
    return list(client.chat(model="llama", messages=HI, stream=True, **more))


def test_thoughts_words_and_tokens(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "hello there", "reasoning": "a greeting", "tokens": {"input": 100, "output": 20}}})
    whole, lines = client.chat(model="llama", messages=HI), streamed(client)
    assert whole.message.content == "".join(line.message.content for line in lines) == "hello there"
    assert whole.message.thinking == "".join(line.message.thinking or "" for line in lines) == "a greeting"
    for last in (whole, lines[-1]):
        assert (last.done, last.done_reason, last.prompt_eval_count, last.eval_count) == (True, "stop", 100, 20)


def test_several_calls(server: FakeModel, client: Any) -> None:
    server.play({"default": {"calls": CALLS}})
    found = [call for line in streamed(client, tools=TOOLS) for call in line.message.tool_calls or []]
    for calls in (found, client.chat(model="llama", messages=HI, tools=TOOLS).message.tool_calls):
        assert [(call.function.name, call.function.arguments) for call in calls] == [(call["name"], call["arguments"]) for call in CALLS]
    said = {"role": "assistant", "content": "", "tool_calls": [{"function": call} for call in CALLS]}
    server.play({})
    results = [{"role": "tool", "tool_name": "exec", "content": "done"}] * 2
    assert client.chat(model="llama", messages=[*HI, said, *results]).message.content == "ok"


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("no_model", 404, "not found"),
        ("too_long", 400, "context length"),
        ("server", 500, "terminated"),
        ("unavailable", 503, "busy"),
        ("limited", 429, "usage limit"),
    ],
)
def test_errors_are_those_the_official_client_knows(server: FakeModel, client: Any, fault: str, status: int, words: str) -> None:
    server.play({"default": {"fault": fault}})
    with pytest.raises(ollama.ResponseError, match=words) as caught:
        client.chat(model="llama", messages=HI)
    assert caught.value.status_code == status
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as other, pytest.raises(openai.APIStatusError, match=words) as caught:
        other.chat.completions.create(model="llama", messages=HI)
    assert caught.value.status_code == status
    assert server.seen()["requests"] == 2


def test_streams_that_end_badly(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "one two", "fault": "server", "after": 1}})
    with pytest.raises(ollama.ResponseError, match="terminated"):
        streamed(client)
    server.play({"default": {"reply": "one two", "cut": 1}})
    with pytest.raises(Exception, match="closed|Connection|peer"):
        streamed(client)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "model", "content": "x"}],
        [*HI, {"role": "tool", "content": "done"}],
        [*HI, {"role": "assistant", "tool_calls": [{"function": {"name": "exec", "arguments": {}}}]}, *[{"role": "tool", "content": "done"}] * 2],
    ],
)
def test_what_the_api_would_not_take_is_refused(server: FakeModel, client: Any, messages: list[Any]) -> None:
    server.play({})
    with pytest.raises(ollama.ResponseError) as caught:
        client.chat(model="llama", messages=messages)
    assert caught.value.status_code == 400


def test_what_it_has_and_what_that_can_do(server: FakeModel, client: Any) -> None:
    server.play({"models": ["llama"], "window_tokens": 4096})
    assert [model.model for model in client.list().models] == ["llama"]
    assert client.show("llama").modelinfo["llama.context_length"] == 4096
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0) as other:
        assert [model.id for model in other.models.list()] == ["llama"]
        assert other.chat.completions.create(model="llama", messages=HI).choices[0].message.content == "ok"
