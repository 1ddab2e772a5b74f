"""HTTP as the fakes of models speak it: connections that stay open, answers in one piece or streamed, and every way to break one off.

It does not know any model's protocol. `GET /_seen` tells what was asked, `POST /_script` puts another script in place and forgets what was seen.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, ClassVar

from tests.fakes.script import Refusal, Script

_KEPT = 2000  # requests remembered


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came. `headers` by lower-case name."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw: str
    at: float

    @property
    def body(self) -> Any:
        """What its JSON says; None where it is none."""
        try:
            return json.loads(self.raw)
        except ValueError:
            return None


class Model:
    """What all connections share: the script and what was seen."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.use(script)

    def use(self, script: dict[str, Any]) -> None:
        self.script = Script(script)
        self.requests = self.aborted = self.connections = self.open = 0
        self.seen: deque[Asked] = deque(maxlen=_KEPT)

    def told(self) -> dict[str, Any]:
        counts = {"requests": self.requests, "aborted": self.aborted, "open": self.open, "connections": self.connections}
        asked = list(self.seen)
        told = {"bodies": [a.body for a in asked], "raw": [a.raw for a in asked], "headers": [a.headers for a in asked]}
        return {**counts, **told, "paths": [a.path for a in asked], "at": [a.at for a in asked]}


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request at a time. A protocol of a model is a subclass with a `route`."""

    transport: asyncio.Transport
    signs: ClassVar[dict[str, bytes]] = {"comment": b": still here\n\n"}  # of life in a stream that stands still

    def __init__(self, model: Model) -> None:
        self.model = model
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.is_counted = False

    async def route(self, asked: Asked) -> None:
        """Answer a request; each fake says how. Raises Refusal."""
        raise Refusal(404, "this fake answers nothing")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._serve()

    def connection_lost(self, error: Exception | None) -> None:
        if self.task:
            self.task.cancel()

    def _serve(self) -> None:
        """Begin the next request that lies in the buffer whole, if none is being answered."""
        end = self.buffer.find(b"\r\n\r\n")
        if self.task or end < 0:
            return
        first, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", "0"))
        if len(self.buffer) < end + 4 + size:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + size])
        del self.buffer[: end + 4 + size]
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        asked = Asked(method, path, query, headers, body.decode("utf-8", "replace"), time.time())
        self.task = asyncio.get_running_loop().create_task(self._answer(asked))

    async def _answer(self, asked: Asked) -> None:
        try:
            await self._control(asked)
        except Refusal as refusal:
            self.whole(refusal.status, refusal.body)
        self.task = None
        self._serve()

    async def _control(self, asked: Asked) -> None:
        if asked.path == "/_seen":
            return self.whole(200, self.model.told())
        if asked.path == "/_script":
            self.model.use(asked.body)
            return self.whole(200, {})
        return await self.route(asked)

    # -- for the protocols -------------------------------------------------------------------------

    def note(self, asked: Asked) -> None:
        """Count a question to the model and remember it, whatever comes of it."""
        model = self.model
        model.requests += 1
        model.connections += not self.is_counted
        self.is_counted = True
        model.seen.append(asked)

    async def play(self, rule: dict[str, Any], answer: Callable[[], Any]) -> None:
        """Await `answer()`, later or never where the rule says so; one that the client does not wait for is counted."""
        model = self.model
        model.open += 1
        try:
            await (forever() if rule.get("never") else asyncio.sleep(rule.get("delay_s", 0)))
            if rule.get("cut") == 0:
                return self.transport.abort()
            await answer()
        except asyncio.CancelledError:
            model.aborted += 1
            raise
        finally:
            model.open -= 1

    async def stream(
        self, rule: dict[str, Any], pieces: Sequence[bytes], ending: Iterable[bytes], *, failed: bytes = b"", kind: str = "text/event-stream"
    ) -> None:
        """An answer in pieces, as the rule says: whole, endless, cut, stalled, or with `failed` after some in place of the rest."""
        self._begin(200, {"Content-Type": kind, "Transfer-Encoding": "chunked", **(rule.get("headers") or {})})
        sent = 0
        while True:
            for piece in pieces:
                if "cut" in rule and sent >= rule["cut"]:
                    return self._cut()
                if sent == rule.get("ends"):
                    return self._end()
                if sent == rule.get("stall"):
                    await self._stand_still(rule.get("alive", ""))
                if failed and sent >= rule.get("after", 1):
                    self.chunk(failed)
                    return self._end()
                self.chunk(piece)
                sent += 1
                if "pause_s" in rule or rule.get("endless"):
                    await asyncio.sleep(rule.get("pause_s", 0.01))
            if not rule.get("endless"):
                break
        for piece in ending:
            self.chunk(piece)
        return self._end()

    async def _stand_still(self, alive: str) -> None:
        while alive:
            self.chunk(self.signs[alive])
            await asyncio.sleep(0.02)
        await forever()

    def chunk(self, data: bytes) -> None:
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _end(self) -> None:
        self.transport.write(b"0\r\n\r\n")

    def _cut(self) -> None:
        """Hand over what was written, then close without the ending that HTTP asks for."""
        self.task = None
        self.transport.close()

    def _begin(self, status: int, headers: dict[str, Any]) -> None:
        phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Unknown"
        lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode())

    def whole(self, status: int, body: Any, headers: dict[str, Any] | None = None, *, cut: bool = False) -> None:
        """An answer in one piece; with `cut`, only the first half of it. A text is sent as a page."""
        html = isinstance(body, str)
        data = body.encode() if html else json.dumps(body).encode()
        kind = "text/html" if html else "application/json"
        self._begin(status, {"Content-Type": kind, "Content-Length": len(data), **(headers or {})})
        self.transport.write(data[: len(data) // 2] if cut else data)
        if cut:
            self._cut()


async def forever() -> None:
    """Until whoever waits is cancelled."""
    await asyncio.get_running_loop().create_future()


def event(body: Any, name: str = "") -> bytes:
    """One event of a stream, named or not."""
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(body).encode() + b"\n\n"


async def serve(protocol: type[Connection], root: str, port: int, script: dict[str, Any], with_parent: bool) -> None:
    """Serve until cancelled or, with `with_parent`, until standard input ends; the base URL, which ends in `root`, is printed first."""
    loop = asyncio.get_running_loop()
    model = Model(script)
    server = await loop.create_server(lambda: protocol(model), "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{root}", flush=True)
    ended = asyncio.Event()
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: os.read(sys.stdin.fileno(), 4096) or ended.set())  # type: ignore[func-returns-value]
    await ended.wait()


def arguments(prog: str, description: str) -> argparse.ArgumentParser:
    """The command line of a fake."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    return parser
