"""Any endpoint that speaks OpenAI's chat protocol, by plain HTTP: custom addresses, Ollama, vLLM.

It does not know retries: one `ask` is one request, and neither it nor aiohttp makes another. Redirects are not followed,
so that a key goes to no host but the one that was configured.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bubbles import __version__, log
from bubbles.errors import Misconfigured, ModelDown, ModelError, Rejected
from bubbles.paths import Home
from bubbles.providers import Entry, revealed
from bubbles.providers.answer import Draft
from bubbles.providers.body import body
from bubbles.providers.failure import from_response, no_json
from bubbles.providers.provider import Answer, Ask, Capabilities
from bubbles.providers.sse import Events

_ANSWER_MOST = 32 << 20  # bytes of one answer
_STREAM_S = 10  # a stream may take this many times the time-out in all; the time-out itself is for its silences
_LEARN_S = 5.0
_REST_S = 0.1
_IDLE_S = 4.0  # a connection is used again for so long; many servers close theirs after five
_BLANK = Capabilities(tools=True, window_tokens=0, reasoning="drop", after_tool="user_ok")


class Custom:
    """One endpoint. `models` are the traits that the owner gives its models."""

    def __init__(
        self, name: str, base_url: str, *, api_key: str = "", headers: Mapping[str, str] | None = None, models: Mapping[str, Any] | None = None
    ):
        self.name = name
        self._url = base_url.rstrip("/")
        self._models = models or {}
        self._headers = {"User-Agent": f"bubbles/{__version__}", "Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._headers |= dict(headers or {})
        self._windows: dict[str, int] | None = None  # what the endpoint says; None: not asked yet
        self._streams = True
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Custom:
        """The endpoint of a settings section. Raises Misconfigured where it has no address."""
        url = section.base_url or entry.base_url
        if not url:
            raise Misconfigured(f"providers.{entry.name} has no base_url", remedy=f"set providers.{entry.name}.base_url")
        headers = {name: revealed(value) for name, value in section.headers.items()}
        return cls(entry.name, url, api_key=revealed(section.api_key), headers=headers, models=section.models)

    def capabilities(self, model: str) -> Capabilities:
        traits = self._models.get(model)
        window = (self._windows or {}).get(model, 0)
        if traits is None:
            return Capabilities(**{**_BLANK, "window_tokens": window})
        return Capabilities(
            tools=traits.tools, window_tokens=traits.context_tokens or window, reasoning=traits.reasoning, after_tool=_BLANK["after_tool"]
        )

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request: streamed if `on_text` is given and the endpoint can, whole otherwise.

        `timeout_s` bounds a whole answer, or each silence of a stream (which may take ten times as long in all).
        """
        streamed = on_text is not None and self._streams
        data = body(ask, self.capabilities(ask.model), streamed=streamed)
        total_s = ask.timeout_s * (_STREAM_S if streamed else 1)
        timeout = aiohttp.ClientTimeout(total=total_s, connect=ask.timeout_s, sock_read=ask.timeout_s)
        try:
            async with self._request("POST", "/chat/completions", data, timeout) as response:
                if streamed and "json" not in response.content_type and response.content_type != "text/html":
                    return await _streamed(response, Draft(ask.id), on_text or _nobody)
                return _whole(await _read(response), response.headers, Draft(ask.id), on_text or _nobody)
        except Rejected as error:
            if streamed and "stream" in error.text.lower():
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
        async with self._request("GET", "/models", None, aiohttp.ClientTimeout(total=_LEARN_S)) as response:
            data = await _read(response)
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
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def _request(self, method: str, path: str, data: bytes | None, timeout: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response of status 200. Whatever goes wrong, until the block ends, is a ModelError."""
        try:
            async with self._http().request(
                method, self._url + path, data=data, headers=self._headers, timeout=timeout, allow_redirects=False
            ) as response:
                if response.headers.get("Server") == "llama.cpp":  # it closes after a stream without saying so; the next request would run into that
                    self._headers["Connection"] = "close"
                if response.status != 200:
                    raise from_response(response.status, await _read(response), _lower(response.headers), time.time())
                yield response
        except TimeoutError as error:
            raise ModelDown(f"no answer from {self._where} in {timeout.sock_read or timeout.total:g} s") from error
        except (aiohttp.InvalidURL, aiohttp.ClientConnectorCertificateError) as error:
            raise Rejected(f"{self._where}: {_said(error)}", remedy=f"look at providers.{self.name}.base_url") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ModelDown(f"{self._where}: {_said(error)}") from error

    def _http(self) -> aiohttp.ClientSession:
        """The session, made when it is first needed. A proxy of the environment is used, but never for this machine's own addresses."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S), trust_env=not _is_here(self._url)
            )
        return self._session

    @property
    def _where(self) -> str:
        parts = urlsplit(self._url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


async def _streamed(response: aiohttp.ClientResponse, draft: Draft, on_text: Callable[[str], None]) -> Answer:
    """The answer of an event stream. One that ends before it says why it ends was cut."""
    events, size, done = Events(), 0, False
    async for block in response.content.iter_any():
        size += len(block)
        if size > _ANSWER_MOST:
            raise _too_large()
        for event in events.feed(block):
            done = _event(event, draft, on_text) or done
        if done:
            await _rest(response)
            break
    else:
        for event in events.end():
            done = _event(event, draft, on_text) or done
    if not done and not draft.stop:
        raise ModelDown("the stream was cut before the answer's end")
    return draft.finish()


async def _rest(response: aiohttp.ClientResponse) -> None:
    """What follows the last event is nothing, but only a connection that was read to its end is used again."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_REST_S):
            await response.content.read(_ANSWER_MOST)


def _event(event: bytes, draft: Draft, on_text: Callable[[str], None]) -> bool:
    """Take in one event; whether it is the last."""
    if event == b"[DONE]":
        return True
    try:
        chunk = json.loads(event)
    except (ValueError, RecursionError):
        raise ModelDown("the stream was cut, or is none of chunks") from None
    if text := draft.feed(chunk):
        on_text(text)
    return False


def _whole(data: bytes, headers: Mapping[str, str], draft: Draft, on_text: Callable[[str], None]) -> Answer:
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        raise no_json(data, _lower(headers)) from None
    answer = draft.whole(parsed)
    if answer.text:
        on_text(answer.text)
    return answer


async def _read(response: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for block in response.content.iter_any():
        data += block
        if len(data) > _ANSWER_MOST:
            raise _too_large()
    return bytes(data)


def _too_large() -> ModelError:
    return Rejected(f"an answer of more than {_ANSWER_MOST >> 20} MiB")


def _window(item: dict[str, Any]) -> int:
    """The window that an entry of a list of models tells: vLLM, llama.cpp, OpenRouter and their like."""
    meta = item.get("meta")
    for found in (item.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None, item.get("context_length")):
        if isinstance(found, int) and found > 0:
            return found
    return 0


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _said(error: Exception) -> str:
    return log.struck(str(error) or type(error).__name__)


def _nobody(text: str) -> None:
    """Who listens where nobody does."""
