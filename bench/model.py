"""A model that costs next to nothing: what is measured beside it is ours.

    python bench/model.py [--delay-ms N]

Prints its base URL. It speaks as much of OpenAI's protocol as modeld asks for: each answer is a stream of eight pieces, written at once over a
connection that is kept. Where the last words of the person say `rounds=N`, the first N answers are calls of `exec` with `echo hi`; where they say
`hold=S`, the first is one with `sleep S`; with `pieces=N` the answer has N pieces. It parses no JSON: what we send begins each message with its
role. `GET /_said` tells the seconds that it spent on answers, how many they were, and the bytes of the longest request. It ends when its standard
input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time

PIECES = ("Eight ", "pieces ", "of ", "an ", "answer ", "that ", "is ", "short.")
_ROUNDS, _HOLD, _PIECES = (re.compile(rb"%b=(\d+)" % name) for name in (b"rounds", b"hold", b"pieces"))
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(body: dict[str, object] | None) -> bytes:
    data = b"data: " + (json.dumps(body, separators=(",", ":")).encode() if body else b"[DONE]") + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(delta: dict[str, object], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _chunk({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1764500400, "model": "bench", "choices": [choice]})


_USAGE = _chunk({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 8}})
_END = _USAGE + _chunk(None) + b"0\r\n\r\n"
_TEXT = _HEAD + b"".join(_event({"content": piece}) for piece in PIECES) + _event({}, "stop") + _END


def _call(n: int, command: str) -> bytes:
    function = {"name": "exec", "arguments": json.dumps({"command": command})}
    call = {"index": 0, "id": f"call_{n}", "type": "function", "function": function}
    return _HEAD + _event({"tool_calls": [call]}) + _event({}, "tool_calls") + _END


def answer(body: bytes) -> bytes:
    """The whole HTTP response to a request's body."""
    last = body.rfind(b'{"role":"user"')
    done = body.count(b'{"role":"tool"', last)
    if (wanted := _ROUNDS.search(body, last)) and done < int(wanted[1]):
        return _call(done, "echo hi")
    if (hold := _HOLD.search(body, last)) and not done:
        return _call(done, f"sleep {int(hold[1])}")
    if pieces := _PIECES.search(body, last):
        return _HEAD + b"".join(_event({"content": f"piece {n} "}) for n in range(int(pieces[1]))) + _event({}, "stop") + _END
    return _TEXT


class Connection(asyncio.Protocol):
    """One connection; a request at a time."""

    spent_s, count, longest = 0.0, 0, 0
    delay_s = 0.0
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport, self.buffer, self.size = transport, bytearray(), 0

    def data_received(self, data: bytes) -> None:
        began = time.perf_counter()
        self.buffer += data
        if not self.size:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.buffer[:end]).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self.size = end + 4 + int(length or 0)
        if len(self.buffer) < self.size:
            return
        body, self.buffer, self.size = bytes(self.buffer[: self.size]), bytearray(), 0
        self._answer(body, began)

    def _answer(self, request: bytes, began: float) -> None:
        if request.startswith(b"GET"):
            told = {"data": [], "spent_s": Connection.spent_s, "count": Connection.count, "longest": Connection.longest}
            self._whole(json.dumps(told).encode())
            return
        response = answer(request)
        Connection.longest = max(Connection.longest, len(request))
        if Connection.delay_s:
            asyncio.get_running_loop().call_later(Connection.delay_s, self.transport.write, response)
        else:
            self.transport.write(response)
        Connection.count += 1
        Connection.spent_s += time.perf_counter() - began

    def _whole(self, data: bytes) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(data), data))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: sys.stdin.buffer.read1(4096) or ended.set())
    await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay-ms", type=float, default=0)
    Connection.delay_s = parser.parse_args().delay_ms / 1000
    asyncio.run(serve())


if __name__ == "__main__":
    main()
