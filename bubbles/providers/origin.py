"""One server that is spoken HTTP to: connections that are kept for the next request, its time-outs, TLS, and the way through a proxy.

It makes each request once, follows no redirect and keeps no cookies. It does not know what is asked or answered.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import SplitResult, quote, unquote, urlsplit

from bubbles.providers.connection import Connection, Watch
from bubbles.providers.http1 import Broken, Response

IDLE_S = 4.0  # a connection is used again for so long; many servers close theirs after five
_EYEBALLS_S = 0.25  # where a server has several addresses, the next is tried beside one that is silent for so long
_PORTS = {"http": 80, "https": 443}


class Origin:
    """The server at `url`, of which only scheme, host and port count. A proxy of the environment is used where `proxied`.

    Raises ValueError where `url` names no server that can be asked.
    """

    def __init__(self, url: str, *, proxied: bool = True) -> None:
        self._url = _split(url)
        self._tls = _tls() if self._url.scheme == "https" else None
        self._proxy = _proxy(self._url) if proxied else None
        self._free: list[Connection] = []
        self._sweep: asyncio.TimerHandle | None = None
        host = self._url.hostname or ""
        host = f"[{host}]" if ":" in host else host.encode("idna").decode()
        self._host = f"{host}:{self._url.port}" if self._url.port else host
        self._head = f"Host: {self._host}\r\n"
        self._through = f"http://{self._host}" if self._proxy and not self._tls else ""  # a proxy is told the whole address
        if self._through:
            self._head += _authorization(self._proxy)

    def request(self, method: str, path: str, headers: Mapping[str, str], body: bytes, *, silence_s: float, total_s: float) -> Exchange:
        """One request; enter it for its response. Raises OSError: TimeoutError, Broken or another; ValueError for a header that is none.

        `silence_s` bounds the connecting and each wait for more, `total_s` all of it.
        """
        lines = "".join(f"{name}: {_sound(value)}\r\n" for name, value in headers.items())
        target = self._through + quote(path, safe="/?&=%:@!$'()*+,;~-._")
        head = f"{method} {target} HTTP/1.1\r\n{self._head}{lines}Content-Length: {len(body)}\r\n\r\n".encode()
        return Exchange(self, head, body, silence_s, total_s)

    async def close(self) -> None:
        """Let go of the connections that are free."""
        if self._sweep:
            self._sweep.cancel()
            self._sweep = None
        for connection in self._free:
            connection.abort()
        self._free.clear()
        await asyncio.sleep(0)  # the sockets close when the loop comes round

    async def take(self) -> Connection:
        """A connection, a free one if there is one."""
        while self._free:
            connection = self._free.pop()
            if not connection.lost:
                return connection
        return await self._connected()

    def give_back(self, connection: Connection) -> None:
        """It may carry another request."""
        loop = asyncio.get_running_loop()
        connection.free_since = loop.time()
        self._free.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        idle = [connection for connection in self._free if connection.lost or loop.time() - connection.free_since >= IDLE_S - 0.01]
        for connection in idle:
            connection.abort()
        self._free = [connection for connection in self._free if connection not in idle]
        self._sweep = loop.call_at(self._free[0].free_since + IDLE_S, self._close_idle) if self._free else None

    async def _connected(self) -> Connection:
        loop, to = asyncio.get_running_loop(), self._proxy or self._url
        at_once = self._tls if not self._proxy else None
        transport, connection = await loop.create_connection(
            Connection, str(to.hostname), to.port or _PORTS[to.scheme], ssl=at_once, happy_eyeballs_delay=_EYEBALLS_S
        )
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._tls and self._proxy:
            try:
                await self._tunnel(connection)
            except BaseException:
                connection.abort()
                raise
        return connection

    async def _tunnel(self, connection: Connection) -> None:
        where = f"{self._host}" if self._url.port else f"{self._host}:443"
        connection.expect(Response(tunnel=True))
        await connection.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{_authorization(self._proxy)}\r\n".encode(), b"")
        while not connection.response.status:
            await connection.more()
        if connection.response.status != 200:
            raise Broken(f"the proxy {self._proxy.hostname if self._proxy else ''} refuses: HTTP {connection.response.status}")
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(connection.transport, connection, self._tls or _tls(), server_hostname=self._url.hostname)
        if transport is None:
            raise Broken("the connection was closed before TLS was agreed on")
        connection.connection_made(transport)


class Exchange:
    """One request and its response: an async context. What is left of the response at its end is not waited for."""

    def __init__(self, origin: Origin, head: bytes, body: bytes, silence_s: float, total_s: float) -> None:
        self._origin, self._head, self._body = origin, head, body
        self._watch = Watch(silence_s, total_s)
        self._connection: Connection | None = None
        self._response = Response()

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> dict[str, str]:
        """By lower-case name."""
        return self._response.headers

    @property
    def ended(self) -> bool:
        """Whether all of it has come."""
        return self._response.ended

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def __aenter__(self) -> Exchange:
        try:
            with self._watch:
                connection = self._connection = await self._origin.take()
                self._watch.heard()
                connection.expect(self._response, self._watch)
                await connection.write(self._head, self._body)
                while not self._response.status:
                    await connection.more()
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    async def block(self) -> bytes:
        """The next piece of the body, when it has come; b"" after the last."""
        assert self._connection
        pieces = self._connection.pieces
        while not pieces:
            if self._response.ended:
                return b""
            with self._watch:
                await self._connection.more()
        return pieces.popleft()

    def read_for_sense(self) -> None:
        """From here on bytes alone do not end a silence, for they may be there to keep the connection open and no more: `made_sense` does."""
        assert self._connection
        self._connection.ignore()

    def made_sense(self, silence_s: float) -> None:
        """What came last was worth waiting for; more of it is to come within so long."""
        self._watch.expect_within(silence_s)

    def _end(self) -> None:
        connection, self._connection = self._connection, None
        self._watch.stop()
        if connection is None:
            return
        if self._response.ended and self._response.kept and not connection.lost:
            self._origin.give_back(connection)
        else:
            connection.abort()


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all: to read the machine's certificates takes 25 ms."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no address of a server: it begins with http:// or https://")
    parts.hostname.encode("idna")
    _ = parts.port  # raises ValueError
    return parts


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a server."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib import request  # takes as long to load as all the rest

    found = request.getproxies_environment()
    address = found.get(url.scheme) or found.get("all")
    bypassed = request.proxy_bypass_environment(url.netloc.rpartition("@")[2], found)  # type: ignore[attr-defined]
    if not address or bypassed:
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ValueError(f"the proxy of the environment is none of HTTP: {proxy.scheme}://{proxy.hostname}")
    return proxy


def _authorization(proxy: SplitResult | None) -> str:
    if proxy is None or proxy.username is None:
        return ""
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}\r\n"


def _sound(value: str) -> str:
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError("a header with a line break in its value")
    return value
