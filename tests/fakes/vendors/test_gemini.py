"""Gemini's server, driven by Google's own client: what it says is what the real one would say."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, vendor

genai = pytest.importorskip("google.genai", reason="google-genai is in the dev extra")
from google.genai import errors, types  # noqa: E402

HI = [{"role": "user", "parts": [{"text": "hi"}]}]
DECLARED = {"name": "exec", "description": "run", "parameters": {"type": "OBJECT", "properties": {"command": {"type": "STRING"}}}}
CALLS = [{"name": "exec", "arguments": {"command": "du -sh 'ä 木'"}}, {"name": "exec", "arguments": {}}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("gemini") as fake:
        yield fake


@pytest.fixture(scope="module")
def client(server: FakeModel) -> Any:
    once = types.HttpRetryOptions(attempts=1)
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=server.url, retry_options=once, timeout=10_000))


def config(*, tools: bool = False, **more: Any) -> dict[str, Any]:
    given = {"tools": [{"function_declarations": [DECLARED]}], "automatic_function_calling": {"disable": True}} if tools else {}
    return {**given, **more}


def ask(client: Any, contents: Any = None, **more: Any) -> Any:
    return client.models.generate_content(model="gemini-3", contents=contents or HI, config=config(**more))


def ask_streamed(client: Any, contents: Any = None, **more: Any) -> tuple[list[Any], Any]:
    """The parts, and the last chunk."""
    chunks = list(client.models.generate_content_stream(model="gemini-3", contents=contents or HI, config=config(**more)))
    return [part for chunk in chunks for part in (chunk.candidates[0].content.parts if chunk.candidates else None) or []], chunks[-1]


def test_thoughts_words_and_tokens(server: FakeModel, client: Any) -> None:
    tokens = {"input": 100, "output": 20, "cached": 60, "reasoning": 5}
    server.play({"default": {"reply": "hello there", "reasoning": "a greeting", "tokens": tokens}})
    whole = ask(client)
    parts, last = ask_streamed(client)
    assert whole.text == "".join(part.text for part in parts if not part.thought) == "hello there"
    assert whole.candidates[0].content.parts[0].text == "".join(part.text for part in parts if part.thought) == "a greeting"
    for one in (whole, last):
        usage = one.usage_metadata
        assert (usage.prompt_token_count, usage.cached_content_token_count) == (100, 60)
        assert (usage.candidates_token_count, usage.thoughts_token_count) == (15, 5)
        assert (one.candidates[0].finish_reason, one.model_version) == (types.FinishReason.STOP, "gemini-3")


def test_several_calls(server: FakeModel, client: Any) -> None:
    server.play({"default": {"calls": CALLS, "reasoning": "look"}})
    found = [part.function_call for part in ask_streamed(client, tools=True)[0] if part.function_call]
    for calls in (found, ask(client, tools=True).function_calls):
        assert [(call.name, call.args) for call in calls] == [(call["name"], call["arguments"]) for call in CALLS]


def test_the_first_call_brings_back_what_it_was_signed_with(server: FakeModel, client: Any) -> None:
    server.play({"needs_reasoning": True, "rules": [{"when": "hi", "calls": CALLS, "reasoning": "let me look"}]})
    said = ask(client, tools=True).candidates[0].content
    results = {"role": "user", "parts": [{"function_response": {"name": "exec", "response": {"output": "done"}}}] * 2}
    assert ask(client, [*HI, said, results], tools=True).text == "ok"
    unsigned = {"role": "model", "parts": [{"function_call": {"name": call["name"], "args": call["arguments"]}} for call in CALLS]}
    with pytest.raises(errors.ClientError, match="missing a thought_signature"):
        ask(client, [*HI, unsigned, results], tools=True)


@pytest.mark.parametrize(
    ("fault", "code", "status"),
    [
        ("limited", 429, "RESOURCE_EXHAUSTED"),
        ("server", 500, "INTERNAL"),
        ("overloaded", 503, "UNAVAILABLE"),
        ("bad_key", 400, "INVALID_ARGUMENT"),
        ("forbidden", 403, "PERMISSION_DENIED"),
        ("no_model", 404, "NOT_FOUND"),
        ("too_long", 400, "INVALID_ARGUMENT"),
    ],
)
def test_errors_are_those_the_official_client_knows(server: FakeModel, client: Any, fault: str, code: int, status: str) -> None:
    server.play({"default": {"fault": fault}})
    for do in (ask, ask_streamed):
        with pytest.raises(errors.APIError) as caught:
            do(client)
        assert (caught.value.code, caught.value.status) == (code, status)
    assert server.seen()["requests"] == 2


def test_streams_that_end_badly(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "one two", "fault": "overloaded", "after": 1}})
    with pytest.raises(errors.APIError, match="overloaded"):
        ask_streamed(client)
    server.play({"default": {"reply": "one two", "cut": 1}})
    with pytest.raises(Exception, match="closed|Connection|peer"):
        ask_streamed(client)


def test_what_policy_takes_away(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "I", "blocked": True}})
    assert ask(client).candidates[0].finish_reason == ask_streamed(client)[1].candidates[0].finish_reason == types.FinishReason.SAFETY
    server.play({"default": {"fault": "policy"}})
    for one in (ask(client), ask_streamed(client)[1]):
        assert one.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT
        assert not one.candidates


def test_without_alt_sse_a_stream_is_an_array_that_grows(server: FakeModel) -> None:
    url = f"{server.url}/v1beta/models/gemini-3:streamGenerateContent?key=k"

    def read() -> list[Any]:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps({"contents": HI}).encode()), timeout=10) as response:
            found: list[Any] = json.loads(response.read())
            return found

    server.play({"default": {"reply": "one two three", "chunks": 3, "calls": CALLS}})
    parts = [part for one in read() for part in one["candidates"][0]["content"]["parts"]]
    assert "".join(part.get("text", "") for part in parts) == "one two three"
    assert [part["functionCall"]["args"] for part in parts if "functionCall" in part] == [call["arguments"] for call in CALLS]
    server.play({"default": {"reply": "one two", "fault": "server", "after": 1}})
    assert "error" in read()[-1]


CALL, RESULT = {"functionCall": {"name": "exec", "args": {}}}, {"functionResponse": {"name": "exec", "response": {"output": "done"}}}
WRONG = {"functionResponse": {"name": "exec", "response": "done"}}
SAID = {"role": "model", "parts": [{"text": "well"}]}


def declared(**change: Any) -> dict[str, Any]:
    return {"tools": [{"functionDeclarations": [{**DECLARED, **change}]}]}


@pytest.mark.parametrize(
    "change",
    [
        {"contents": []},
        {"contents": [*HI, SAID]},
        {"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]},
        {"contents": [{"role": "user", "parts": []}]},
        {"contents": [{"role": "user", "parts": [{"text": ""}]}]},
        {"contents": [{"role": "user", "parts": [{"text": "x", "functionCall": {}}]}]},
        {"contents": [{"role": "user", "parts": [RESULT]}]},
        {"contents": [*HI, {"role": "model", "parts": [CALL]}, *HI]},
        {"contents": [*HI, {"role": "model", "parts": [CALL, CALL]}, {"role": "user", "parts": [RESULT]}]},
        {"contents": [*HI, SAID, {"role": "model", "parts": [CALL]}, {"role": "user", "parts": [RESULT]}]},
        {"contents": [*HI, {"role": "model", "parts": [CALL]}, {"role": "user", "parts": [WRONG]}]},
        {"generationConfig": {"temperature": 3}},
        {"generationConfig": {"maxOutputTokens": 0}},
        {"generationConfig": {"colour": "blue"}},
        {"colour": "blue"},
        declared(name="not a name"),
        declared(parameters={"type": "OBJECT", "properties": {}}),
        declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "ARRAY"}}}),
        declared(parameters={"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "additionalProperties": False}),
    ],
)
def test_what_the_api_would_not_take_is_refused(server: FakeModel, change: dict[str, Any]) -> None:
    server.play({})
    request = urllib.request.Request(f"{server.url}/v1beta/models/gemini-3:generateContent", json.dumps({"contents": HI, **change}).encode())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)
    assert json.loads(refused.value.read())["error"]["status"] == "INVALID_ARGUMENT"
    refused.value.close()


def test_a_key_and_a_list(server: FakeModel, client: Any) -> None:
    server.play({"key": "k", "models": ["gemini-3"]})
    assert ask(client).text == "ok"
    assert [model.name for model in client.models.list()] == ["models/gemini-3"]
    server.play({"key": "another"})
    with pytest.raises(errors.ClientError, match="API key not valid"):
        ask(client)
