"""OpenAI's Responses, driven by OpenAI's own client: what the server says is what the real one would say. (Chat completions: ../test_model.py.)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.start import FakeModel, vendor

openai = pytest.importorskip("openai", reason="openai is in the dev extra")

TOOLS = [{"type": "function", "name": "exec", "parameters": {"type": "object", "properties": {"command": {"type": "string"}}}, "strict": False}]
CALLS = [{"name": "exec", "arguments": {"command": "du -sh 'ä 木'"}, "id": "call_1"}, {"name": "exec", "arguments": "{}", "id": "call_2"}]


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with vendor("openai") as fake:
        yield fake


@pytest.fixture
def client(server: FakeModel) -> Iterator[Any]:
    with openai.OpenAI(base_url=server.url, api_key="k", max_retries=0, timeout=10) as made:
        yield made


def ask(client: Any, input: Any = "hi", *, stream: bool = False, **more: Any) -> Any:
    asked = {"model": "gpt-5", "input": input, **more}
    if not stream:
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as streamed:
        return streamed.get_final_response()


both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@both
def test_thoughts_words_and_tokens(server: FakeModel, client: Any, stream: bool) -> None:
    tokens = {"input": 100, "output": 20, "cached": 60, "reasoning": 5}
    server.play({"default": {"reply": "hello there", "reasoning": "a greeting", "tokens": tokens}})
    answer = ask(client, stream=stream)
    assert (answer.output_text, answer.status, answer.output[0].summary[0].text) == ("hello there", "completed", "a greeting")
    usage = answer.usage
    told = (usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens, usage.output_tokens_details.reasoning_tokens)
    assert told == (100, 60, 20, 5)


@both
def test_several_calls(server: FakeModel, client: Any, stream: bool) -> None:
    server.play({"default": {"calls": CALLS}})
    calls = ask(client, stream=stream, tools=TOOLS).output
    assert [(call.call_id, call.name) for call in calls] == [("call_1", "exec"), ("call_2", "exec")]
    assert [call.arguments for call in calls] == ['{"command": "du -sh \'ä 木\'"}', "{}"]


def test_reasoning_goes_back_with_its_calls(server: FakeModel, client: Any) -> None:
    server.play({"needs_reasoning": True, "rules": [{"when": "hi", "calls": CALLS, "reasoning": "let me look"}]})
    said = [item.model_dump(exclude_none=True) for item in ask(client, tools=TOOLS, include=["reasoning.encrypted_content"]).output]
    results = [{"type": "function_call_output", "call_id": call["id"], "output": "done"} for call in CALLS]
    hi = {"role": "user", "content": "hi"}
    assert ask(client, [hi, *said, *results], tools=TOOLS).output_text == "ok"
    with pytest.raises(openai.BadRequestError, match="reasoning"):
        ask(client, [hi, *said[1:], *results], tools=TOOLS)


@pytest.mark.parametrize(
    ("fault", "error", "code"),
    [
        ("limited", "RateLimitError", "rate_limit_exceeded"),
        ("server", "InternalServerError", None),
        ("bad_key", "AuthenticationError", "invalid_api_key"),
        ("no_model", "NotFoundError", "model_not_found"),
        ("too_long", "BadRequestError", "context_length_exceeded"),
        ("policy", "BadRequestError", "invalid_prompt"),
    ],
)
def test_errors_are_those_the_official_client_knows(server: FakeModel, client: Any, fault: str, error: str, code: str | None) -> None:
    server.play({"default": {"fault": fault}})
    with pytest.raises(getattr(openai, error)) as caught:
        ask(client)
    assert caught.value.code == code
    assert server.seen()["requests"] == 1


def test_streams_that_end_badly(server: FakeModel, client: Any) -> None:
    server.play({"default": {"reply": "one two", "fault": "too_long", "after": 4}})
    events = list(ask_events(client))
    assert (events[-1].type, events[-1].response.error.code) == ("response.failed", "context_length_exceeded")
    server.play({"default": {"reply": "one two", "cut": 4}})
    with pytest.raises(Exception, match="closed|Connection|peer"):
        list(ask_events(client))


def ask_events(client: Any) -> Any:
    return client.responses.create(model="gpt-5", input="hi", stream=True)


@both
def test_what_policy_takes_away_is_incomplete(server: FakeModel, client: Any, stream: bool) -> None:
    server.play({"default": {"reply": "I", "blocked": True}})
    answer = client.responses.create(model="gpt-5", input="hi") if not stream else list(ask_events(client))[-1].response
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "content_filter")


CALL = {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "done"}


@pytest.mark.parametrize(
    "change",
    [
        {"input": []},
        {"input": [{"role": "tool", "content": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]},
        {"input": [CALL]},
        {"input": [RESULT]},
        {"input": [{**CALL, "arguments": {}}, RESULT]},
        {"input": [{**CALL, "call_id": "c" * 65}, {**RESULT, "call_id": "c" * 65}]},
        {"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2lnbmVk"}, {"role": "user", "content": "x"}]},
        {"max_output_tokens": 1},
        {"temperature": 3},
        {"tools": [{"type": "function", "function": {"name": "exec"}}]},
        {"extra_body": {"colour": "blue"}},
    ],
)
def test_what_the_api_would_not_take_is_refused(server: FakeModel, client: Any, change: dict[str, Any]) -> None:
    server.play({})
    with pytest.raises(openai.BadRequestError):
        client.responses.create(**{"model": "gpt-5", "input": "hi", **change})
