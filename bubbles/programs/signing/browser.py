"""Signing in by a browser: it is sent back to a port of this machine's loopback; where it runs elsewhere, the address that it shows is pasted.

Whoever else asks at that port is turned away, and does no harm: an answer that is not to this login is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator

from bubbles.errors import BubblesError, Rejected, TryAgain
from bubbles.providers.codex_login import CALLBACK, PORT, Browser, Codex, code_in
from bubbles.providers.tokens import Login

LASTS_S = 15 * 60.0
_HEAD_MOST, _HEAD_S = 16 << 10, 10.0
_LINE_MOST = 16 << 10
_HOSTS = ("127.0.0.1", "::1")

Answered = asyncio.Future[str]


async def by_browser(
    issuer: Codex,
    tell: Callable[[Browser, bool], None],
    complain: Callable[[str], None],
    *,
    stdin: int = -1,
    port: int = PORT,
    lasts_s: float = LASTS_S,
) -> Login:
    """The login that a browser brings back, or that is pasted at `stdin` (-1: nobody is there to paste).

    `tell` shows the address to open, and says whether the way back is open; `complain` says why what came was not it. Raises ModelError,
    TryAgain.
    """
    browser = issuer.browser()
    answered: Answered = asyncio.get_running_loop().create_future()
    async with listening(browser, answered, port) as there:
        if not there and stdin < 0:
            raise TryAgain(
                f"the port {port} of this machine is in use, and the login comes back to that", remedy="bubbles provider login openai-codex --device"
            )
        tell(browser, bool(there))
        with _reading(stdin, browser, answered, complain):
            try:
                async with asyncio.timeout(lasts_s):
                    address = await answered
            except TimeoutError as error:
                raise TryAgain("nobody signed in within a quarter of an hour", remedy="try again") from error
        return await issuer.came_back(browser, address)


@contextlib.asynccontextmanager
async def listening(browser: Browser, answered: Answered, port: int) -> AsyncIterator[list[int]]:
    """Have the way back open, at the ports that are told; none where somebody else has that port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, text = _answered(head, browser, answered)
                writer.write(_page(status, text))
                await writer.drain()
        writer.close()

    servers = []
    try:
        for host in _HOSTS:
            try:
                servers.append(await asyncio.start_server(serve, host, port, limit=_HEAD_MOST))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    break
        else:
            yield [server.sockets[0].getsockname()[1] for server in servers]
            return
        yield []
    finally:
        for server in servers:
            server.close()


def _answered(head: bytes, browser: Browser, answered: Answered) -> tuple[str, str]:
    """What a request at the way back is told."""
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    target = rest.rpartition(" ")[0]
    if method != "GET" or target.partition("?")[0] != CALLBACK:
        return "404 Not Found", "There is nothing here."
    if answered.done():
        return "200 OK", "You may close this page."
    try:
        code_in(target, browser.state)
    except Rejected:
        return "400 Bad Request", "That is not the answer to the login that waits here."
    except BubblesError:
        answered.set_result(target)
        return "200 OK", "The login was refused. The terminal says more; you may close this page."
    answered.set_result(target)
    return "200 OK", "Signed in: the terminal says the rest. You may close this page."


def _page(status: str, text: str) -> bytes:
    body = f'<!doctype html><meta charset="utf-8"><title>Bubbles</title><p>{text}</p>\n'.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"{head}Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\r\n".encode() + body


@contextlib.contextmanager
def _reading(stdin: int, browser: Browser, answered: Answered, complain: Callable[[str], None]) -> Iterator[None]:
    """Take a line that is pasted."""
    if stdin < 0:
        yield
        return
    loop, held = asyncio.get_running_loop(), bytearray()

    def come() -> None:
        try:
            data = os.read(stdin, 4096)
        except OSError:
            data = b""
        held.extend(data)
        if not data or len(held) > _LINE_MOST:
            loop.remove_reader(stdin)
        while b"\n" in held:
            line, _, rest = bytes(held).partition(b"\n")
            held[:] = rest
            _pasted(line.decode("utf-8", "replace").strip(), browser, answered, complain)

    loop.add_reader(stdin, come)
    try:
        yield
    finally:
        loop.remove_reader(stdin)


def _pasted(line: str, browser: Browser, answered: Answered, complain: Callable[[str], None]) -> None:
    if not line or answered.done():
        return
    try:
        code_in(line, browser.state)
    except Rejected as error:
        complain(f"{error.text}\n  try: {error.remedy}" if error.remedy else error.text)
        return
    except BubblesError:  # it was refused: whoever waits is told
        pass
    answered.set_result(line)
