"""Where a provider is asked as modeld asks it: the real Service with its retries, on a clock whose pauses take no time but are noted."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from bubbles.config import load
from bubbles.errors import ModelError
from bubbles.kernel.canonical import encode
from bubbles.paths import Home
from bubbles.providers import open, tokens
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.retry import Clock
from bubbles.providers.service import Service
from tests.fakes.start import FakeModel
from tests.providers.conformance.sides import KEY, SIDES, Side

HI = {"role": "user", "content": "hi"}
EVEN = 0.5  # what the clock's chance always is


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one ask: an answer or an error, what was heard on the way, and what the server saw of it."""

    answer: dict[str, Any]
    error: ModelError | None
    parts: list[dict[str, Any]]
    slept: list[float]
    seen: dict[str, Any]

    @property
    def requests(self) -> int:
        """How many HTTP requests were made."""
        return int(self.seen["requests"])

    @property
    def heard(self) -> str:
        """The text that was streamed after the last failure."""
        heard = ""
        for part in self.parts:
            heard = "" if "retry" in part else heard + part["text"]
        return heard


class _Asked:
    """A request as the door hands it over."""

    def __init__(self, body: dict[str, Any], *blobs: bytes) -> None:
        self.body, self.blobs = body, list(blobs)
        self.parts: list[dict[str, Any]] = []

    def part(self, part: dict[str, Any]) -> None:
        self.parts.append(part)


class _Whole:
    """A provider that is always asked for whole answers."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        answer = await self._provider.ask(ask, None)
        if on_text:
            on_text(answer.text)
        return answer


def _entry(side: Side) -> Any:
    """How a model stands in the list of its server."""
    if not side.signs_in:
        return side.model
    return {"id": side.model, "supported_endpoints": ["/responses" if side.reasoning == "keep" else "/chat/completions"]}


class Hall:
    """All providers set up at once, each with the address of its server; a service that streams, as modeld does, and one that does not."""

    def __init__(self, home: Home, servers: dict[str, FakeModel], *, model_path: str = "", **defaults: Any) -> None:
        self.servers = servers
        self.slept: list[float] = []
        self._numbers = itertools.count()
        self._runner = asyncio.Runner()
        embedded = {"embedded": {"model_path": model_path, "context_tokens": 512}}
        home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": defaults}, "providers": self._providers() | embedded}))
        home.config.chmod(0o600)
        settings = load(home, "agents", "providers")
        for name in {side.provider for side in SIDES if side.signs_in}:
            tokens.write(tokens.path(home, name), tokens.Login(1.0, "refresh-0-of-somebody", KEY, account_id="acc-1"))
        providers = {side.provider: open(side.provider, settings.providers, home) for side in SIDES if self.servers}
        self._learn(providers)
        self._streaming = self._service(settings, home, providers)
        self._whole = self._service(settings, home, {name: _Whole(provider) for name, provider in providers.items()})

    def _service(self, settings: Any, home: Home, providers: Any) -> Service:
        return Service(settings, home, clock=Clock(sleep=self._sleep, chance=lambda: EVEN), providers=providers)

    def _learn(self, providers: dict[str, Provider]) -> None:
        """Those that one signs in to are asked for their models first: that is where they say by which protocol each is asked."""
        for side in SIDES if self.servers else ():
            if side.signs_in:
                theirs = [_entry(each) for each in SIDES if each.server == side.server]
                self.servers[side.server].play({"key": KEY, "models": theirs})
                self.run(providers[side.provider].learn(side.model))

    def _providers(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for side in SIDES if self.servers else ():
            url = self.servers[side.server].url + side.root
            who = {"auth_url": "{0.scheme}://{0.netloc}".format(urlsplit(url))} if side.signs_in else {"api_key": KEY}
            section = found.setdefault(side.provider, {"base_url": url, **who, "models": {}})
            section["models"][side.model] = {"reasoning": side.reasoning}
        return found

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def play(self, side: Side, script: dict[str, Any]) -> None:
        """Have the side's server play a script, in the words of the side's vendor."""
        self.servers[side.server].play({"key": KEY, "models": [_entry(side)], "vendor": side.vendor, **script})

    def ask(self, side: Side, script: dict[str, Any], *messages: dict[str, Any], stream: bool = True, tools: bytes = b"") -> Told:
        """One ask, while the side's server plays a script."""
        self.play(side, script)
        told = self.put(side, *messages, stream=stream, tools=tools)
        return replace(told, seen=self.servers[side.server].seen())

    def put(self, side: Side, *messages: dict[str, Any], stream: bool = True, tools: bytes = b"") -> Told:
        """One ask, whoever answers it."""
        self.slept.clear()
        lines = b"\n".join(encode(message) for message in messages or (HI,))
        body = {"ask": f"t.{next(self._numbers)}", "model": side.model, "provider": side.provider, "temperature": 0.5, "max_tokens": 64}
        asked = _Asked({**body, "stream": True, "base": "", "keep": 0, "tools": "t" if tools else ""}, lines, tools)
        answer, error = self.run(self._ask(self._streaming if stream else self._whole, asked))
        return Told(answer, error, asked.parts, list(self.slept), {})

    async def _ask(self, service: Service, asked: _Asked) -> tuple[dict[str, Any], ModelError | None]:
        try:
            return await service.ask(asked), None
        except ModelError as error:
            return {}, error

    def close(self) -> None:
        self.run(self._streaming.close())
        self.run(self._whole.close())
        self._runner.close()
