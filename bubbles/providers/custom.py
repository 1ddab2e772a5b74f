"""Any endpoint that speaks OpenAI's chat protocol, by plain HTTP: custom addresses, Ollama, vLLM.

It does not know retries: one `ask` is one request. Redirects are not followed,
so that a key goes to no host but the one that was configured.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from bubbles import __version__, log
from bubbles.errors import Misconfigured, ModelDown, ModelError, Rejected
from bubbles.paths import Home
from bubbles.providers import Entry, catalogue, revealed
from bubbles.providers.address import is_here
from bubbles.providers.answer import Draft
from bubbles.providers.body import body
from bubbles.providers.failure import from_response, no_json, refuses, too_large
from bubbles.providers.http1 import Broken
from bubbles.providers.lenient import ANSWER_MOST, parsed
from bubbles.providers.origin import Exchange, Origin
from bubbles.providers.provider import Answer, Ask, Capabilities, able
from bubbles.providers.sse import Events
from bubbles.providers.traits import UNKNOWN

_NO_EVENT = (b"{", b"[", b"<")  # how what is no stream of events begins, whatever it is called
_STREAM_S = 10  # a stream may take this many times the time-out in all; the time-out itself is for its beginning
_LEARN_S = 5.0
_REST_S = 0.1


class Custom:
    """One endpoint. `models` are the traits that the owner gives its models."""

    def __init__(
        self, name: str, base_url: str, *, api_key: str = "", headers: Mapping[str, str] | None = None, models: Mapping[str, Any] | None = None
    ):
        self.name = name
        self._url = base_url.rstrip("/")
        self._models = models or {}
        self._headers = {"User-Agent": f"bubbles/{__version__}", "Content-Type": "application/json", "Accept-Encoding": "identity"}
        if authorization := f"Bearer {api_key}" if api_key else _basic(base_url):
            self._headers["Authorization"] = authorization
        self._headers |= dict(headers or {})
        self._windows: dict[str, int] | None = None  # what the endpoint says; None: not asked yet
        self._streams = True
        self._origin: Origin | None = None

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Custom:
        """The endpoint of a settings section. Raises Misconfigured where it has no address."""
        url = section.base_url or entry.base_url
        if not url:
            raise Misconfigured(f"providers.{entry.name} has no base_url", remedy=f"set providers.{entry.name}.base_url")
        headers = {name: revealed(value) for name, value in section.headers.items()}
        return cls(entry.name, url, api_key=revealed(section.api_key), headers=headers, models=section.models)

    def capabilities(self, model: str) -> Capabilities:
        found = catalogue.with_own(UNKNOWN, self._models.get(model))
        return able(replace(found, window_tokens=found.window_tokens or (self._windows or {}).get(model, 0)))

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request: streamed if `on_text` is given and the endpoint can, whole otherwise.

        `timeout_s` bounds a whole answer, or the wait for the first words of a stream (which may take ten times as long in all).
        """
        streamed = on_text is not None and self._streams
        path, data, headers = self._asked(ask, streamed=streamed)
        draft, first = self._draft(ask), b""
        total_s = ask.timeout_s * (_STREAM_S if streamed else 1)
        try:
            async with self._request("POST", path, data, ask.timeout_s, total_s, headers) as response:
                if streamed and "json" not in response.content_type and response.content_type != "text/html":
                    response.read_for_sense()
                    first = await _first(response, draft, ask)
                    if first.lstrip()[:1] not in _NO_EVENT:
                        return await _streamed(response, first, draft, on_text or nobody, ask)
                return _whole(first + await read(response, len(first)), response.headers, draft, on_text or nobody)
        except Rejected as error:
            if streamed and refuses(error, "stream", "streaming"):
                self._streams = False
                raise ModelDown(f"it does not stream; asking for whole answers from here on ({error.text})") from error
            raise

    async def learn(self, model: str) -> None:
        """Take note of the windows that the endpoint's list of models tells, unless the owner told this one."""
        if self._windows is None and not self.capabilities(model)["window_tokens"]:
            with suppress(ModelError):
                await self.models()

    async def models(self) -> list[str]:
        """The models that the endpoint lists, and those that the owner gave traits."""
        async with self._request("GET", "/models", b"", _LEARN_S, _LEARN_S) as response:
            data = await read(response)
        try:
            listed = [item for item in json.loads(data)["data"] if isinstance(item.get("id"), str)]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ModelDown("its list of models is not one") from error
        self._windows = {item["id"]: window for item in listed if (window := _window(item))}
        return list(dict.fromkeys([*self._models, *(item["id"] for item in listed)]))

    def state(self) -> dict[str, Any]:
        parts = urlsplit(self._url)
        return {"base_url": f"{parts.scheme}://{self._where}{parts.path}"}

    async def close(self) -> None:
        if self._origin is not None:
            await self._origin.close()
            self._origin = None

    # -- what another protocol over the same way may say otherwise ------------------------------------

    def _asked(self, ask: Ask, *, streamed: bool) -> tuple[str, bytes, Mapping[str, str]]:
        """The path, the body and the headers of its own that a request has."""
        return "/chat/completions", body(ask, self.capabilities(ask.model), streamed=streamed), {}

    def _draft(self, ask: Ask) -> Draft:
        """What an answer is put together in."""
        return Draft(ask.id)

    def _refusal(self, status: int, data: bytes, headers: Mapping[str, str]) -> ModelError:
        """What an answer other than 200 tells."""
        return from_response(status, data, headers, time.time())

    # -- one request -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, data: bytes, silence_s: float, total_s: float, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Exchange]:
        """A response of status 200. Whatever goes wrong, until the block ends, is a ModelError."""
        try:
            where = urlsplit(self._url).path + path
            exchange = self._server().request(method, where, {**self._headers, **(headers or {})}, data, silence_s=silence_s, total_s=total_s)
        except ValueError as error:
            raise Rejected(_said(error), remedy=f"look at providers.{self.name}") from error
        try:
            async with exchange as response:
                if response.headers.get("server") == "llama.cpp":  # it closes after a stream without saying so; the next request would run into that
                    self._headers["Connection"] = "close"
                if response.status != 200:
                    raise self._refusal(response.status, await read(response), response.headers)
                yield response
        except TimeoutError as error:
            raise ModelDown.midway(f"no answer from {self._where} in {silence_s:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise Rejected(f"{self._where}: {_said(error)}", remedy=f"look at providers.{self.name}.base_url") from error
        except OSError as error:
            raise (ModelDown.midway if isinstance(error, Broken) else ModelDown)(f"{self._where}: {_said(error)}") from error

    def _server(self) -> Origin:
        """Who is asked. A proxy of the environment is used, but never for this machine. Raises ValueError where that is no address."""
        if self._origin is None:
            self._origin = Origin(self._url, proxied=not is_here(self._url))
        return self._origin

    @property
    def _where(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


async def _first(response: Exchange, draft: Draft, ask: Ask) -> bytes:
    """How a body begins, as far as a byte that tells what it is."""
    first, size = b"", 0
    while not first.strip() and (block := await _block(response, draft, ask)):
        first, size = first.strip() + block, size + len(block)
        if size > ANSWER_MOST:
            raise too_large()
    return first


async def _streamed(response: Exchange, first: bytes, draft: Draft, on_text: Callable[[str], None], ask: Ask) -> Answer:
    """The answer of an event stream. One that ends before it says why it ends was cut; comments and empty chunks do not keep one alive."""
    events, size, done, so_far = Events(), 0, False, draft.so_far
    block = first
    while not done and (block := block or await _block(response, draft, ask)):
        size += len(block)
        if size > ANSWER_MOST:
            raise too_large()
        for event in events.feed(block):
            done = _event(event, draft, on_text) or done
        if draft.so_far != so_far:
            so_far = draft.so_far
            response.made_sense(ask.pause_s)
        block = b""
    if done:
        await _rest(response)
    else:
        for event in events.end():
            done = _event(event, draft, on_text) or done
    if not done and not draft.stop:
        raise ModelDown.midway("the stream was cut before the answer's end")
    return draft.finish()


async def _block(response: Exchange, draft: Draft, ask: Ask) -> bytes:
    try:
        return await response.block()
    except TimeoutError as error:
        raise draft.stalled(ask) from error


async def _rest(response: Exchange) -> None:
    """What follows the last event is nothing, but only a connection that was read to its end is used again."""
    if response.ended:
        return
    with suppress(OSError):
        async with asyncio.timeout(_REST_S):
            await read(response)


def _event(event: bytes, draft: Draft, on_text: Callable[[str], None]) -> bool:
    """Take in one event; whether it is the last."""
    event = event.strip()
    if not event:
        return False
    if event == b"[DONE]":
        return True
    try:
        chunk = parsed(event)
    except (ValueError, RecursionError):
        raise ModelDown.midway("the stream was cut, or is none of chunks") from None
    try:
        text = draft.feed(chunk)
    except ModelError as error:
        error.may_cost = error.temporary
        raise
    if text:
        on_text(text)
    return False


def _whole(data: bytes, headers: Mapping[str, str], draft: Draft, on_text: Callable[[str], None]) -> Answer:
    try:
        body = parsed(data)
    except (ValueError, RecursionError):
        raise no_json(data, headers) from None
    answer = draft.whole(body)
    if answer.text:
        on_text(answer.text)
    return answer


async def read(response: Exchange, size: int = 0) -> bytes:
    """What is left of a response of which so many bytes have come. Raises Rejected where that is too much."""
    data = bytearray()
    while block := await response.block():
        data += block
        if size + len(data) > ANSWER_MOST:
            raise too_large()
    return bytes(data)


def _window(item: dict[str, Any]) -> int:
    """The window that an entry of a list of models tells: vLLM, llama.cpp, OpenRouter and their like."""
    meta = item.get("meta")
    for found in (item.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None, item.get("context_length")):
        if isinstance(found, int) and found > 0:
            return found
    return 0


def _basic(url: str) -> str:
    """What a name and a password in an address are to be sent as."""
    parts = urlsplit(url)
    if parts.username is None:
        return ""
    return "Basic " + base64.b64encode(f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()).decode()


def _said(error: Exception) -> str:
    return log.struck(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def nobody(text: str) -> None:
    """Who listens where nobody does."""
