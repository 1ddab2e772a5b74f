"""The operations of the models' door against the fake model: joining, keeping, dropping, by reference; time by a clock of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bubbles.config import load
from bubbles.errors import ContextTooLong, ModelDown, NeedBase, NotAuthorized, ProtocolError, RateLimited, Rejected, Unavailable
from bubbles.paths import Home
from bubbles.providers.provider import Answer, Ask, Capabilities
from bubbles.providers.retry import Clock
from bubbles.providers.service import KEPT_S, UNWANTED_S, Service
from tests.fakes.start import FakeModel, model

HI = b'{"role":"user","content":"hi"}'
TEXT = "one two three four five six seven eight"
KEPT = 5
TOOLS = b'[{"type":"function","function":{"name":"exec","description":"","parameters":{"type":"object","properties":{}}}}]'


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with model() as fake:
        yield fake


class Asked:
    """A request as the door hands it over; it keeps its parts and tells of the first."""

    def __init__(self, body: dict[str, Any], *blobs: bytes) -> None:
        self.body, self.blobs = body, list(blobs)
        self.parts: list[dict[str, Any]] = []
        self.at: list[float] = []
        self.told = asyncio.Event()

    def part(self, part: dict[str, Any]) -> None:
        self.parts.append(part)
        self.at.append(asyncio.get_running_loop().time())
        self.told.set()

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self.parts)


def asks(id: str, *lines: bytes, base: str = "", keep: int = 0, stream: bool = False, tools: str = "", schemas: bytes = b"", **more: Any) -> Asked:
    body = {"ask": id, "model": "fake", "provider": "custom", "temperature": 0.7, "max_tokens": 64, "stream": stream}
    return Asked({**body, "base": base, "keep": keep, "tools": tools, **more}, b"\n".join(lines), schemas)


class Hands:
    """A service on a clock that the test turns, and whose pauses take no time but are noted."""

    def __init__(self, home: Home, server: FakeModel, **defaults: Any) -> None:
        providers = {"custom": {"base_url": server.url, "api_key": "sk-0123456789"}}
        home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": {"model": "fake", **defaults}}, "providers": providers}))
        home.config.chmod(0o600)
        self.now = 1000.0
        self.slept: list[float] = []
        self.service = Service(load(home, "agents", "providers"), home, clock=Clock(lambda: self.now, self.sleep, lambda: 0.5), kept_most=KEPT)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.service.sweep()


@asynccontextmanager
async def hands(home: Home, server: FakeModel, **defaults: Any) -> AsyncIterator[Hands]:
    made = Hands(home, server, **defaults)
    try:
        yield made
    finally:
        await made.service.close()


Case = Callable[[Hands], Any]


@pytest.fixture
def run(home: Home, server: FakeModel) -> Callable[..., Any]:
    """Run a case, a coroutine function of Hands, while the fake model plays a script."""

    def run(case: Case, script: dict[str, Any] | None = None, **defaults: Any) -> Any:
        async def whole() -> Any:
            server.play(script or {"default": {"reply": TEXT}})
            async with hands(home, server, **defaults) as made:
                return await case(made)

        return asyncio.run(whole())

    return run


def test_an_answer_with_everything_that_was_promised(run: Any, server: FakeModel) -> None:
    script = {
        "default": {
            "reply": "look",
            "calls": [{"name": "exec", "arguments": {"a": 1}, "id": "c1"}],
            "reasoning": "why",
            "usage": {"prompt_tokens": 3},
        }
    }
    answer = run(lambda h: h.service.ask(asks("t.1", HI, tools="x", schemas=TOOLS)), script)
    calls = [{"id": "c1", "name": "exec", "arguments": '{"a": 1}'}]
    told = {"text": "look", "calls": calls, "reasoning": "why", "usage": {"input": 3, "cached": 0}, "stop": "tool_calls"}
    assert answer == {**told, "model": "fake", "provider": "custom", "attempts": 1}
    body = server.seen()["bodies"][0]
    assert (body["temperature"], body["max_tokens"], body["model"], body["tools"]) == (0.7, 64, "fake", json.loads(TOOLS))


# -- joining and keeping


def test_the_same_ask_is_one_request(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> list[Any]:
        return await asyncio.gather(*(h.service.ask(asks("t.1", HI)) for _ in range(5)), h.service.ask(Asked({"ask": "t.1"})))

    answers = run(case, {"default": {"reply": TEXT, "delay_s": 0.1}})
    assert [a["text"] for a in answers] == [TEXT] * 6
    assert server.seen()["requests"] == 1


def test_an_answer_is_kept_for_a_minute(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        first = await h.service.ask(asks("t.1", HI))
        h.later(KEPT_S - 1)
        assert await h.service.ask(Asked({"ask": "t.1"})) == first
        h.later(2)
        with pytest.raises(NeedBase):
            await h.service.ask(Asked({"ask": "t.1"}))
        await h.service.ask(asks("t.1", HI))

    run(case)
    assert server.seen()["requests"] == 2


def test_no_more_are_kept_than_there_is_room_for(run: Any) -> None:
    async def case(h: Hands) -> dict[str, Any]:
        for n in range(9):
            with pytest.raises(Rejected):
                await h.service.ask(asks(f"t.{n}", HI))
        return await h.service.status(Asked({}))

    assert run(case, {"default": {"status": 400}})["kept"] == KEPT


def test_a_failure_is_kept_as_well(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        for _ in range(3):
            with pytest.raises(NotAuthorized) as failed:
                await h.service.ask(asks("t.1", HI))
            assert failed.value.attempts == 1

    run(case, {"default": {"status": 401}})
    assert server.seen()["requests"] == 1


def test_one_that_nobody_repeats_is_dropped(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        heard = asks("t.1", HI, stream=True)
        waiting = asyncio.create_task(h.service.ask(heard))
        await heard.told.wait()
        h.later(UNWANTED_S - 1)
        assert (await h.service.keep(Asked({"ask": "t.1"}))) == {"known": True}
        h.later(UNWANTED_S - 1)
        repeated = asyncio.create_task(h.service.ask(Asked({"ask": "t.1"})))
        await asyncio.sleep(0)
        h.later(UNWANTED_S - 1)
        assert not waiting.done()
        h.later(1)
        for task in (waiting, repeated):
            with pytest.raises(Unavailable):
                await task
        assert (await h.service.keep(Asked({"ask": "t.1"}))) == {"known": False}

    run(case, {"default": {"reply": "on and on ", "endless": True}})
    assert (server.seen()["open"], server.seen()["aborted"]) == (0, 1)


def test_cancel_drops_the_request_and_its_memory(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        heard = asks("t.1", HI, stream=True)
        waiting = asyncio.create_task(h.service.ask(heard))
        await heard.told.wait()
        assert h.service.busy
        assert await h.service.cancel(Asked({"ask": "t.1"})) == {"cancelled": True}
        with pytest.raises(Unavailable):
            await waiting
        assert not h.service.busy
        assert await h.service.cancel(Asked({"ask": "t.1"})) == {"cancelled": False}
        server.play({})
        assert (await h.service.ask(asks("t.1", HI)))["text"] == "ok"

    run(case, {"default": {"reply": "on and on ", "endless": True}})
    assert server.seen()["requests"] == 1


def test_a_waiter_that_ends_takes_nothing_along(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        first = asyncio.create_task(h.service.ask(asks("t.1", HI)))
        await asyncio.sleep(0.05)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await h.service.ask(Asked({"ask": "t.1"})))["text"] == TEXT

    run(case, {"default": {"reply": TEXT, "delay_s": 0.2}})
    assert server.seen()["requests"] == 1


# -- a provider that does not let go


class Stubborn:
    """A provider whose library takes no notice of being cancelled: it goes on until the test lets it end, or makes of it a failure of its own."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.asked: list[str] = []
        self.running = self.most = 0
        self.may_end = asyncio.Event()
        self.began = asyncio.Event()

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        self.asked.append(ask.id)
        self.running += 1
        self.most = max(self.most, self.running)
        self.began.set()
        assert on_text
        on_text(f"begun {ask.id} ")
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                on_text("after the end ")
                if self.fails:
                    self.running -= 1
                    raise ModelDown("the connection was closed") from None
        on_text("late")
        self.running -= 1
        return Answer(f"answer to {ask.id}")

    def capabilities(self, model: str) -> Capabilities:
        return Capabilities(tools=True, window_tokens=0, reasoning="drop", after_tool="user_ok")

    async def learn(self, model: str) -> None: ...

    async def models(self) -> list[str]:
        return ["fake"]

    def state(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None: ...


def stubborn(home: Home, server: FakeModel, case: Callable[[Service, Stubborn], Any], *, fence_s: float = 60.0, fails: bool = False) -> None:
    async def whole() -> None:
        Hands(home, server)  # writes the settings
        provider = Stubborn(fails=fails)
        service = Service(load(home, "agents", "providers"), home, providers={"custom": provider}, fence_s=fence_s)
        try:
            async with asyncio.timeout(20):
                await case(service, provider)
        finally:
            provider.may_end.set()
            await service.close()

    asyncio.run(whole())


def test_cancelled_it_is_over_though_its_request_goes_on(home: Home, server: FakeModel) -> None:
    async def case(service: Service, provider: Stubborn) -> None:
        first = asks("t.0", HI, base="s", stream=True)
        waiting = asyncio.create_task(service.ask(first))
        await first.told.wait()
        assert await service.cancel(Asked({"ask": "t.0"})) == {"cancelled": True}
        with pytest.raises(Unavailable):
            await waiting
        assert provider.running == 1
        provider.may_end.set()
        await asyncio.sleep(0.3)  # longer than parts are held back
        assert first.text == "begun t.0 "
        assert not service.busy

    stubborn(home, server, case)


def test_the_next_ask_of_its_base_waits_for_its_end_and_no_other_does(home: Home, server: FakeModel) -> None:
    async def case(service: Service, provider: Stubborn) -> None:
        gone = asyncio.create_task(service.ask(asks("t.0", HI, base="s")))
        await provider.began.wait()
        await service.cancel(Asked({"ask": "t.0"}))
        following = asyncio.create_task(service.ask(asks("u.0", HI, base="s")))
        again = asyncio.create_task(service.ask(asks("t.0", HI, base="s")))
        beside = asyncio.create_task(service.ask(asks("v.0", HI, base="other")))
        await asyncio.sleep(0.1)
        assert provider.asked == ["t.0", "v.0"]
        assert (await service.status(Asked({})))["ending"] == 1
        provider.may_end.set()
        assert [(await task)["text"] for task in (following, again, beside)] == ["answer to u.0", "answer to t.0", "answer to v.0"]
        assert (await service.status(Asked({})))["ending"] == 0
        with pytest.raises(Unavailable):
            await gone

    stubborn(home, server, case)


def test_it_is_not_waited_for_for_ever(home: Home, server: FakeModel, capfd: pytest.CaptureFixture[str]) -> None:
    async def case(service: Service, provider: Stubborn) -> None:
        gone = asyncio.create_task(service.ask(asks("t.0", HI, base="s")))
        await provider.began.wait()
        await service.cancel(Asked({"ask": "t.0"}))
        provider.began.clear()
        following = asyncio.create_task(service.ask(asks("u.0", HI, base="s")))
        await provider.began.wait()
        assert provider.running == 2
        provider.may_end.set()
        assert (await following)["text"] == "answer to u.0"
        with pytest.raises(Unavailable):
            await gone

    stubborn(home, server, case, fence_s=0.1)
    assert "u.0 goes beside one that was dropped" in capfd.readouterr().err


def test_what_makes_a_failure_of_being_cancelled_is_not_asked_again(home: Home, server: FakeModel) -> None:
    async def case(service: Service, provider: Stubborn) -> None:
        gone = asyncio.create_task(service.ask(asks("t.0", HI, base="s")))
        await provider.began.wait()
        await service.cancel(Asked({"ask": "t.0"}))
        with pytest.raises(Unavailable):
            await gone
        provider.may_end.set()
        assert (await service.ask(asks("u.0", HI, base="s")))["text"] == "answer to u.0"
        assert (provider.asked, provider.most) == (["t.0", "u.0"], 1)

    stubborn(home, server, case, fails=True)


def test_one_that_was_dropped_while_it_waited_is_never_asked(home: Home, server: FakeModel) -> None:
    async def case(service: Service, provider: Stubborn) -> None:
        waiting = [asyncio.create_task(service.ask(asks("t.0", HI, base="s")))]
        await provider.began.wait()
        await service.cancel(Asked({"ask": "t.0"}))
        waiting.append(asyncio.create_task(service.ask(asks("u.0", HI, base="s"))))
        await asyncio.sleep(0)
        await service.cancel(Asked({"ask": "u.0"}))
        for task in waiting:
            with pytest.raises(Unavailable):
                await task
        provider.may_end.set()
        assert (await service.ask(asks("v.0", HI, base="s")))["text"] == "answer to v.0"
        assert provider.asked == ["t.0", "v.0"]

    stubborn(home, server, case)


# -- parts


def test_parts_are_joined(run: Any) -> None:
    async def case(h: Hands) -> Asked:
        asked = asks("t.1", HI, stream=True)
        assert (await h.service.ask(asked))["text"] == asked.text
        return asked

    asked = run(case, {"default": {"reply": TEXT * 20, "chunks": 200, "pause_s": 0.002}})
    assert asked.text == TEXT * 20
    assert len(asked.parts) > 1
    assert all(b - a > 0.09 for a, b in zip(asked.at[:-1], asked.at[1:-1], strict=False))  # the last one does not wait


def test_no_parts_where_none_are_asked_for(run: Any) -> None:
    async def case(h: Hands) -> Asked:
        asked = asks("t.1", HI)
        await h.service.ask(asked)
        return asked

    assert run(case).parts == []


def test_who_asks_again_gets_the_text_from_its_beginning(run: Any) -> None:
    async def case(h: Hands) -> None:
        first, second, bare = asks("t.1", HI, stream=True), asks("t.1", HI, stream=True), Asked({"ask": "t.1"})
        waiting = [asyncio.create_task(h.service.ask(first))]
        await first.told.wait()
        waiting += [asyncio.create_task(h.service.ask(asked)) for asked in (second, bare)]
        answers = await asyncio.gather(*waiting)
        assert {a["text"] for a in answers} == {TEXT}
        assert second.text == TEXT
        assert TEXT.startswith(first.text)
        assert bare.parts == []

    run(case, {"default": {"reply": TEXT, "chunks": 8, "pause_s": 0.05}})


def test_a_retry_is_told_and_begins_anew(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        asked = asks("t.1", HI, stream=True)
        answer = await h.service.ask(asked)
        assert (answer["text"], answer["attempts"]) == (TEXT, 2)
        at = next(n for n, part in enumerate(asked.parts) if "retry" in part)
        assert asked.parts[at] == {"retry": {"category": "model_down", "attempt": 2, "in_s": 1.0}}
        assert "".join(part["text"] for part in asked.parts[at + 1 :]) == TEXT
        assert h.slept == [1.0]

    run(case, {"rules": [{"reply": TEXT, "cut": 4, "times": 1}], "default": {"reply": TEXT}})
    assert server.seen()["requests"] == 2


# -- retries, counted at the server


@pytest.mark.parametrize("retries", [0, 2, 4])
@pytest.mark.parametrize("rule", [{"status": 500}, {"status": 429}, {"cut": 0}, {"reply": TEXT, "cut": 2}, {"body": {"choices": []}}])
def test_a_request_is_made_at_most_so_often(run: Any, server: FakeModel, rule: dict[str, Any], retries: int) -> None:
    async def case(h: Hands) -> None:
        with pytest.raises((ModelDown, RateLimited)) as failed:
            await h.service.ask(asks("t.1", HI))
        assert failed.value.attempts == 1 + retries

    run(case, {"default": rule}, api_retries=retries)
    assert server.seen()["requests"] == 1 + retries


@pytest.mark.parametrize(
    "rule", [{"status": 400}, {"status": 401}, {"error": "context_length_exceeded"}, {"error": "insufficient_quota"}, {"body": "<p>"}]
)
def test_what_will_not_pass_is_asked_once(run: Any, server: FakeModel, rule: dict[str, Any]) -> None:
    async def case(h: Hands) -> None:
        with pytest.raises((Rejected, NotAuthorized, ContextTooLong)):
            await h.service.ask(asks("t.1", HI))

    run(case, {"default": rule})
    assert server.seen()["requests"] == 1


def test_retry_after_is_kept(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> list[float]:
        await h.service.ask(asks("t.1", HI))
        return h.slept

    script = {"rules": [{"status": 429, "headers": {"Retry-After": "7"}, "times": 1}, {"status": 503, "headers": {"Retry-After": "3"}, "times": 1}]}
    assert run(case, script) == [pytest.approx(7.35), pytest.approx(3.15)]
    assert server.seen()["requests"] == 3


# -- by reference


def test_only_the_new_is_sent(run: Any, server: FakeModel) -> None:
    system, reply, more = (json.dumps({"role": r, "content": c}).encode() for r, c in (("system", "s"), ("assistant", "ok"), ("user", "more")))

    async def case(h: Hands) -> None:
        await h.service.ask(asks("t.1", system, HI, base="s.1", tools="x", schemas=TOOLS))
        await h.service.ask(asks("t.2", reply, more, base="s.1", keep=2, tools="x"))
        await h.service.ask(asks("t.3", HI, base="s.1", keep=1, tools="x"))

    run(case)
    bodies = server.seen()["bodies"]
    assert [[m["content"] for m in body["messages"]] for body in bodies] == [["s", "hi"], ["s", "hi", "ok", "more"], ["s", "hi"]]
    assert all(body["tools"] == json.loads(TOOLS) for body in bodies)


def test_what_is_not_held_is_asked_for_and_nothing_is_sent(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        for asked in (asks("t.1", HI, base="s.1", keep=1), asks("t.1", HI, tools="x"), Asked({"ask": "t.1"})):
            with pytest.raises(NeedBase):
                await h.service.ask(asked)

    run(case)
    assert server.seen()["requests"] == 0


def test_a_repeated_ask_need_not_be_complete(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> None:
        waiting = asyncio.create_task(h.service.ask(asks("t.1", HI, base="s.1")))
        await asyncio.sleep(0.05)
        assert (await h.service.ask(asks("t.1", base="other", keep=9)))["text"] == TEXT
        await waiting

    run(case, {"default": {"reply": TEXT, "delay_s": 0.2}})
    assert server.seen()["requests"] == 1


# -- where it leads


def test_route_and_status_and_list(run: Any, server: FakeModel) -> None:
    async def case(h: Hands) -> tuple[Any, ...]:
        found = await h.service.where(Asked({"model": "", "provider": ""}))
        listed = await h.service.models(Asked({}))
        await h.service.ask(asks("t.1", HI, base="s.1"))
        return found, listed, await h.service.status(Asked({}))

    found, listed, status = run(case, {"models": [{"id": "fake", "max_model_len": 4096}, {"id": "two"}]})
    assert (found["provider"], found["model"], found["capabilities"]["window_tokens"]) == ("custom", "fake", 4096)
    assert "custom is set up" in found["why"] or "custom is, and takes any model" in found["why"]
    assert [(m["provider"], m["model"]) for m in listed["models"]] == [("custom", "fake"), ("custom", "two")]
    assert (status["asks"], status["kept"], status["held"]) == (0, 1, {"count": 1, "bytes": len(HI)})


def test_a_provider_that_does_not_answer_does_not_hide_the_others(home: Home, server: FakeModel) -> None:
    async def whole() -> Any:
        server.play({})
        providers = {"custom": {"base_url": server.url}, "vllm": {"base_url": "http://127.0.0.1:1/v1"}}
        home.config.write_text(json.dumps({"version": 1, "providers": providers}))
        home.config.chmod(0o600)
        service = Service(load(home, "agents", "providers"), home)
        listed = await service.models(Asked({}))
        await service.close()
        return listed

    listed = asyncio.run(whole())
    assert [m["model"] for m in listed["models"]] == ["fake"]
    assert [f["provider"] for f in listed["failed"]] == ["vllm"]


@pytest.mark.parametrize(("model_", "provider"), [("claude-4", "anthropic"), ("x", "nobody"), ("openai_codex/x", "")])
def test_what_leads_nowhere_is_rejected_without_a_request(run: Any, server: FakeModel, model_: str, provider: str) -> None:
    async def case(h: Hands) -> None:
        for op, asked in (
            (h.service.where, Asked({"model": model_, "provider": provider})),
            (h.service.ask, asks("t.1", HI, model=model_, provider=provider)),
        ):
            with pytest.raises(Rejected) as refused:
                await op(asked)
            assert refused.value.attempts == 0
            assert refused.value.remedy

    run(case)
    assert server.seen()["requests"] == 0


@pytest.mark.parametrize(
    "change", [{"ask": 7}, {"base": None}, {"keep": "2"}, {"keep": -1}, {"keep": True}, {"model": 3}, {"temperature": "hot"}, {"max_tokens": 1.5}]
)
def test_an_ill_formed_request_is_refused(run: Any, server: FakeModel, change: dict[str, Any]) -> None:
    async def case(h: Hands) -> None:
        with pytest.raises(ProtocolError):
            await h.service.ask(asks("t.1", HI, **change))

    run(case)
    assert server.seen()["requests"] == 0
