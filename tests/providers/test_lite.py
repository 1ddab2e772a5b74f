"""The hosted providers through the real LiteLLM: one request, to the configured address alone, and nothing beside it.

What each vendor's answers and failures become is the matter of tests/providers/conformance.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles.errors import Misconfigured, ModelDown, ModelError
from bubbles.paths import Home
from bubbles.providers import DIRECT, GATEWAY, REGISTRY, lite
from bubbles.providers.lite import Lite
from bubbles.providers.provider import Answer, Ask
from tests.fakes.start import FakeModel, vendor

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-0123456789"
HOSTED = [name for name, entry in REGISTRY.items() if entry.category in (DIRECT, GATEWAY)]
TOOLS = b'[{"type":"function","function":{"name":"exec","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]'
HI = b'{"role":"user","content":"hi"}'

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, FakeModel]]:
    with vendor("openai") as openai, vendor("anthropic") as anthropic, vendor("gemini") as gemini:
        yield {"openai": openai, "anthropic": anthropic, "gemini": gemini}


def server_of(name: str, servers: dict[str, FakeModel]) -> tuple[FakeModel, str]:
    """The server that stands in for a provider's, and its base URL."""
    found = servers.get(name, servers["openai"])
    return found, found.url + ("/v1beta" if name == "gemini" else "")


def opened(name: str, url: str, **more: Any) -> Lite:
    return Lite(REGISTRY[name], url, api_key=KEY, **more)


def run(name: str, url: str, work: Callable[[Lite], Coroutine[Any, Any, Any]], **more: Any) -> Any:
    async def whole() -> Any:
        provider = opened(name, url, **more)
        try:
            return await work(provider)
        finally:
            await provider.close()

    return asyncio.run(whole())


def ask(*messages: bytes, model: str = "some-model", **more: Any) -> Ask:
    return Ask("t.0", model, messages or (HI,), **{"timeout_s": 20.0, "max_tokens": 64, "temperature": 0.5, **more})


def nobody(text: str) -> None:
    pass


@pytest.mark.parametrize("on_text", [nobody, None], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", HOSTED)
def test_one_request_with_the_headers_that_are_set(servers: dict[str, FakeModel], name: str, on_text: Any) -> None:
    server, url = server_of(name, servers)
    server.play({"default": {"reply": "done"}, "key": KEY, "vendor": name})
    found = run(name, url, lambda provider: provider.ask(ask(), on_text), headers={"X-Mine": "yes"})
    assert found.text == "done"
    seen = server.seen()
    assert seen["requests"] == 1
    assert (seen["headers"][0]["x-mine"], seen["headers"][0]["user-agent"][:8]) == ("yes", "bubbles/")


@pytest.mark.parametrize("name", HOSTED)
def test_a_redirect_is_not_followed(servers: dict[str, FakeModel], name: str) -> None:
    server, url = server_of(name, servers)
    other = servers["openai" if name != "openai" else "anthropic"]
    other.play({})
    server.play({"default": {"status": 307, "body": {"error": {"message": "over there"}}, "headers": {"Location": f"{other.url}/elsewhere"}}})
    with pytest.raises(ModelError):
        run(name, url, lambda provider: provider.ask(ask(), nobody))
    assert server.seen()["requests"] == 1
    assert server is other or other.seen()["requests"] == 0


@pytest.mark.parametrize("name", HOSTED)
def test_where_nobody_listens_it_is_told_who(name: str) -> None:
    with pytest.raises(ModelDown, match=r"^127\.0\.0\.1:9: "):
        run(name, "http://127.0.0.1:9", lambda provider: provider.ask(ask(), nobody))


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini", "deepseek"])
def test_a_dropped_question_drops_its_request(servers: dict[str, FakeModel], name: str) -> None:
    server, url = server_of(name, servers)
    server.play({"default": {"reply": "one two three four", "chunks": 4, "stall": 5 if name == "anthropic" else 2}})

    async def work(provider: Lite) -> int:
        heard = asyncio.Event()
        task = asyncio.create_task(provider.ask(ask(), lambda text: heard.set()))
        await asyncio.wait_for(heard.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(200):
            if aborted := (await asyncio.to_thread(server.seen))["aborted"]:
                return int(aborted)
            await asyncio.sleep(0.02)
        return 0

    assert run(name, url, work) == 1


def test_nothing_is_taken_from_the_environment(servers: dict[str, FakeModel], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "ANTHROPIC", "GEMINI", "DEEPSEEK", "GROQ"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-of-the-environment")
        monkeypatch.setenv(f"{name}_API_BASE", "http://127.0.0.1:9")
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")
    for name in ("openai", "anthropic", "gemini", "deepseek", "groq"):
        server, url = server_of(name, servers)
        server.play({"default": {"reply": "done"}})
        run(name, url, lambda provider: provider.ask(ask(), nobody))
        assert "sk-of-the-environment" not in json.dumps(server.seen()["headers"])


def test_without_a_key_it_does_not_open(home: Home) -> None:
    class Section:
        api_key, base_url = "", ""
        headers: dict[str, str] = {}
        models: dict[str, Any] = {}

    with pytest.raises(Misconfigured, match=r"providers\.groq has no api_key"):
        Lite.open(REGISTRY["groq"], Section, home)
    Section.headers = {"Authorization": "Bearer mine"}
    assert Lite.open(REGISTRY["groq"], Section, home).state() == {"base_url": "https://api.groq.com/openai/v1"}


def test_a_temperature_that_a_model_refuses_is_left_out_from_then_on(servers: dict[str, FakeModel]) -> None:
    server, url = server_of("anthropic", servers)
    server.play({"default": {"reply": "done"}})

    async def work(provider: Lite) -> Answer:
        with pytest.raises(ModelDown, match="it takes no temperature"):
            await provider.ask(ask(temperature=1.5), nobody)
        return await provider.ask(ask(temperature=1.5), nobody)

    assert run("anthropic", url, work).text == "done"
    assert ["temperature" in body for body in server.seen()["bodies"]] == [True, False]


def test_one_that_litellm_will_not_send_costs_no_attempt(servers: dict[str, FakeModel]) -> None:
    server, url = server_of("openai", servers)
    server.play({"default": {"reply": "done"}})
    assert run("openai", url, lambda provider: provider.ask(ask(model="gpt-5"), nobody)).text == "done"
    assert ["temperature" in body for body in server.seen()["bodies"]] == [False]


def message_of(answer: Answer) -> bytes:
    """An answer as it stands in history."""
    calls = [{"id": each["id"], "type": "function", "function": {"name": each["name"], "arguments": each["arguments"]}} for each in answer.calls]
    return json.dumps({"role": "assistant", "content": answer.text, "tool_calls": calls, "reasoning_content": answer.reasoning}).encode()


@pytest.mark.parametrize(
    ("name", "model"), [("anthropic", "claude-sonnet-4-5"), ("gemini", "gemini-3-pro-preview"), ("deepseek", "deepseek-reasoner")]
)
@pytest.mark.parametrize("on_text", [nobody, None], ids=["streamed", "whole"])
def test_what_a_vendor_thought_comes_back_to_it(servers: dict[str, FakeModel], name: str, model: str, on_text: Any) -> None:
    server, url = server_of(name, servers)
    calls = [{"name": "exec", "arguments": {"a": word}} for word in ("x", "y")]
    server.play({"rules": [{"calls": calls, "reasoning": "let me think", "times": 1}], "default": {"reply": "done"}, "needs_reasoning": True})

    async def work(provider: Lite) -> Answer:
        first = await provider.ask(ask(model=model, tools=TOOLS), on_text)
        assert (first.reasoning, len(first.calls)) == ("let me think", 2)
        results = [json.dumps({"role": "tool", "tool_call_id": each["id"], "content": "r"}).encode() for each in first.calls]
        return await provider.ask(ask(HI, message_of(first), *results, model=model, tools=TOOLS), on_text)

    assert run(name, url, work).text == "done"
    sent = json.dumps(server.seen()["bodies"][1])
    assert "let me think" in sent
    assert (name == "deepseek") is not ("ignature" in sent)


def test_what_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
import asyncio, sys
sys.modules["litellm"] = None
from bubbles.errors import Rejected
from bubbles.providers import REGISTRY
from bubbles.providers.lite import Lite
from bubbles.providers.provider import Ask
try:
    asyncio.run(Lite(REGISTRY["openai"], "", api_key="k").ask(Ask("t", "m", [b"{}"]), None))
except Rejected as error:
    print(error.attempts, error.text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.startswith("0 LiteLLM cannot be loaded: "), done.stderr


# -- nothing goes anywhere else ----------------------------------------------------------------------------

_ALL = """
import asyncio, json, sys
from bubbles.providers import REGISTRY
from bubbles.providers.lite import Lite
from bubbles.providers.provider import Ask

async def main():
    for name, url in json.loads(sys.argv[1]).items():
        provider = Lite(REGISTRY[name], url, api_key="sk-0123456789")
        answer = await provider.ask(Ask("t", "claude-3-llama-command", [b'{"role":"user","content":"hi"}'], max_tokens=64, temperature=0.5), print)
        assert answer.text == "done", answer
        await provider.close()
    await asyncio.sleep(1)  # whatever it does behind our back

asyncio.run(main())
"""


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace here")
def test_no_connection_but_to_the_configured_address(servers: dict[str, FakeModel], tmp_path: Path) -> None:
    urls = {}
    for server in servers.values():
        server.play({"default": {"reply": "done"}, "vendor": "openrouter" if server is servers["openai"] else ""})
    for name in HOSTED:
        urls[name] = server_of(name, servers)[1]
    env = {name: value for name, value in os.environ.items() if not re.search("proxy", name, re.IGNORECASE)}
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", str(tmp_path / "trace")]
    done = subprocess.run([*command, sys.executable, "-c", _ALL, json.dumps(urls)], capture_output=True, text=True, cwd=ROOT, env=env, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    calls = (tmp_path / "trace").read_text().splitlines()
    ports = {int(re.search(r":(\d+)", server.url)[1]) for server in servers.values()}  # type: ignore[index]
    reached = [re.search(r'sin_port=htons\((\d+)\), sin_addr=inet_addr\("127\.0\.0\.1"\)', line) for line in calls if " connect(" in line]
    assert {int(one[1]) for one in reached if one} == ports
    assert [line for line, one in zip([line for line in calls if " connect(" in line], reached, strict=True) if one is None] == []
    assert [line for line in calls if re.search(r"AF_INET6?|AF_UNIX|AF_NETLINK", line) and " connect(" not in line] == []
    assert sum(server.seen()["requests"] for server in servers.values()) == len(HOSTED)


def test_loading_is_begun_once() -> None:
    assert lite.load() is lite.load()


