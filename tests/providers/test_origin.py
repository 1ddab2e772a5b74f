"""Speaking HTTP to one server: connections that are kept and those that are not, time-outs, TLS and proxies; each request is made once."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles.providers import origin as module
from bubbles.providers.http1 import Broken
from bubbles.providers.origin import Exchange, Origin

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """A server that takes whole requests and hands each to `answer`. `heads` and `sizes` are those it got, `lines` how many connections."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.sizes: list[int] = []
        self.lines = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[..., Awaitable[None]]) -> None:
        self.lines += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")), 0)
                self.sizes.append(len(await reader.readexactly(length)))
                self.heads.append(head)
                await answer(reader, writer, head)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def well(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
    writer.write(OK)


@asynccontextmanager
async def server(answer: Callable[..., Awaitable[None]] = well, **more: Any) -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(lambda r, w: made.serve(r, w, answer), "127.0.0.1", 0, **more)
    made.port = listening.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        listening.close()


async def get(origin: Origin, path: str = "/v1/models", body: bytes = b"", *, silence_s: float = 5, total_s: float = 10, **headers: str) -> bytes:
    async with origin.request("POST", path, headers, body, silence_s=silence_s, total_s=total_s) as response:
        assert response.status == 200
        return await rest(response)


async def rest(response: Exchange) -> bytes:
    data = b""
    while block := await response.block():
        data += block
    return data


def run(work: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20):
            await work

    asyncio.run(whole())


def test_a_connection_is_kept_and_one_more_is_made_only_beside_it() -> None:
    async def work() -> None:
        async with server() as there:
            origin = Origin(f"http://127.0.0.1:{there.port}")
            for _ in range(3):
                assert await get(origin) == b"ok"
            assert there.lines == 1
            await asyncio.gather(*(get(origin) for _ in range(3)))
            assert there.lines == 3
            assert there.heads[0].startswith(f"POST /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{there.port}\r\n")
            await origin.close()

    run(work())


@pytest.mark.parametrize("ending", [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK + b"HTTP/1.1 200 OK\r\n"])
def test_a_connection_that_is_not_kept_is_not_used_again(ending: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(ending)

    async def work() -> None:
        async with server(answer) as there:
            origin = Origin(f"http://127.0.0.1:{there.port}")
            assert [await get(origin) for _ in range(2)] == [b"ok", b"ok"]
            assert there.lines == 2

    run(work())


def test_a_kept_connection_that_ended_meanwhile_is_left_alone() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(OK)
        await writer.drain()
        writer.close()

    async def work() -> None:
        async with server(answer) as there:
            origin = Origin(f"http://127.0.0.1:{there.port}")
            for _ in range(5):
                assert await get(origin) == b"ok"
                await asyncio.sleep(0.02)  # what the server did arrives
            assert len(there.heads) == 5

    run(work())


def test_a_request_that_was_cut_is_not_made_again() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.close()

    async def work() -> None:
        async with server(answer) as there:
            with pytest.raises(ConnectionError):
                await get(Origin(f"http://127.0.0.1:{there.port}"))
            assert len(there.heads) == 1

    run(work())


def test_megabytes_go_out_and_come_back() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + bytes(9_000_000))

    async def work() -> None:
        async with server(answer) as there:
            origin = Origin(f"http://127.0.0.1:{there.port}")
            async with origin.request("POST", "/", {}, bytes(5_000_000), silence_s=5, total_s=10) as response:
                await asyncio.sleep(0.3)  # the reader dawdles
                assert len(await rest(response)) == 9_000_000
            assert there.sizes == [5_000_000]
            assert await get(origin, body=b"x") == bytes(9_000_000)
            assert there.lines == 1

    run(work())


def test_an_answer_that_comes_before_the_request_was_read_is_an_answer() -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(1)
        writer.close()

    async def work() -> None:
        there = await asyncio.start_server(early, "127.0.0.1", 0)
        origin = Origin(f"http://127.0.0.1:{there.sockets[0].getsockname()[1]}")
        async with origin.request("POST", "/", {}, bytes(40_000_000), silence_s=5, total_s=10) as response:
            assert response.status == 413
        there.close()

    run(work())


async def _dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def _mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(("answer", "silence_s", "total_s"), [(_mute, 0.2, 30), (_dripping, 5, 0.4)])
def test_no_wait_is_longer_than_it_may(answer: Any, silence_s: float, total_s: float) -> None:
    async def work() -> None:
        async with server(answer) as there:
            with pytest.raises(TimeoutError):
                await get(Origin(f"http://127.0.0.1:{there.port}"), silence_s=silence_s, total_s=total_s)

    run(work())


def test_a_drip_is_no_silence_and_a_slow_reader_is_none_either() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
        for _ in range(6):
            writer.write(b"x")
            await asyncio.sleep(0.1)

    async def work() -> None:
        async with server(answer) as there:
            asked = Origin(f"http://127.0.0.1:{there.port}").request("POST", "/", {}, b"", silence_s=0.3, total_s=10)
            async with asked as response:
                got = await response.block()
                await asyncio.sleep(0.5)
                assert got + await rest(response) == b"xxxxxx"

    run(work())


def test_cancelled_it_is_cancelled_and_the_connection_ends() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        await reader.read()
        ended.set()

    async def work() -> None:
        async with server(answer) as there:
            asking = asyncio.create_task(get(Origin(f"http://127.0.0.1:{there.port}")))
            while not there.heads:
                await asyncio.sleep(0.01)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await ended.wait()

    run(work())


@pytest.mark.parametrize("url", ["ftp://example.org", "http://", "example.org/v1", "http://127.0.0.1:99999", "http://[::1"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Origin(url)


def test_a_header_cannot_hold_another() -> None:
    with pytest.raises(ValueError, match="line break"):
        Origin("http://127.0.0.1:1").request("GET", "/", {"X-Team": "a\r\nX-Admin: 1"}, b"", silence_s=1, total_s=1)


# -- TLS and proxies -----------------------------------------------------------------------------


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's side of TLS for 127.0.0.1, which this process trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    module._tls.cache_clear()
    yield context
    module._tls.cache_clear()


def test_by_tls(certified: ssl.SSLContext) -> None:
    async def work() -> None:
        async with server(ssl=certified) as there:
            origin = Origin(f"https://127.0.0.1:{there.port}")
            assert [await get(origin, body=bytes(1_000_000)) for _ in range(2)] == [b"ok", b"ok"]
            assert there.lines == 1
            await origin.close()

    run(work())


def test_a_certificate_of_nobody_known_is_refused(certified: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    module._tls.cache_clear()

    async def work() -> None:
        async with server(ssl=certified) as there:
            with pytest.raises(ssl.SSLCertVerificationError):
                await get(Origin(f"https://127.0.0.1:{there.port}"))
            assert there.heads == []

    run(work())


async def _piping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
    """A proxy: CONNECT opens a pipe to the server; another request is answered as by the server."""
    if not head.startswith("CONNECT"):
        writer.write(OK)
        return
    host, _, port = head.split(" ")[1].partition(":")
    far, there = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()

    await asyncio.gather(copy(reader, there), copy(far, writer))


def test_through_a_proxy_by_tls(certified: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with server(ssl=certified) as there, server(_piping) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://ann:s%3Acret@127.0.0.1:{proxy.port}")
            origin = Origin(f"https://127.0.0.1:{there.port}")
            assert [await get(origin) for _ in range(2)] == [b"ok", b"ok"]
            assert proxy.heads[0].startswith(f"CONNECT 127.0.0.1:{there.port} HTTP/1.1\r\n")
            assert "Proxy-Authorization: Basic YW5uOnM6Y3JldA==" in proxy.heads[0]
            assert len(proxy.heads) == 1
            assert "Proxy-Authorization" not in there.heads[0]
            await origin.close()

    run(work())


def test_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with server(_piping) as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("no_proxy", "here.test")
            assert await get(Origin("http://far.test:8000"), "/v1/x?y=z") == b"ok"
            assert proxy.heads[0].startswith("POST http://far.test:8000/v1/x?y=z HTTP/1.1\r\nHost: far.test:8000\r\n")
            with pytest.raises(OSError, match=r"."):
                await get(Origin("http://here.test:8000"))
            with pytest.raises(OSError, match=r"."):
                await get(Origin("http://far.test:8000", proxied=False))
            assert len(proxy.heads) == 1

    run(work())


def test_a_proxy_that_refuses_and_one_of_another_kind(monkeypatch: pytest.MonkeyPatch, certified: ssl.SSLContext) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    async def work() -> None:
        async with server(refuses) as proxy:
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
            with pytest.raises(Broken, match="407"):
                await get(Origin("https://far.test"))
        monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
        with pytest.raises(ValueError, match="proxy"):
            Origin("https://far.test")

    run(work())
