"""Which HTTP client should speak to models? Ours (providers/origin.py), aiohttp, httpx and a bare asyncio.Protocol, against the fake model.

    python bench/http_client.py [--calls 400]

Each client runs in a process of its own with a request of 28 kB. Printed, as a Markdown table: CPU ms of the client's
process a call, and wall ms a call, for 1 and 50 in parallel, whole and streamed (8 and 200 chunks); CPU ms and MiB that
the import costs. The bare Protocol does plain HTTP to one host and nothing else (no TLS, proxy or redirect): it is the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fakes.start import model  # noqa: E402

CLIENTS = ("protocol", "ours", "aiohttp", "httpx")
IMPORTS = {"ours": "bubbles.providers.origin", "aiohttp": "aiohttp", "httpx": "httpx"}
CASES = [(1, 0), (1, 8), (1, 200), (50, 0), (50, 8), (50, 200)]  # in parallel, chunks (0: whole)
Call = Callable[[bytes, bool], Awaitable[int]]  # body, streamed → length of the text


def body(chunks: int) -> bytes:
    """A request as an agent sends it: 8 kB of prompt, 20 kB of tool schemas."""
    parameters = {"type": "object", "properties": {f"p{n}": {"type": "string", "description": "what this parameter means " * 4} for n in range(12)}}
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "description": "does it", "parameters": parameters}} for n in range(12)]
    messages = [{"role": "system", "content": "a rule that matters " * 400}, {"role": "user", "content": f"chunks={chunks}."}]
    asked: dict[str, Any] = {"model": "fake", "messages": messages, "tools": tools, "stream": chunks > 0}
    return json.dumps(asked | ({"stream_options": {"include_usage": True}} if chunks else {})).encode()


def text_of(line: bytes) -> int:
    """The length of the text in one line of an event stream."""
    if not line.startswith(b"data: {"):
        return 0
    choices = json.loads(line[6:])["choices"]
    return len(choices[0]["delta"].get("content") or "") if choices else 0


def whole_of(data: bytes) -> int:
    return len(json.loads(data)["choices"][0]["message"]["content"])


async def with_aiohttp(url: str, work: Callable[[Call], Awaitable[None]]) -> None:
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(data: bytes, streamed: bool) -> int:
            async with session.post(url, data=data, headers={"Content-Type": "application/json"}) as response:
                if not streamed:
                    return whole_of(await response.read())
                count, rest = 0, b""
                async for block in response.content.iter_any():
                    *lines, rest = (rest + block).split(b"\n")
                    count += sum(map(text_of, lines))
                return count

        await work(call)


async def with_ours(url: str, work: Callable[[Call], Awaitable[None]]) -> None:
    from bubbles.providers.origin import Origin

    origin, path = Origin(url), urlsplit(url).path

    async def call(data: bytes, streamed: bool) -> int:
        async with origin.request("POST", path, {"Content-Type": "application/json"}, data, silence_s=60, total_s=600) as response:
            count, body = 0, b""
            while block := await response.block():
                *lines, body = (body + block).split(b"\n") if streamed else (body + block,)
                count += sum(map(text_of, lines))
            return count if streamed else whole_of(body)

    await work(call)
    await origin.close()


async def with_httpx(url: str, work: Callable[[Call], Awaitable[None]]) -> None:
    import httpx

    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None), timeout=60, trust_env=False) as client:

        async def call(data: bytes, streamed: bool) -> int:
            headers = {"Content-Type": "application/json"}
            if not streamed:
                return whole_of((await client.post(url, content=data, headers=headers)).content)
            count, rest = 0, b""
            async with client.stream("POST", url, content=data, headers=headers) as response:
                async for block in response.aiter_bytes():
                    *lines, rest = (rest + block).split(b"\n")
                    count += sum(map(text_of, lines))
            return count

        await work(call)


class Bare(asyncio.Protocol):
    """One keep-alive connection that counts the text of one answer at a time."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, head: bytes, data: bytes) -> asyncio.Future[int]:
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.buffer, self.count, self.size, self.chunked = b"", 0, -1, False
        self.transport.write(head % len(data) + data)
        return self.done

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.size < 0:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            self.buffer = self.buffer[end + 4 :]
            self.chunked = b"transfer-encoding: chunked" in head
            self.size = 0 if self.chunked else int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
        if self.chunked:
            self._lines()
        elif len(self.buffer) >= self.size:
            self.done.set_result(whole_of(self.buffer))

    def _lines(self) -> None:
        while (at := self.buffer.find(b"\r\n")) >= 0:
            size = int(self.buffer[:at], 16)
            if len(self.buffer) < at + size + 4:
                return
            if not size:
                self.done.set_result(self.count)
                return
            self.count += sum(map(text_of, self.buffer[at + 2 : at + 2 + size].split(b"\n")))
            self.buffer = self.buffer[at + size + 4 :]


async def with_protocol(url: str, work: Callable[[Call], Awaitable[None]]) -> None:
    parts = urlsplit(url)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n".encode()
    free: list[Bare] = []

    async def call(data: bytes, streamed: bool) -> int:
        if free:
            connection = free.pop()
        else:
            _, connection = await asyncio.get_running_loop().create_connection(Bare, parts.hostname, parts.port)
        try:
            return await connection.ask(head, data)
        finally:
            free.append(connection)

    await work(call)


async def measure(url: str, client: str, calls: int) -> dict[str, Any]:
    """CPU and wall ms a call for each case, in this process."""
    found: dict[str, Any] = {}

    async def work(call: Call) -> None:
        for parallel, chunks in CASES:
            data = body(chunks)
            count = max(parallel, calls // (4 if chunks == 200 else 1))
            await asyncio.gather(*(call(data, chunks > 0) for _ in range(parallel)))
            left = iter(range(count))

            async def one(data: bytes = data, chunks: int = chunks, left: Any = left) -> None:
                for _ in left:
                    assert await call(data, chunks > 0) == 1600

            cpu, wall = time.process_time(), time.perf_counter()
            await asyncio.gather(*(one() for _ in range(parallel)))
            found[f"{parallel}/{chunks}"] = ((time.process_time() - cpu) / count * 1e3, (time.perf_counter() - wall) / count * 1e3)

    await {"ours": with_ours, "aiohttp": with_aiohttp, "httpx": with_httpx, "protocol": with_protocol}[client](url + "/chat/completions", work)
    return found


def child(url: str, client: str, calls: int) -> None:
    cpu, rss = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if client in IMPORTS:
        __import__(IMPORTS[client])
    cost = ((time.process_time() - cpu) * 1e3, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - rss) / 1024)
    print(json.dumps({"import": cost, **asyncio.run(measure(url, client, calls))}))


def compare(calls: int) -> None:
    text = "eight by" * 200
    rules = [{"when": f"chunks={n}.", "reply": text, "chunks": n or 1} for n in (0, 8, 200)]
    with model({"rules": rules}) as fake:
        rows = {}
        for client in CLIENTS:
            argv = [sys.executable, __file__, "--calls", str(calls), "--child", client, fake.url]
            rows[client] = json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout)
    cases = [f"{p}/{c}" for p, c in CASES]
    print("| client | import: CPU ms, MiB | " + " | ".join(f"{p} at once, {f'{c} chunks' if c else 'whole'}" for p, c in CASES) + " |")
    print("|---" * (len(cases) + 2) + "|")
    for client, row in rows.items():
        print(
            f"| {client} | {row['import'][0]:.0f}, {row['import'][1]:.0f} | " + " | ".join(f"{row[c][0]:.2f} / {row[c][1]:.2f}" for c in cases) + " |"
        )
    print("\nEach cell: CPU ms / wall ms a call.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--child", nargs=2, metavar=("CLIENT", "URL"))
    chosen = parser.parse_args()
    if chosen.child:
        child(chosen.child[1], chosen.child[0], chosen.calls)
    else:
        compare(chosen.calls)


if __name__ == "__main__":
    main()
