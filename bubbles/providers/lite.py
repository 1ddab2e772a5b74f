"""The hosted providers, direct ones and gateways, by way of LiteLLM. It is loaded when the first of them is asked, or before that, in a thread.

It does not know retries: one `ask` is one HTTP request.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bubbles import __version__
from bubbles.errors import Misconfigured, ModelDown, Rejected
from bubbles.paths import Home
from bubbles.providers import Entry, catalogue, revealed
from bubbles.providers.address import is_here, where
from bubbles.providers.answer import Draft
from bubbles.providers.failure import refuses
from bubbles.providers.lenient import parsed
from bubbles.providers.lite_failure import failure, not_streamed
from bubbles.providers.lite_request import request
from bubbles.providers.lite_thoughts import Kept, Thoughts
from bubbles.providers.provider import Answer, Ask, Capabilities, able

_STREAM_S = 10  # a stream may take this many times the time-out in all; the time-out itself is for its beginning
_OPTIONAL = ("temperature",)  # what a model may refuse, and can be asked without
_loading: Future[ModuleType] | None = None

T = TypeVar("T")


def load() -> Future[ModuleType]:
    """Begin to load LiteLLM, unless that was begun, in a thread that nobody has to wait for; its result is the module that asks it."""
    global _loading
    if _loading is None:
        _loading = Future()
        _loading.set_running_or_notify_cancel()
        threading.Thread(target=_load, args=[_loading], daemon=True, name="litellm").start()
    return _loading


def _load(future: Future[ModuleType]) -> None:
    try:
        future.set_result(importlib.import_module("bubbles.providers.lite_library"))
    except BaseException as error:  # whoever asks is to learn of it; in a thread nobody does
        future.set_exception(error)


class Lite:
    """One provider, at `base_url` if it is given. `models` are the traits that the owner gives its models."""

    def __init__(
        self, entry: Entry, base_url: str, *, api_key: str = "", headers: Mapping[str, str] | None = None, models: Mapping[str, Any] | None = None
    ) -> None:
        self.name = entry.name
        self._prefix = entry.litellm or entry.name
        self._own_url = base_url.rstrip("/")
        self._url = self._own_url or entry.base_url
        self._key = api_key
        self._headers = {"User-Agent": f"bubbles/{__version__}", **(headers or {})}
        self._models = models or {}
        self._refused: dict[str, set[str]] = {}  # by model: what it refused
        self._thoughts = Thoughts()
        self._line: Any = None

    @classmethod
    def open(cls, entry: Entry, section: Any, home: Home) -> Lite:
        """The provider of a settings section. Raises Misconfigured where it has no key, nor headers that may hold one."""
        headers = {name: revealed(value) for name, value in section.headers.items()}
        key = revealed(section.api_key)
        if not key and not headers:
            raise Misconfigured(f"providers.{entry.name} has no api_key", remedy=f"set providers.{entry.name}.api_key")
        return cls(entry, section.base_url, api_key=key, headers=headers, models=section.models)

    def capabilities(self, model: str) -> Capabilities:
        return able(catalogue.with_own(catalogue.known(self.name, model, self._own_url), self._models.get(model)))

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request: streamed if `on_text` is given.

        `timeout_s` bounds a whole answer, or the wait for the first words of a stream (which may take ten times as long in all).
        """
        library = await _library()
        await self.learn(ask.model)
        line = self._open(library)
        streamed, refused = on_text is not None, self._refused.setdefault(ask.model, set())
        asked = request(
            ask,
            self.capabilities(ask.model),
            self._thoughts,
            streamed=streamed,
            marked=self._is_marked(ask.model),
            without=refused,
            prefix=self._prefix,
        )
        asked |= {"extra_headers": self._headers, "timeout": ask.timeout_s * _STREAM_S}
        seen = library.Seen(line, streamed=streamed)
        try:
            async with asyncio.timeout(ask.timeout_s * (_STREAM_S if streamed else 1)):
                return await self._answer(line, seen, ask, asked, on_text)
        except TimeoutError:
            raise ModelDown.midway(f"no answer from {self._where} in {ask.timeout_s:g} s") from None
        except Rejected as error:
            found = next((name for name in _OPTIONAL if name in asked and refuses(error, name)), None)
            if found is None:
                raise
            refused.add(found)
            if seen.requests:
                raise ModelDown(f"it takes no {found}; asking without from here on ({error.text})") from error
        finally:
            await seen.close()
        return await self.ask(ask, on_text)  # it was LiteLLM that would not: nothing went out yet

    async def _answer(self, line: Any, seen: Any, ask: Ask, asked: dict[str, Any], on_text: Callable[[str], None] | None) -> Answer:
        draft, kept = Draft(ask.id), Kept()
        response = await self._told(seen, line.complete(seen, ask.model, **asked), ask.timeout_s)
        if on_text is None:
            body = _instead(seen) if seen.body else response.model_dump()
            kept.take(_message(body))
            answer = draft.whole(body)
        else:
            answer = await self._streamed(seen, response, draft, kept, on_text, ask)
        self._thoughts.keep(answer, kept)
        usage = answer.usage if any(answer.usage.values()) else {}  # where nothing is told, LiteLLM tells of zeros
        return replace(answer, usage=usage, model=answer.model.removeprefix(f"{self._prefix}/"))

    async def _streamed(self, seen: Any, stream: Any, draft: Draft, kept: Kept, on_text: Callable[[str], None], ask: Ask) -> Answer:
        """The answer of a stream. One that ends before its provider says why it ends was cut, though LiteLLM may say "stop" at its end.

        Pieces with nothing in them, which are there to keep a connection open, do not end a silence.
        """
        now = asyncio.get_running_loop().time
        until, so_far = now() + ask.timeout_s, draft.so_far
        while not seen.body and (chunk := await self._next(seen, stream, draft, ask, until - now())) is not None:
            body = _plain(chunk)
            kept.take(_message(body))
            if text := draft.feed(body):
                on_text(text)
            if draft.so_far != so_far:
                until, so_far = now() + ask.pause_s, draft.so_far
        if seen.body:
            kept.take(_message(body := _instead(seen)))
            answer = draft.whole(body)
            on_text(answer.text)
            return answer
        kept.detail(seen.details)
        if not seen.ended or not (stream.received_finish_reason or stream.intermittent_finish_reason):
            raise ModelDown.midway("the stream was cut before the answer's end")
        return draft.finish()

    async def _next(self, seen: Any, stream: Any, draft: Draft, ask: Ask, silence_s: float) -> Any:
        try:
            return await self._told(seen, anext(stream, None), silence_s)
        except TimeoutError:
            raise draft.stalled(ask) from None

    async def _told(self, seen: Any, doing: Awaitable[T], silence_s: float) -> T:
        """What LiteLLM gives. Raises TimeoutError, and ModelError for all that it raises."""
        try:
            async with asyncio.timeout(silence_s):
                return await doing
        except TimeoutError:
            raise
        except Exception as error:  # LiteLLM raises its own, the vendors' and whatever its code trips over: each is told as one of our kinds
            found = failure(error, seen, self._where, time.time())
            found.may_cost = found.temporary and seen.status == 200
            raise found from error

    async def learn(self, model: str) -> None:
        """Nobody is asked: what is known of hosted models is in a list, and to read that takes a moment."""
        await asyncio.to_thread(catalogue.load)

    async def models(self) -> list[str]:
        """The models that the owner gave traits."""
        return list(self._models)

    def state(self) -> dict[str, Any]:
        parts = urlsplit(self._url)
        return {"base_url": f"{parts.scheme}://{self._where}{parts.path}"}

    async def close(self) -> None:
        if self._line is not None:
            await self._line.close()
            self._line = None

    def _open(self, library: Any) -> Any:
        if self._line is None:
            self._line = library.Line(self._prefix, self._url, self._key or "-", proxied=not is_here(self._url))
        return self._line

    def _is_marked(self, model: str) -> bool:
        """Whether the vendor keeps only what is marked: Anthropic, also where a gateway stands before it."""
        return self._prefix == "anthropic" or (self._prefix == "openrouter" and "claude" in model)

    @property
    def _where(self) -> str:
        return where(self._url)


async def _library() -> Any:
    """LiteLLM, once it is loaded. Raises Rejected where it cannot be."""
    try:
        return await asyncio.shield(asyncio.wrap_future(load()))
    except ImportError as error:
        raise Rejected(f"LiteLLM cannot be loaded: {error}", remedy="install Bubbles again", attempts=0) from error


def _instead(seen: Any) -> dict[str, Any]:
    """The whole answer that came in the place of a stream. Raises ModelError where it is none, or a page for people."""
    with suppress(ValueError, RecursionError):
        body = parsed(seen.body)
        if isinstance(body, dict) and body.get("choices"):
            return body
    raise not_streamed(seen.body, seen.headers)


def _plain(chunk: Any) -> dict[str, Any]:
    """A chunk of LiteLLM's as the JSON object that an endpoint would have sent."""
    found: dict[str, Any] = chunk.model_dump(exclude_none=True)
    return found


def _message(body: dict[str, Any]) -> dict[str, Any]:
    choices = body.get("choices") or [{}]
    found: dict[str, Any] = choices[0].get("delta") or choices[0].get("message") or {}
    return found
