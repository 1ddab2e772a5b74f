"""Bytes between a client and a server, counted, with backpressure: a tunnel, or one request and its answer.

It does not know which host the server is, nor whether it may be reached. Bytes that wait for the slower side are held back at the faster one.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Callable, Coroutine

from bubbles.sandboxes import heads

_PIECE = 64 << 10
_LINGER_S = 30.0  # how long one side's silence is borne once the other has ended
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_TRAILERS_MOST = 64
_INTERIM_MOST = 16  # answers of status 1xx before the one that counts


class Broken(ConnectionError):
    """One side did not say what it has to, and cannot be understood from here on."""


class Traffic:
    """How many bytes went each way, and when the last did. `may_send(n)` is asked before n more go to the server, and raises where they may not."""

    def __init__(self, idle_s: float, may_send: Callable[[int], None]) -> None:
        self.sent = self.received = 0
        self.answered = False  # whether the client has been told anything
        self._idle_s, self._may_send = idle_s, may_send
        self._last = asyncio.get_running_loop().time()

    async def send(self, writer: StreamWriter, data: bytes) -> None:
        self._may_send(len(data))
        self.sent += len(data)
        await self._write(writer, data)

    async def receive(self, writer: StreamWriter, data: bytes) -> None:
        self.received += len(data)
        await self.answer(writer, data)

    async def answer(self, writer: StreamWriter, data: bytes) -> None:
        """What the client is told, and does not come from the server."""
        self.answered = True
        await self._write(writer, data)

    def hurry(self) -> None:
        """One side has ended; the other is not waited for as long."""
        self._idle_s = min(self._idle_s, _LINGER_S)

    async def idle(self) -> None:
        """Return when nothing has passed for long."""
        loop = asyncio.get_running_loop()
        while (left := self._last + self._idle_s - loop.time()) > 0:
            await asyncio.sleep(min(left, _LINGER_S))

    async def _write(self, writer: StreamWriter, data: bytes) -> None:
        writer.write(data)
        await writer.drain()
        self._last = asyncio.get_running_loop().time()


async def tunnel(client: tuple[StreamReader, StreamWriter], server: tuple[StreamReader, StreamWriter], traffic: Traffic) -> None:
    """Whatever comes, either way, until both sides have ended, one breaks, or nothing passes for long."""

    async def pour(reader: StreamReader, writer: StreamWriter, put: Callable[[StreamWriter, bytes], Coroutine[None, None, None]]) -> None:
        while data := await reader.read(_PIECE):
            await put(writer, data)
        traffic.hurry()
        writer.write_eof()

    up, down = pour(client[0], server[1], traffic.send), pour(server[0], client[1], traffic.receive)
    await _until_one(traffic.idle(), _both(up, down))


async def exchange(
    request: heads.Request, host: str, client: tuple[StreamReader, StreamWriter], server: tuple[StreamReader, StreamWriter], traffic: Traffic
) -> None:
    """Send one request, called by `host`, and no other; bring back its answer. Raises Broken."""
    await traffic.send(server[1], request.passed_on(host))
    answering = _answer(request.method, server[0], client[1], traffic)
    await _until_one(answering, _forever_after(_ask(request, client[0], server[1], traffic)), traffic.idle())


async def _ask(request: heads.Request, client: StreamReader, server: StreamWriter, traffic: Traffic) -> None:
    """The body, as long as it was said to be. What a client sends behind it is never read: it would be a request that nobody checked."""
    try:
        if request.length is None:
            await _chunks(client, server, traffic)
        else:
            await _exactly(request.length, client, server, traffic)
    except (ConnectionResetError, BrokenPipeError):
        return  # the server takes no more, and has perhaps said why
    if not await client.read(1):
        traffic.hurry()


async def _exactly(count: int, client: StreamReader, server: StreamWriter, traffic: Traffic) -> None:
    while count:
        data = await client.read(min(count, _PIECE))
        if not data:
            raise Broken("the client left in the middle of its request")
        count -= len(data)
        await traffic.send(server, data)


async def _chunks(client: StreamReader, server: StreamWriter, traffic: Traffic) -> None:
    while size := _size(await _line(client)):
        await traffic.send(server, b"%x\r\n" % size)
        await _exactly(size, client, server, traffic)
        if await _line(client) != b"\r\n":
            raise Broken("a chunk of the request is longer than it says")
        await traffic.send(server, b"\r\n")
    for _ in range(_TRAILERS_MOST):
        if await _line(client) == b"\r\n":
            return await traffic.send(server, b"0\r\n\r\n")
    raise Broken("the request does not end")


def _size(line: bytes) -> int:
    found = _SIZE.fullmatch(line)
    if not found:
        raise Broken("a chunk of the request does not say how long it is")
    return int(found[1], 16)


async def _line(reader: StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise Broken("the client left in the middle of its request, or its request cannot be read") from error


async def _answer(method: str, server: StreamReader, client: StreamWriter, traffic: Traffic) -> None:
    """The answer as it comes; the client is told that no other follows on this connection."""
    for _ in range(_INTERIM_MOST):
        try:
            answer = heads.answer(await server.readuntil(b"\r\n\r\n"), method)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, heads.Bad) as error:
            raise Broken(f"the answer cannot be read{f': {error}' if isinstance(error, heads.Bad) else ''}") from error
        await traffic.receive(client, answer.head)
        if answer.status >= 200:
            return await _body(answer.length, server, client, traffic)
    raise Broken("the answer does not begin")


async def _body(left: int | None, server: StreamReader, client: StreamWriter, traffic: Traffic) -> None:
    while left != 0 and (data := await server.read(_PIECE if left is None else min(left, _PIECE))):
        left = None if left is None else left - len(data)
        await traffic.receive(client, data)


async def _forever_after(work: Coroutine[None, None, None]) -> None:
    """Never returns, but raises what `work` raises."""
    await work
    await asyncio.get_running_loop().create_future()


async def _both(*works: Coroutine[None, None, None]) -> None:
    """Until all of them have returned, or one raises, which this does too; the others are cancelled then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        await _cancelled(tasks)
    for task in done:
        task.result()


async def _until_one(*works: Coroutine[None, None, None]) -> None:
    """Until the first of them returns or raises, which this does too; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _cancelled(tasks)
    for task in done:
        task.result()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
