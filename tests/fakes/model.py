"""The fake model: an OpenAI-compatible server in a process of its own, which answers by a script and remembers what it was asked.

    python -m tests.fakes.model [--port 0] [--script FILE] [--with-parent]

It prints its base URL (http://127.0.0.1:PORT/v1) and serves `/v1/chat/completions` (streamed or whole) and `/v1/models`.
Bodies are held strictly against the API's rules (400). `GET /_seen` tells the requests counted, the last bodies, how many
answers the client hung up on and how many are being given now; `POST /_script` puts another script in place and forgets
what was seen (of connections, those that came since). With --with-parent it ends when its standard input does. The script: see tests/fakes/script.py.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import deque
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.fakes.script import Refusal, Script, Speech, error_body

_KEPT = 2000  # bodies remembered


class Model:
    """What all connections share: the script and what was seen."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.use(script)

    def use(self, script: dict[str, Any]) -> None:
        self.script = Script(script)
        self.requests = 0
        self.aborted = 0
        self.connections = 0
        self.open = 0
        self.seen: deque[dict[str, Any]] = deque(maxlen=_KEPT)

    def told(self) -> dict[str, Any]:
        seen = list(self.seen)
        counts = {"requests": self.requests, "aborted": self.aborted, "open": self.open, "connections": self.connections}
        parsed = [_parsed(item["raw"]) for item in seen]
        return {**counts, "bodies": parsed, "raw": [i["raw"] for i in seen], "headers": [i["headers"] for i in seen], "at": [i["at"] for i in seen]}


def _parsed(raw: str) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


class Connection(asyncio.Protocol):
    """One keep-alive connection: a request at a time."""

    transport: asyncio.Transport

    def __init__(self, model: Model) -> None:
        self.model = model
        self.buffer = bytearray()
        self.task: asyncio.Task[None] | None = None
        self.counted = False

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
        method, path, _ = first.split(" ")
        self.task = asyncio.get_running_loop().create_task(self._answer(method, path, headers, body))

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        try:
            await self._route(method, path.partition("?")[0], headers, body)
        except Refusal as refusal:
            self.whole(refusal.status, refusal.body)
        self.task = None
        self._serve()

    async def _route(self, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
        if path == "/_seen":
            return self.whole(200, self.model.told())
        if path == "/_script":
            self.model.use(json.loads(body))
            return self.whole(200, {})
        key = self.model.script.key
        if key and headers.get("authorization") != f"Bearer {key}":
            self.model.requests += path == "/v1/chat/completions"
            raise Refusal(*error_body(401))
        if (method, path) == ("GET", "/v1/models"):
            return self.whole(200, {"object": "list", "data": self.model.script.listed()})
        if (method, path) == ("POST", "/v1/chat/completions"):
            return await self._complete(headers, body)
        raise Refusal(*error_body(404, "unknown_url", f"Unknown request URL: {method} {path}"))

    async def _complete(self, headers: dict[str, str], raw: bytes) -> None:
        model = self.model
        model.requests += 1
        model.connections += not self.counted
        self.counted = True
        model.seen.append({"raw": raw.decode("utf-8", "replace"), "headers": headers, "at": time.time()})
        asked = _parsed(raw.decode("utf-8", "replace"))
        model.script.check(asked)
        rule, said = model.script.choose(asked["messages"])
        model.open += 1
        try:
            await asyncio.sleep(rule.get("delay_s", 0))
            await self._act(rule, Speech(rule, said, model.requests), asked, len(raw))
        except asyncio.CancelledError:
            model.aborted += 1
            raise
        finally:
            model.open -= 1

    async def _act(self, rule: dict[str, Any], speech: Speech, asked: dict[str, Any], size: int) -> None:
        if rule.get("status") or rule.get("error"):
            status, body = error_body(rule.get("status", 0), rule.get("error"))
            return self.whole(status, rule.get("body", body), rule.get("headers"))
        if "body" in rule:
            return self.whole(200, rule["body"], rule.get("headers"))
        if rule.get("cut") == 0:
            return self.transport.abort()
        if asked.get("stream"):
            return await self._stream(rule, speech, asked, size)
        choice = {"index": 0, "message": speech.message(), "logprobs": None, "finish_reason": speech.finish}
        whole = {**self._head(asked, "chat.completion"), "choices": [choice], "usage": speech.usage(size)}
        return self.whole(200, whole, rule.get("headers"), cut="cut" in rule)

    def _head(self, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.model.requests}", "object": kind, "created": int(time.time()), "model": asked["model"]}

    async def _stream(self, rule: dict[str, Any], speech: Speech, asked: dict[str, Any], size: int) -> None:
        head = self._head(asked, "chat.completion.chunk")
        with_usage = (asked.get("stream_options") or {}).get("include_usage")
        extra = {"usage": None} if with_usage else {}
        self._begin(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **(rule.get("headers") or {})})
        deltas = speech.deltas()
        sent = 0
        while True:
            for delta in deltas:
                if "cut" in rule and sent >= rule["cut"]:
                    return self._cut()
                if "fail" in rule and sent >= rule.get("after", 1):
                    self._event({"error": rule["fail"]})
                    return self._end()
                self._event({**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], **extra})
                sent += 1
                if "pause_s" in rule or rule.get("endless"):
                    await asyncio.sleep(rule.get("pause_s", 0.01))
            if not rule.get("endless"):
                break
        self._event({**head, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": speech.finish}], **extra})
        if with_usage:
            self._event({**head, "choices": [], "usage": speech.usage(size)})
        self._chunk(b"data: [DONE]\n\n")
        return self._end()

    def _event(self, body: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
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
        """An answer in one piece; with `cut`, only the first half of it."""
        html = isinstance(body, str)
        data = body.encode() if html else json.dumps(body).encode()
        kind = "text/html" if html else "application/json"
        self._begin(status, {"Content-Type": kind, "Content-Length": len(data), **(headers or {})})
        self.transport.write(data[: len(data) // 2] if cut else data)
        if cut:
            self._cut()


async def serve(port: int, script: dict[str, Any], with_parent: bool) -> None:
    """Serve until cancelled or, with `with_parent`, until standard input ends."""
    loop = asyncio.get_running_loop()
    model = Model(script)
    server = await loop.create_server(lambda: Connection(model), "127.0.0.1", port, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    ended = asyncio.Event()
    if with_parent:
        loop.add_reader(sys.stdin.fileno(), lambda: sys.stdin.buffer.read1(4096) or ended.set())
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.fakes.model", description="a scripted model that speaks the API of OpenAI")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--with-parent", action="store_true", help="end when standard input ends")
    chosen = parser.parse_args()
    script = json.loads(chosen.script.read_text()) if chosen.script else {}
    asyncio.run(serve(chosen.port, script, chosen.with_parent))


if __name__ == "__main__":
    main()
