"""LiteLLM itself, with all switched off by which it would fetch, tell or try something of its own. Importing this loads it: 4 s of a core, 200 MB.

Whatever HTTP client it makes, it has one way out: the line of the provider that is being asked. A line carries one request for a question,
to its own host alone, follows no redirect (a key goes to no host but the one that was configured), and notes what really came back.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else the import fetches a list of prices
os.environ["LITELLM_MODE"] = "PRODUCTION"  # else it reads the file .env of the directory it is started in

import httpx
import litellm
import openai
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

from bubbles.providers.http1 import Broken
from bubbles.providers.lite_wire import TooLarge, sound
from bubbles.providers.sse import Events

_OWN_HTTP = {"anthropic", "gemini", "deepseek", "groq", "minimax", "openrouter"}  # the others it asks through OpenAI's client


@dataclass(slots=True)
class Seen:
    """What came back over HTTP for one question: `status` 0 is nothing; `headers` by lower-case name; `body` only of what is no answer."""

    line: Line
    requests: int = 0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = True  # a stream has said why it ends, as far as that has to be looked for
    details: list[Any] = field(default_factory=list)  # of reasoning, in a stream
    streamed: bool = False  # what is expected to come back
    too_large: bool = False
    response: httpx.Response | None = None

    async def close(self) -> None:
        """Let go of the answer, wherever it has been read to: the context of an ask that has ended is kept with its outcome, and this in it."""
        response, self.response = self.response, None
        if response is not None:
            await response.aclose()


_seen: ContextVar[Seen] = ContextVar("seen")


class Line:
    """The way to one provider, which LiteLLM calls `prefix`. A proxy of the environment is used where it is to be `proxied`."""

    def __init__(self, prefix: str, base_url: str, api_key: str, *, proxied: bool) -> None:
        self._prefix = prefix
        self._host = httpx.URL(base_url).host
        self._http = httpx.AsyncClient(verify=ssl.create_default_context(), trust_env=proxied, follow_redirects=False, timeout=None)
        self._given: dict[str, Any] = {"api_key": api_key, "api_base": base_url, "max_retries": 0, "num_retries": 0}
        if prefix not in _OWN_HTTP:
            self._given["client"] = _OpenAI(api_key=api_key, base_url=base_url, http_client=_client())
        self._given["thought_signature_in_tool_call_id"] = False

    async def complete(self, seen: Seen, model: str, **request: Any) -> Any:
        """LiteLLM's answer, or its stream of chunks; what came back over HTTP is noted in `seen`. Raises whatever LiteLLM raises."""
        _seen.set(seen)
        return await litellm.acompletion(model=f"{self._prefix}/{model}", **self._given, **request)

    async def carry(self, request: httpx.Request, seen: Seen) -> httpx.Response:
        """The response to the one request of a question. Raises httpx.RequestError."""
        if seen.requests or request.url.host != self._host:
            raise httpx.ConnectError(f"one request goes out for a question, and to {self._host} alone", request=request)
        seen.requests += 1
        response = await self._http.send(request, stream=True)
        seen.status, seen.response = response.status_code, response
        seen.headers = {name.lower(): value for name, value in response.headers.items()}
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = body = _Sound(response.stream, seen)
        for name in ("content-encoding", "content-length"):  # of the bytes that came
            response.headers.pop(name, None)
        if response.status_code != 200 or "html" in seen.headers.get("content-type", "") or not await body.is_expected():
            seen.body = await response.aread()
        elif self._prefix == "gemini" and "sse" in request.url.query.decode() and isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _Watched(response.stream, seen)
        elif self._prefix == "openrouter" and isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _Detailed(response.stream, seen)
        return response

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()


class _Sound(httpx.AsyncByteStream):
    """A body that is no larger than there is room for, unpacked, and with nothing in it that LiteLLM would trip over."""

    def __init__(self, stream: httpx.AsyncByteStream, seen: Seen) -> None:
        self._stream, self._seen = stream, seen
        self._blocks = sound(stream, seen.headers.get("content-encoding", ""), events=seen.streamed and seen.status == 200)
        self._first = b""

    async def is_expected(self) -> bool:
        """Whether it begins as a stream of events does where one was asked for; this waits for how it begins."""
        while self._seen.streamed and not self._first.strip() and (block := await self._next()):
            self._first = self._first.strip() + block
        return self._first.lstrip()[:1] not in (b"{", b"[", b"<")

    async def _next(self) -> bytes:
        try:
            return await anext(self._blocks, b"")
        except TooLarge:
            self._seen.too_large = True
            raise httpx.ReadError("more than there is room for") from None
        except Broken as error:
            raise httpx.ReadError(str(error)) from None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        first, self._first = self._first, b""
        if first:
            yield first
        while block := await self._next():
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Watched(httpx.AsyncByteStream):
    """Gemini's stream as it is. LiteLLM says of each of its pieces that it is the last, and so does not notice one that breaks off."""

    _ENDS = (b'"finishReason"', b'"blockReason"')

    def __init__(self, stream: httpx.AsyncByteStream, seen: Seen) -> None:
        self._stream, self._seen = stream, seen
        seen.ended = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest = b""
        async for block in self._stream:
            rest += block
            self._seen.ended = self._seen.ended or any(word in rest for word in self._ENDS)
            rest = rest[-20:]
            yield block

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Detailed(httpx.AsyncByteStream):
    """OpenRouter's stream as it is. LiteLLM leaves out the pieces that bring a signature and nothing else."""

    def __init__(self, stream: httpx.AsyncByteStream, seen: Seen) -> None:
        self._stream, self._seen = stream, seen

    async def __aiter__(self) -> AsyncIterator[bytes]:
        events = Events()
        async for block in self._stream:
            for event in events.feed(block):
                if b'"reasoning_details"' in event:
                    self._note(event)
            yield block

    def _note(self, event: bytes) -> None:
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._seen.details += json.loads(event)["choices"][0]["delta"]["reasoning_details"]

    async def aclose(self) -> None:
        await self._stream.aclose()


class _WayOut(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        seen = _seen.get(None)
        if seen is None:
            raise httpx.ConnectError("nobody is being asked", request=request)
        return await seen.line.carry(request, seen)


class _OpenAI(openai.AsyncOpenAI):  # type: ignore[misc]  # what LiteLLM brings has no types of ours
    """OpenAI's client, which never tries again. LiteLLM sets how often it does, and for some providers does not heed what it is told."""

    max_retries = property(lambda self: 0, lambda self, retries: None)


def _client(*args: Any, **options: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=_WayOut(), trust_env=False, timeout=None, headers={"Accept-Encoding": "identity"})


def _quieten() -> None:
    litellm.telemetry = False
    litellm.suppress_debug_info = True  # else it prints whom to write to
    litellm.disable_hf_tokenizer_download = True
    litellm.disable_token_counter = True  # what a provider does not report is not known; it would be estimated and told as if it were
    litellm.disable_streaming_logging = True
    litellm.REPEATED_STREAMING_CHUNK_LIMIT = sys.maxsize  # else an answer with a hundred equal pieces, a long ruled line, is none
    for logger in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
    litellm.ModelResponse.service_tier = None  # its code for Groq reads that of every whole answer, and not every one has it
    AsyncHTTPHandler.create_client = _client
    litellm.module_level_aclient.client = _client()


_quieten()
