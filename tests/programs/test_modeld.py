"""bubbles-modeld as a process, asked over the real bus, against the fake model: killed, restarted, and with the keys in it alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles import starter
from bubbles.bus.caller import Caller
from bubbles.errors import Misconfigured, ModelDown, NeedBase, NotAuthorized, ProtocolError, RateLimited, Rejected, TryAgain, Unavailable
from bubbles.paths import Home
from tests.fakes.start import FakeModel, model
from tests.logged import logged

KEY = "sk-a-key-that-must-not-be-seen-0123456789"
TEXT = "one two three four five six seven eight"
SLOW = {"reply": TEXT, "chunks": 8, "pause_s": 0.05}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeModel]:
    with model() as fake:
        yield fake


@contextmanager
def modeld(home: Home) -> Iterator[starter.Started]:
    started = starter.start(home, "modeld")
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.process.terminate()
        started.process.wait(20)


def configure(home: Home, url: str, **defaults: Any) -> None:
    defaults = {"model": "fake", "provider": "custom", "api_retries": 2, **defaults}
    whole = {"version": 1, "agents": {"defaults": defaults}, "providers": {"custom": {"base_url": url, "api_key": KEY}}}
    home.config.write_text(json.dumps(whole))
    home.config.chmod(0o600)


class Agent:
    """Asks as agentd does."""

    def __init__(self, home: Home) -> None:
        self.caller = Caller(home, "modeld")
        self.parts: list[dict[str, Any]] = []
        self.heard = asyncio.Event()

    def _part(self, part: dict[str, Any]) -> None:
        self.parts.append(part)
        self.heard.set()

    async def ask(self, id: str, words: Sequence[str], *, base: str = "", keep: int = 0, stream: bool = False) -> dict[str, Any]:
        lines = [json.dumps({"role": "user", "content": text}, separators=(",", ":")).encode() for text in words]
        body = {
            "ask": id,
            "model": "",
            "provider": "",
            "temperature": 0.7,
            "max_tokens": 64,
            "stream": stream,
            "base": base,
            "keep": keep,
            "tools": "",
        }
        answer, _ = await self.caller.call("model.ask", body, [b"\n".join(lines), b""], on_part=self._part)
        return answer

    async def op(self, name: str, **body: Any) -> dict[str, Any]:
        return (await self.caller.call(name, body))[0]

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self.parts)


def with_agent(home: Home, case: Any) -> Any:
    async def run() -> Any:
        agent = Agent(home)
        try:
            return await case(agent)
        finally:
            agent.caller.close()

    return asyncio.run(run())


def test_a_question_and_its_answer(home: Home, server: FakeModel) -> None:
    server.play({"key": KEY, "default": SLOW})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        answer = await agent.ask("t.1", ["hi"], stream=True)
        assert (answer["text"], answer["provider"], answer["attempts"]) == (TEXT, "custom", 1)
        assert agent.text == TEXT
        assert (await agent.op("model.route", model="", provider=""))["provider"] == "custom"
        assert [m["model"] for m in (await agent.op("model.list"))["models"]] == ["fake"]
        assert (await agent.op("status"))["kept"] == 1
        assert (await agent.op("ping"))["name"] == "modeld"

    with modeld(home):
        with_agent(home, case)
    assert server.seen()["requests"] == 1


def test_killed_in_the_middle_the_same_ask_is_answered_by_its_successor(home: Home, server: FakeModel) -> None:
    server.play({"rules": [{"reply": TEXT, "endless": True, "times": 1}], "default": {"reply": TEXT}})
    configure(home, server.url)

    async def case(agent: Agent) -> dict[str, Any]:
        asked = asyncio.create_task(agent.ask("t.1", ["hi"], stream=True))
        await agent.heard.wait()
        await asyncio.to_thread(kill, first)
        second.append(await asyncio.to_thread(starter.start, home, "modeld"))
        return await asked

    second: list[starter.Started] = []
    with modeld(home) as first:
        try:
            assert with_agent(home, case)["text"] == TEXT
        finally:
            for started in second:
                kill(started)
    assert server.seen()["requests"] == 2
    quiet(server)  # a killed modeld leaves no request behind


def quiet(server: FakeModel) -> None:
    """Return once the fake model is giving no answer any more."""
    while server.seen()["open"]:
        time.sleep(0.01)


def kill(started: starter.Started) -> None:
    os.kill(started.pid, signal.SIGKILL)
    started.process.wait(20)


def test_a_successor_asks_for_what_it_does_not_hold(home: Home, server: FakeModel) -> None:
    server.play({"default": {"reply": "ok"}})
    configure(home, server.url)

    async def before(agent: Agent) -> None:
        await agent.ask("t.1", ["one"], base="s.1")
        await agent.ask("t.2", ["two"], base="s.1", keep=1)

    async def after(agent: Agent) -> None:
        with pytest.raises(NeedBase):
            await agent.ask("t.3", ["three"], base="s.1", keep=2)
        await agent.ask("t.3", ["one", "two", "three"], base="s.1")

    for case in (before, after):
        with modeld(home) as started:
            with_agent(home, case)
            kill(started)
    assert [len(body["messages"]) for body in server.seen()["bodies"]] == [1, 2, 3]


def test_cancel_is_quiet_at_once(home: Home, server: FakeModel) -> None:
    server.play({"default": {"reply": "on and on ", "endless": True}})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        asked = asyncio.create_task(agent.ask("t.1", ["hi"], stream=True))
        await agent.heard.wait()
        assert await agent.op("model.cancel", ask="t.1") == {"cancelled": True}
        with pytest.raises(Unavailable):
            await asked
        await asyncio.to_thread(quiet, server)
        assert (await agent.op("status"))["asks"] == 0

    with modeld(home):
        with_agent(home, case)
    assert server.seen()["aborted"] == 1


def test_asked_again_it_joins(home: Home, server: FakeModel) -> None:
    server.play({"default": {"reply": TEXT, "delay_s": 0.3}})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        first = asyncio.create_task(agent.ask("t.1", ["hi"]))
        other = Agent(home)
        while not (await other.op("model.keep", ask="t.1"))["known"]:
            await asyncio.sleep(0.01)
        again, _ = await other.caller.call("model.ask", {"ask": "t.1"})
        other.caller.close()
        assert again == await first

    with modeld(home):
        with_agent(home, case)
    assert server.seen()["requests"] == 1


@pytest.mark.parametrize(
    ("rule", "error", "requests"),
    [
        ({"status": 401}, NotAuthorized, 1),
        ({"status": 400}, Rejected, 1),
        ({"status": 429, "headers": {"Retry-After": "0.05"}}, RateLimited, 3),
        ({"status": 503, "headers": {"retry-after-ms": "20"}}, ModelDown, 3),
    ],
)
def test_failures_cross_the_bus_with_their_kind_and_count(home: Home, server: FakeModel, rule: dict[str, Any], error: type, requests: int) -> None:
    server.play({"default": rule})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        with pytest.raises(error) as failed:
            await agent.ask("t.1", ["hi"])
        assert failed.value.attempts == requests
        assert [part["retry"]["attempt"] for part in agent.parts] == list(range(2, requests + 1))

    with modeld(home):
        with_agent(home, case)
    assert server.seen()["requests"] == requests


def test_fifty_sessions_at_once(home: Home, server: FakeModel) -> None:
    server.play({"default": {"echo": True, "delay_s": 0.05}})
    configure(home, server.url)

    async def case(agent: Agent) -> list[str]:
        answers = await asyncio.gather(*(agent.ask(f"t{n}.1", [f"I am {n}"], base=f"s{n}") for n in range(50)))
        return [answer["text"] for answer in answers]

    with modeld(home):
        assert with_agent(home, case) == [f"I am {n}" for n in range(50)]
    assert server.seen()["requests"] == 50


# -- the process


def test_the_key_is_in_no_log(home: Home, server: FakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBLES_DEBUG", "1")
    server.play({"default": {"status": 401, "body": {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}}})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        with pytest.raises(NotAuthorized) as failed:
            await agent.ask("t.1", ["hi"])
        assert KEY not in failed.value.text

    with modeld(home) as started:
        with_agent(home, case)
    assert started.ready
    text = logged(home, "modeld")
    assert "Incorrect API key provided" in text
    assert KEY not in text


def test_it_loads_no_litellm_and_nothing_of_sessions(home: Home, server: FakeModel) -> None:
    server.play({})
    configure(home, server.url)
    code = """
import asyncio, sys
from bubbles.daemon import Daemon
from bubbles.paths import Home
from bubbles.programs import modeld
from tests.programs.test_modeld import Agent

async def main():
    daemon = Daemon(Home.find(), "modeld")
    serving = asyncio.create_task(modeld.serve(daemon))
    agent = Agent(daemon.home)
    await agent.ask("t.1", ["hi"])
    agent.caller.close()
    daemon.stop()
    await serving
    print(sorted({m for m in sys.modules if m.partition(".")[0] in ("litellm", "xllamacpp", "openai")
                   or m.startswith(("bubbles.agentd", "bubbles.sessions", "bubbles.tools", "bubbles.channels", "bubbles.sandboxes"))}))

asyncio.run(main())
"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_second_one_is_refused(home: Home, server: FakeModel) -> None:
    configure(home, server.url)
    with modeld(home) as first, pytest.raises(TryAgain, match=str(first.pid)):
        starter.start(home, "modeld")


def test_a_broken_configuration_ends_it_with_its_place(home: Home) -> None:
    home.config.write_text('{"providers": {"custom": ')
    home.config.chmod(0o600)
    with pytest.raises(Misconfigured, match="line 1"):
        starter.start(home, "modeld")
    assert home.config.read_text() == '{"providers": {"custom": '


def test_sigterm_in_the_middle_of_an_answer_ends_it_cleanly(home: Home, server: FakeModel) -> None:
    server.play({"default": {"reply": "on and on ", "endless": True}})
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        asked = asyncio.create_task(agent.ask("t.1", ["hi"], stream=True))
        await agent.heard.wait()
        started.process.terminate()
        assert await asyncio.to_thread(started.process.wait, 20) == 0
        asked.cancel()

    with modeld(home) as started:
        with_agent(home, case)
    quiet(server)


def test_an_unknown_operation_is_answered(home: Home, server: FakeModel) -> None:
    configure(home, server.url)

    async def case(agent: Agent) -> None:
        with pytest.raises(ProtocolError):
            await agent.op("model.paint")

    with modeld(home):
        with_agent(home, case)


def test_once_it_reads_the_configuration_and_ends(home: Home) -> None:
    assert subprocess.run([sys.executable, "-m", "bubbles.programs.modeld", "--once"], capture_output=True).returncode == 0


def _has_litellm(pid: int) -> bool:
    return "/litellm/" in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("hosted", ["the default", "a fallback"])
def test_what_a_hosted_model_needs_is_loaded_behind_ready(home: Home, server: FakeModel, hosted: str) -> None:
    model, fallbacks = ("claude-sonnet-4-5", []) if hosted == "the default" else ("fake", ["claude-sonnet-4-5"])
    providers = {"anthropic": {"api_key": KEY, "base_url": "http://127.0.0.1:9"}, "custom": {"base_url": server.url, "models": {"fake": {}}}}
    home.config.write_text(json.dumps({"agents": {"defaults": {"model": model, "fallbacks": fallbacks}}, "providers": providers}))
    home.config.chmod(0o600)
    with modeld(home) as started:
        assert started.ready
        deadline = time.monotonic() + 100
        while not (loaded := _has_litellm(started.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert loaded
        started.process.terminate()  # in the midst of it, most often
        assert started.process.wait(60) == 0
