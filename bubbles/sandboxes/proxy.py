"""The HTTP proxy that is a jail's only way to the network: every host is checked, resolved once, and connected to by a checked address.

It serves CONNECT (a tunnel) and whole http:// URLs, one request a connection, to ports 80 and 443 alone: no mail, no ssh. It does not read
what a tunnel carries; whoever owns an allowed host may pass things on. It does not know the jail, nor where its socket came from.

A client is answered 400 for what is no plain request, 403 where a rule forbids the host (its text says which), 408 where no request comes,
413 beyond the cap of uploads, 502 and 504 where the host cannot be reached, 503 where too much is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import re
import socket
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address

from bubbles import egress
from bubbles.errors import Misconfigured, Refused
from bubbles.sandboxes import heads, relay
from bubbles.sandboxes.relay import Broken, Traffic

PORTS = (80, 443)
CONNECTIONS = 64  # of one jail at once; more wait
_TOLD_MOST = 1_000  # connections of one jail that are told one by one
_PACED_AFTER, _PACE_S = 1_000, 0.005  # from so many connections of one jail on, no more than 200 in a second: others are to be served, too
_NAMED_MOST = 20  # hosts that were refused and are named
_HEAD_S = 20.0
_RESOLVE_S = 15.0
_DIAL_S = 10.0  # for each address
_DIALLED_MOST = 4  # addresses of one host that are tried
_IDLE_S = 300.0  # nothing either way
_PART_S = 2.0  # for what a client still sends after its answer
_PIECE = 64 << 10
_SHOWN_MOST = 253
_NOTED_MOST, _NAME_MOST, _WHY_MOST = 5, 64, 120  # in a sentence: hosts, characters of each, and of the reason
_NO_NAME = "something that is no host's name"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"[a-z0-9-]{{1,15}}|(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})+", re.IGNORECASE)  # one word alone: as machines in a house are called
_WHY = re.compile(r"[a-z0-9 .:,;()'/_-]*", re.IGNORECASE)
_ASKED_PORT = re.compile(r":([0-9]{1,7})$")
_USUAL = {"http": 80, "https": 443}
_BARE = re.compile(r"[^/?#@:\\\[\]]+|\[[0-9A-Fa-f:.]+\]")
_ENDING = re.compile(r"([a-z0-9_-]{1,63}\.)*(?!0x[0-9a-f]*$)[a-z0-9_-]*[a-z_-][a-z0-9_-]*")  # the end of a name: "org"
_lookups = threading.Semaphore(256)  # of this process, those that nobody waits for any more among them
_hosts = threading.Semaphore(1024)  # connections of all jails of this process: it needs descriptors for other things
_CROWDED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}

Streams = tuple[StreamReader, StreamWriter]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Dial = Callable[[str, int], Awaitable[Streams]]


@dataclass(frozen=True, slots=True)
class Connection:
    """What became of one connection. `ok`: it reached the host; `why`: what went wrong, and `status` what the
    client was told then (403: a rule forbade the host). `host` is "" where none was asked for. Bytes are those to and from the host."""

    host: str
    port: int
    ok: bool
    why: str = ""
    sent: int = 0
    received: int = 0
    status: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """Which hosts and addresses are allowed: bubbles.egress, unless a test shows what its checks are good for."""

    check_url: Callable[[str, Collection[int]], tuple[str, str, int]] = egress.check_url
    check_addresses: Callable[[str, Iterable[str]], list[str]] = egress.check_addresses


class _Over(Exception):
    """A request that comes to nothing: the status and the reason for the client."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status, self.why = status, why


async def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of `host` as this machine's resolver finds them, in a thread that nobody waits for at the end. Raises OSError."""
    if not _lookups.acquire(blocking=False):
        raise OSError("too many names are being looked up")
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str], error: OSError | None) -> None:
        if not found.done():
            found.set_exception(error) if error else found.set_result(addresses)

    def look() -> None:
        addresses: list[str] = []
        failed: OSError | None = None
        try:
            addresses = list(dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except OSError as error:
            failed = error
        except UnicodeError:
            failed = OSError("not a name")
        finally:
            _lookups.release()
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, addresses, failed)

    try:
        threading.Thread(target=look, name="resolve", daemon=True).start()
    except RuntimeError as error:
        _lookups.release()
        raise OSError("this machine has no thread left") from error
    return await found


async def dial(address: str, port: int) -> Streams:
    """A connection to an address, which nobody resolves again. Raises OSError."""
    return await asyncio.open_connection(address, port, limit=heads.MOST)


async def over(task: asyncio.Task[None]) -> None:
    """Cancel `task` and wait for its end; raises what it failed of. Whoever is cancelled meanwhile waits as well, and is cancelled then: to suppress
    the CancelledError of the one would be to lose that of the other.
    """
    own: asyncio.CancelledError | None = None
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            own = error
    if own is not None:
        raise own
    if not task.cancelled():
        task.result()


def domains(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Names of tools.sandbox.allow_domains as labels; "*." before one is allowed and means nothing more. Raises Misconfigured.

    A name that no public host can have, or end with, is none that is ever reached.

    >>> domains(["Example.com", "*.bücher.example", "org"])
    [('example', 'com'), ('xn--bcher-kva', 'example'), ('org',)]
    """
    return [_domain(name.removeprefix("*.").removeprefix(".")) for name in names]


def _domain(name: str) -> tuple[str, ...]:
    try:
        if not _BARE.fullmatch(name):
            raise Refused(f"{ascii(name)} is not the name of a host")
        return _labels(egress.check_url(f"https://{name}/")[1])
    except Refused as error:
        plain = name.lower().removesuffix(".")
        if _ENDING.fullmatch(plain):
            return tuple(plain.split("."))
        raise Misconfigured(f"tools.sandbox.allow_domains: {error.text}", remedy="name hosts or domains, as in example.com") from None


def _labels(host: str) -> tuple[str, ...]:
    """A name's labels; an address is one."""
    return (host,) if ":" in host or host.replace(".", "").isdecimal() else tuple(host.split("."))


class Proxy:
    """What one command may reach: public hosts, of them only `allow_domains` and what is below these, if any are given.

    `told` is called once for each connection that asked for a host, when it is over. `upload_bytes` is how much all connections together may
    send (0: as much as they like). `refused` names the hosts that were refused; `note` says so in a sentence.
    """

    def __init__(
        self,
        allow_domains: Sequence[str],
        told: Callable[[Connection], None],
        *,
        resolve: Resolve = resolve,
        dial: Dial = dial,
        rules: Rules | None = None,
        ports: Collection[int] = PORTS,
        upload_bytes: int = 0,
        idle_s: float = _IDLE_S,
        head_s: float = _HEAD_S,
        pace: tuple[int, float] = (_PACED_AFTER, _PACE_S),
    ) -> None:
        self.allowed = domains(allow_domains)
        self.refused: list[str] = []
        self.resolve, self.dial, self.rules, self.ports = resolve, dial, rules or Rules(), ports
        self.upload_bytes, self.idle_s, self.head_s, self.pace = upload_bytes, idle_s, head_s, pace
        self.sent = 0
        self._told, self._count, self._rest, self._why = told, 0, [0, 0, 0], ""

    @property
    def note(self) -> str:
        """What was refused, and why the first of it was: many a client keeps that to itself. "" if nothing was.

        It stands among sentences of ours: of what a command asked for it holds names of hosts and addresses, and nothing else.
        """
        if not self.refused:
            return ""
        more = " and more" if len(self.refused) > _NOTED_MOST else ""
        return f"the network refused {', '.join(self.refused[:_NOTED_MOST])}{more}{f' ({self._why})' if self._why else ''}"

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve what connects to `listener` until the block ends; then every connection is cut. The listener is left to whoever made it."""
        accepting = asyncio.create_task(self._accept(listener), name="proxy of a jail")
        try:
            yield
        finally:
            try:
                await over(accepting)
            finally:
                self._tell_rest()

    async def _accept(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(CONNECTIONS)
        async with _Together() as together:
            for count in itertools.count():
                await asyncio.sleep(self.pace[1] if count >= self.pace[0] else 0)
                await free.acquire()
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError as error:
                    free.release()
                    if error.errno not in _CROWDED and error.errno != errno.ECONNABORTED:
                        return  # the socket is gone
                    await asyncio.sleep(0.1)
                    continue
                together.start(_Exchange(self).run(client)).add_done_callback(lambda _: free.release())

    def check(self, url: str) -> tuple[str, int]:
        """The host of a URL and its port. Raises Refused; a name that it forbids is never looked up."""
        _, host, port = self.rules.check_url(url, self.ports)
        labels = _labels(host)
        if self.allowed and not any(labels[-len(domain) :] == domain for domain in self.allowed):
            raise Refused(f"{host} is not among the hosts that tools.sandbox.allow_domains names")
        return host, port

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses of a host that `check` let pass, all of them checked. Raises Refused, or _Over where it has none."""
        if _is_address(host):
            return self.rules.check_addresses(host, [host])
        try:
            async with asyncio.timeout(_RESOLVE_S):
                found = await self.resolve(host, port)
        except TimeoutError:
            raise _Over(504, f"{host} could not be looked up within {_RESOLVE_S:g} s") from None
        except OSError as error:
            raise _Over(502, f"{host} could not be looked up: {error.strerror or error}") from None
        if not found:
            raise _Over(502, f"{host} has no address")
        return self.rules.check_addresses(host, found)

    async def connect(self, host: str, port: int, addresses: Sequence[str]) -> Streams:
        """A connection to the first of `addresses` that takes it. Raises _Over."""
        over = _Over(502, f"{host} cannot be reached")
        for address in addresses[:_DIALLED_MOST]:
            try:
                async with asyncio.timeout(_DIAL_S):
                    return await self.dial(address, port)
            except TimeoutError:
                over = _Over(504, f"{host} ({address}) did not answer within {_DIAL_S:g} s")
            except OSError as error:
                if error.errno in _CROWDED:
                    raise _Over(503, "this machine has too many connections") from None
                over = _Over(502, f"{host} ({address}) cannot be reached: {_reason(error)}")
        raise over

    def tell(self, connection: Connection) -> None:
        """Of a flood, the last are told together: it is not to wash the log away."""
        self._count += 1
        if connection.status == 403 and (name := _named(connection.host)) not in self.refused and len(self.refused) < _NAMED_MOST:
            self.refused.append(name)
            self._why = self._why or ("" if name == _NO_NAME else _reason_of(connection.why))
        if self._count <= _TOLD_MOST:
            self._told(connection)
        else:
            self._rest = [self._rest[0] + 1, self._rest[1] + connection.sent, self._rest[2] + connection.received]

    def _tell_rest(self) -> None:
        if count := self._rest[0]:
            self._told(Connection("*", 0, True, f"{count} more connections", *self._rest[1:]))


class _Exchange:
    """One client's connection, from its request to what is told of it."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._traffic = Traffic(proxy.idle_s, self._may_send)
        self._host, self._port, self._ok, self._status, self._why = "", 0, False, 0, ""

    async def run(self, client: socket.socket) -> None:
        try:
            streams = await asyncio.open_connection(sock=client, limit=heads.MOST)
        except OSError:
            client.close()
            return
        _unbuffered(streams[1])
        try:
            if await self._serve(*streams):
                await _part(*streams)
        except (ConnectionError, TimeoutError, OSError) as error:
            self._why = self._why or _reason(error)
        finally:
            streams[1].transport.abort()
            if self._host or self._status:
                self._proxy.tell(Connection(self._host, self._port, self._ok, self._why, self._traffic.sent, self._traffic.received, self._status))

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> bool:
        """Whether the client is to see an end rather than a break."""
        try:
            request = await self._request(reader)
            if request is None:
                return False
            await self._pass_on(request, (reader, writer))
        except _Over as over:
            return await self._refuse(writer, over)
        except heads.Bad as bad:
            return await self._refuse(writer, _Over(400, f"this is no request that is passed on: {bad}"))
        except Refused as refused:
            return await self._refuse(writer, _Over(403, refused.text))
        except Broken as broken:
            return await self._refuse(writer, _Over(502, str(broken)))
        return True

    async def _request(self, reader: StreamReader) -> heads.Request | None:
        """What the client asks for; None where it left before it asked for anything."""
        try:
            async with asyncio.timeout(self._proxy.head_s):
                return heads.request(await reader.readuntil(b"\r\n\r\n"))
        except TimeoutError:
            raise _Over(408, f"no request came within {self._proxy.head_s:g} s") from None
        except asyncio.LimitOverrunError:
            raise heads.Bad(f"it is longer than {heads.MOST} bytes") from None
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise heads.Bad("it does not end") from None
            return None

    async def _pass_on(self, request: heads.Request, client: Streams) -> None:
        proxy = self._proxy
        self._host, self._port = _shown(request.url), _port(request.url)
        self._host, self._port = proxy.check(request.url)
        addresses = await proxy.addresses(self._host, self._port)
        with _one_of(_hosts):
            await self._exchange(request, client, await proxy.connect(self._host, self._port, addresses))

    async def _exchange(self, request: heads.Request, client: Streams, server: Streams) -> None:
        self._ok = True
        _unbuffered(server[1])
        try:
            if request.is_tunnel:
                await self._traffic.answer(client[1], _ESTABLISHED)
                await relay.tunnel(client, server, self._traffic)
            else:
                await relay.exchange(request, _called(self._host, self._port), client, server, self._traffic)
        finally:
            server[1].transport.abort()

    def _may_send(self, count: int) -> None:
        self._proxy.sent += count
        if 0 < self._proxy.upload_bytes < self._proxy.sent:
            raise _Over(413, f"more than {self._proxy.upload_bytes} bytes were to be sent")

    async def _refuse(self, writer: StreamWriter, over: _Over) -> bool:
        """Tell the client why, unless it has been told anything else before."""
        self._status, self._why = over.status, over.why
        if self._traffic.answered:
            return False
        body = f"bubbles: {over.why}\n".encode()
        head = f"HTTP/1.1 {over.status} {HTTPStatus(over.status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode("ascii") + body)
        await writer.drain()
        return True


@contextlib.contextmanager
def _one_of(places: threading.Semaphore) -> Iterator[None]:
    if not places.acquire(blocking=False):
        raise _Over(503, "this machine has too many connections")
    try:
        yield
    finally:
        places.release()


def _is_address(host: str) -> bool:
    return len(_labels(host)) == 1


def _named(host: str) -> str:
    """A host that was refused, in a sentence of ours: what has the form of a name or an address, and else that it has none."""
    bare = host[1:-1] if host[:1] == "[" else host
    if not (_NAME.fullmatch(bare) or (":" in bare and "%" not in bare and _is_ip(bare))):
        return _NO_NAME
    return bare.lower() if len(bare) <= _NAME_MOST else f"…{bare[-_NAME_MOST:].lower()}"


def _is_ip(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def _reason_of(why: str) -> str:
    """The reason in a refusal's text, without the URL that it may begin with."""
    found = why.partition(" is refused: ")[2] or why
    return found if len(found) <= _WHY_MOST and _WHY.fullmatch(found) else ""


def _called(host: str, port: int) -> str:
    """How a request calls its server."""
    name = f"[{host}]" if ":" in host else host
    return name if port == 80 else f"{name}:{port}"


def _shown(url: str) -> str:
    """The host of a URL that is not checked yet, for those who read of its refusal."""
    host = ascii(re.sub(r":[0-9]*$", "", url.partition("://")[2].partition("/")[0]))[1:-1]
    return host if len(host) <= _SHOWN_MOST else f"{host[:_SHOWN_MOST]}…"


def _port(url: str) -> int:
    """The port that a URL asks for, whether or not it may have it; 0 for none that could be."""
    scheme, _, rest = url.partition("://")
    found = _ASKED_PORT.search(rest.partition("/")[0])
    port = int(found[1]) if found else _USUAL.get(scheme.lower(), 0)
    return port if port < 1 << 16 else 0


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).partition("(")[0].strip() or type(error).__name__


def _unbuffered(writer: StreamWriter) -> None:
    """What is drained is the kernel's then: nothing is lost when the connection is closed."""
    writer.transport.set_write_buffer_limits(0)


async def _part(reader: StreamReader, writer: StreamWriter) -> None:
    """End so that the client reads all it was sent: closed with words unread, a connection breaks, and takes the answer with it."""
    with contextlib.suppress(OSError):
        writer.write_eof()
        async with asyncio.timeout(_PART_S):
            while await reader.read(_PIECE):
                pass


class _Together:
    """Tasks that end with a block."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def __aenter__(self) -> _Together:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
