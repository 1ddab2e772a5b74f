"""The HTTP client against the fake model: answers, every failure's kind, and that one ask is one request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bubbles.config.providers import Traits
from bubbles.errors import ContextTooLong, ModelDown, ModelError, NotAuthorized, RateLimited, Rejected
from bubbles.providers.custom import Custom
from bubbles.providers.provider import Answer, Ask
from tests.fakes.start import FakeModel, model

HI = [b'{"role":"user","content":"hi"}']
TOOLS = b'[{"type":"function","function":{"name":"exec","description":"","parameters":{"type":"object","properties":{}}}}]'
TEXT = "one two three four five six seven eight"


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with model() as fake:
        yield fake


@asynccontextmanager
async def endpoint(url: str, **more: Any) -> AsyncIterator[Custom]:
    made = Custom("custom", url, **more)
    try:
        yield made
    finally:
        await made.close()


def one(url: str, on_text: Callable[[str], None] | None = None, *, timeout_s: float = 20.0, tools: bytes = b"", **more: Any) -> Answer:
    async def run() -> Answer:
        async with endpoint(url, **more) as made:
            return await made.ask(Ask("t.1", "fake", HI, tools, timeout_s=timeout_s), on_text)

    return asyncio.run(run())


both = pytest.mark.parametrize("on_text", [None, lambda text: None], ids=["whole", "streamed"])
On = Callable[[str], None] | None


@both
def test_an_answer(server: FakeModel, on_text: On) -> None:
    server.play({"default": {"reply": TEXT, "reasoning": "count", "usage": {"prompt_tokens": 9, "completion_tokens": 8}}})
    answer = one(server.url, on_text)
    assert (answer.text, answer.reasoning, answer.stop, answer.model) == (TEXT, "count", "stop", "fake")
    assert (answer.usage["input"], answer.usage["output"]) == (9, 8)
    assert server.seen()["requests"] == 1


def test_the_text_comes_as_it_is_said(server: FakeModel) -> None:
    server.play({"default": {"reply": TEXT, "chunks": 5}})
    heard: list[str] = []
    assert one(server.url, heard.append).text == "".join(heard) == TEXT
    assert len(heard) == 5


@both
def test_several_calls(server: FakeModel, on_text: On) -> None:
    calls = [{"name": "exec", "arguments": {"command": "ls 'ä'"}}, {"name": "exec", "arguments": {}}]
    server.play({"default": {"calls": calls}})
    answer = one(server.url, on_text, tools=TOOLS)
    assert [(c["name"], json.loads(c["arguments"])) for c in answer.calls] == [(c["name"], c["arguments"]) for c in calls]
    assert (answer.text, answer.stop) == ("", "tool_calls")
    assert server.seen()["bodies"][0]["tools"] == json.loads(TOOLS)


@both
@pytest.mark.parametrize(
    "rule",
    [
        {"calls": [{"name": "exec", "arguments": {"a": 1}, "id": None}]},
        {"calls": [{"name": "exec", "arguments": {"a": 1}}], "object_arguments": True},
    ],
)
def test_calls_in_other_shapes(server: FakeModel, on_text: On, rule: dict[str, Any]) -> None:
    server.play({"default": rule})
    (call,) = one(server.url, on_text, tools=TOOLS).calls
    assert call["id"]
    assert json.loads(call["arguments"]) == {"a": 1}


@both
def test_no_content_is_no_text(server: FakeModel, on_text: On) -> None:
    server.play({"default": {"reply": None}})
    assert one(server.url, on_text) == Answer("", (), "", one(server.url, on_text).usage, "stop", "fake")


@both
def test_a_huge_answer_arrives(server: FakeModel, on_text: On) -> None:
    server.play({"default": {"huge": 5_000_000}})
    assert len(one(server.url, on_text).text) == 5_000_000


@both
def test_one_that_stopped_for_its_length_says_so(server: FakeModel, on_text: On) -> None:
    server.play({"default": {"reply": "half a", "finish": "length"}})
    assert one(server.url, on_text).stop == "length"


FAILURES: list[tuple[dict[str, Any], type[ModelError]]] = [
    ({"status": 429, "headers": {"Retry-After": "7"}}, RateLimited),
    ({"error": "insufficient_quota"}, NotAuthorized),
    ({"status": 401}, NotAuthorized),
    ({"status": 403}, NotAuthorized),
    ({"status": 400}, Rejected),
    ({"status": 404}, Rejected),
    ({"status": 422}, Rejected),
    ({"status": 413}, ContextTooLong),
    ({"error": "context_length_exceeded"}, ContextTooLong),
    ({"error": "content_filter"}, Rejected),
    ({"status": 500}, ModelDown),
    ({"status": 503, "body": "<html>no</html>", "headers": {"Retry-After": "7"}}, ModelDown),
    ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}, "body": "moved"}, Rejected),
    ({"body": "<html><title>Welcome to nginx</title></html>"}, Rejected),
    ({"body": {"error": {"message": "slow down", "code": 429}}}, RateLimited),
    ({"body": {"choices": []}}, ModelDown),
    ({"reply": "x", "finish": "content_filter"}, Rejected),
    ({"cut": 0}, ModelDown),
    ({"reply": TEXT, "cut": 3}, ModelDown),
]


@both
@pytest.mark.parametrize(("rule", "kind"), FAILURES, ids=[json.dumps(rule)[:60] for rule, _ in FAILURES])
def test_a_failure_is_of_its_kind_and_asked_once(server: FakeModel, on_text: On, rule: dict[str, Any], kind: type[ModelError]) -> None:
    server.play({"default": rule})
    with pytest.raises(ModelError) as failed:
        one(server.url, on_text)
    assert type(failed.value) is kind, failed.value.text
    if isinstance(failed.value, RateLimited) and "headers" in rule:
        assert failed.value.retry_after_s == 7
    assert server.seen()["requests"] == 1


def test_an_error_in_the_middle_of_a_stream(server: FakeModel) -> None:
    server.play({"default": {"reply": TEXT, "fail": {"message": "exceeds the available context size", "code": 400}, "after": 3}})
    with pytest.raises(ContextTooLong):
        one(server.url, lambda text: None)


@both
def test_silence_is_not_waited_for_longer_than_the_timeout(server: FakeModel, on_text: On) -> None:
    server.play({"default": {"delay_s": 30}})
    with pytest.raises(ModelDown, match=r"no answer from 127\.0\.0\.1:\d+ in 0\.2 s"):
        one(server.url, on_text, timeout_s=0.2)


def test_a_slow_stream_is_no_silence(server: FakeModel) -> None:
    server.play({"default": {"reply": TEXT, "chunks": 12, "pause_s": 0.1}})
    assert one(server.url, lambda text: None, timeout_s=0.5).text == TEXT


def test_an_endless_stream_ends_all_the_same(server: FakeModel) -> None:
    server.play({"default": {"reply": "on and on ", "endless": True}})
    with pytest.raises(ModelDown):
        one(server.url, lambda text: None, timeout_s=0.1)
    assert server.seen()["open"] == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"])
def test_nobody_there(url: str) -> None:
    with pytest.raises(ModelDown):
        one(url)


def test_a_page_where_the_api_should_be(server: FakeModel) -> None:
    with pytest.raises(Rejected) as refused:
        one(server.url.removesuffix("/v1"))
    assert "base_url" in refused.value.remedy


def test_key_and_headers_go_out_and_nothing_else_of_us(server: FakeModel) -> None:
    server.play({"key": "sk-right-0123456789"})
    one(server.url, api_key="sk-right-0123456789", headers={"X-Team": "7"})
    headers = server.seen()["headers"][0]
    assert (headers["authorization"], headers["x-team"]) == ("Bearer sk-right-0123456789", "7")
    with pytest.raises(NotAuthorized) as refused:
        one(server.url, api_key="sk-wrong-0123456789")
    assert "sk-" not in refused.value.text


def test_cancelled_the_request_is_dropped(server: FakeModel) -> None:
    server.play({"default": {"reply": "on and on ", "endless": True}})

    async def run() -> None:
        async with endpoint(server.url) as made:
            heard = asyncio.Event()
            task = asyncio.create_task(made.ask(Ask("t.1", "fake", HI), lambda text: heard.set()))
            await heard.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert (server.seen()["aborted"], server.seen()["open"]) == (1, 0)


def test_fifty_at_once(server: FakeModel) -> None:
    server.play({"default": {"reply": "you said ", "echo": True, "delay_s": 0.05}})

    async def run() -> list[Answer]:
        async with endpoint(server.url) as made:
            asks = (Ask(f"t.{n}", "fake", [b'{"role":"user","content":"%d"}' % n]) for n in range(50))
            return await asyncio.gather(*(made.ask(ask, lambda text: None) for ask in asks))

    assert [answer.text for answer in asyncio.run(run())] == [f"you said {n}" for n in range(50)]
    assert server.seen()["requests"] == 50


def test_a_connection_is_used_again(server: FakeModel) -> None:
    server.play({})

    async def run() -> None:
        async with endpoint(server.url) as made:
            for n in range(6):
                await made.ask(Ask(f"t.{n}", "fake", HI), (lambda text: None) if n % 2 else None)

    asyncio.run(run())
    assert server.seen()["connections"] == 1


def test_a_refusal_leaves_the_connection_as_it_was(server: FakeModel) -> None:
    server.play({"rules": [{"status": 500, "times": 1}]})

    async def run() -> None:
        async with endpoint(server.url) as made:
            with pytest.raises(ModelDown):
                await made.ask(Ask("t.0", "fake", HI), None)
            assert (await made.ask(Ask("t.1", "fake", HI), None)).text == "ok"

    asyncio.run(run())
    assert server.seen()["connections"] == 1


def test_one_that_cannot_stream_is_asked_for_whole_answers(server: FakeModel) -> None:
    refusal = {"status": 400, "body": {"error": {"message": "'stream' is not supported by this model"}}, "times": 1}
    server.play({"rules": [refusal], "default": {"reply": "whole"}})

    async def run() -> list[str]:
        async with endpoint(server.url) as made:
            heard: list[str] = []
            with pytest.raises(ModelDown, match="does not stream"):
                await made.ask(Ask("t.1", "fake", HI), heard.append)
            await made.ask(Ask("t.1", "fake", HI), heard.append)
            return heard

    assert asyncio.run(run()) == ["whole"]
    assert [body.get("stream", False) for body in server.seen()["bodies"]] == [True, False]


def test_traits_and_what_the_endpoint_says(server: FakeModel) -> None:
    listed = [{"id": "fake", "max_model_len": 4096}, {"id": "llama", "meta": {"n_ctx": 2048}}, {"id": "other"}]
    server.play({"models": listed})

    async def run() -> None:
        traits = {"mine": Traits(tools=False, context_tokens=1000, reasoning="keep"), "fake": Traits(tools=False)}
        async with endpoint(server.url, models=traits) as made:
            assert made.capabilities("fake")["window_tokens"] == 0
            await made.learn("fake")
            windows = {name: made.capabilities(name)["window_tokens"] for name in ("fake", "llama", "other", "mine")}
            assert windows == {"fake": 4096, "llama": 2048, "other": 0, "mine": 1000}
            found = made.capabilities("mine")
            assert (found["tools"], found["reasoning"], found["after_tool"], found["vision"]) == (False, "keep", "user_ok", False)
            assert await made.models() == ["mine", "fake", "llama", "other"]

    asyncio.run(run())


def test_what_cannot_be_learnt_stays_unknown() -> None:
    async def run() -> int:
        async with endpoint("http://127.0.0.1:1/v1") as made:
            await made.learn("fake")
            return made.capabilities("fake")["window_tokens"]

    assert asyncio.run(run()) == 0
