"""Network policy `public`: the way out of one jail, from the socket that its launcher hands over to the proxy that serves it.

It does not know how a jail is made. A backend starts its command through the launcher (sandbox/doorway.py) like this:

    async with public.opened(Proxy(allow_domains, public.told)) as way:
        argv = [*bwrap, "--", python, "-I", "-S", doorway, str(way.fd), "--", "/bin/bash", …]      # bwrap: --unshare-net
        env = {…, **public.VARIABLES}                                                              # of the command, by --setenv
        outcome = await spawn.run(argv, …, pass_fds=(way.fd, …))
    note = way.note                                                                                # "" or a sentence for the outcome's

The command begins when the proxy serves it, or not at all: then the launcher says so on stderr and exits with 125, and `note` says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from bubbles import log
from bubbles.sandboxes.proxy import Connection, Proxy, over

PLACE = ("127.0.0.1", 3128)  # inside the jail; also in sandbox/doorway.py
URL = f"http://{PLACE[0]}:{PLACE[1]}"
# Both spellings are read, by different programs. What a command itself serves on the jail's loopback is reached without: nobody else is there.
VARIABLES = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), URL)
VARIABLES |= dict.fromkeys(("no_proxy", "NO_PROXY"), "localhost,127.0.0.1,::1")

_HANDED_S = 30.0  # from the jail's start to the socket that comes out of it; many may be starting
_NETNS_COOKIE = 71  # SO_NETNS_COOKIE: which network a socket is of, since Linux 5.14


class NotTheWay(Exception):
    """What came out of the jail is not what its launcher hands over."""


@dataclass
class Way:
    """`fd` is the launcher's end, to be passed on to it; `why`, once it is over, why nothing could be served ("" if it was)."""

    fd: int
    proxy: Proxy
    why: str = ""

    @property
    def note(self) -> str:
        """What the reader of the command's output should know of the network: a sentence, or ""."""
        return f"the network could not be opened: {self.why}" if self.why else self.proxy.note


@contextlib.asynccontextmanager
async def opened(proxy: Proxy) -> AsyncIterator[Way]:
    """A way out for one jail, served by `proxy` until the block ends; all its connections are closed then."""
    ours, launchers = socket.socketpair()
    with ours, launchers:
        ours.setblocking(False)
        way = Way(launchers.fileno(), proxy)
        serving = asyncio.create_task(_serve(way, ours), name="way out of a jail")
        try:
            yield way
        finally:
            await over(serving)


async def _serve(way: Way, ours: socket.socket) -> None:
    try:
        async with asyncio.timeout(_HANDED_S):
            listener = await _handed(ours)
        with listener:
            check(listener)
            async with way.proxy.serving(listener):
                ours.send(b"S")
                await asyncio.get_running_loop().create_future()
    except TimeoutError:
        way.why = f"no socket came out of the jail within {_HANDED_S:g} s"
    except (NotTheWay, OSError) as error:
        way.why = str(error)
    finally:
        ours.close()  # a launcher that waits sees that nobody serves


async def _handed(ours: socket.socket) -> socket.socket:
    """The socket that comes out of the jail. Raises NotTheWay where anything else does."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        if not arrived.done():
            arrived.set_result(None)

    loop.add_reader(ours.fileno(), come)
    try:
        await arrived
    finally:
        loop.remove_reader(ours.fileno())
    _, fds, _, _ = socket.recv_fds(ours, 1, 4, socket.MSG_CMSG_CLOEXEC)
    for extra in fds[1:]:
        os.close(extra)
    if len(fds) != 1:
        for fd in fds[:1]:
            os.close(fd)
        raise NotTheWay(f"{len(fds)} descriptors came out of the jail, not one")
    try:
        return socket.socket(fileno=fds[0])
    except OSError as error:
        os.close(fds[0])
        raise NotTheWay("what came out of the jail is no socket") from error


def check(listener: socket.socket) -> None:
    """Raise NotTheWay unless it is a TCP socket that listens on PLACE of a network that is not ours."""
    if listener.family != socket.AF_INET or listener.type != socket.SOCK_STREAM or listener.proto not in (0, socket.IPPROTO_TCP):
        raise NotTheWay("the socket that came out of the jail is not TCP")
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) or listener.getsockname() != PLACE:
        raise NotTheWay(f"the socket that came out of the jail does not listen on {PLACE[0]}:{PLACE[1]}")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as own, contextlib.suppress(OSError):  # an older kernel cannot be asked
        if _network(listener) == _network(own):
            raise NotTheWay("the jail has the network of this machine")


def _network(of: socket.socket) -> bytes:
    return of.getsockopt(socket.SOL_SOCKET, _NETNS_COOKIE, 8)


def told(connection: Connection) -> None:
    """The log's entry of one connection."""
    place = f"{connection.host}:{connection.port}" if connection.port else connection.host or "no host"
    fields: dict[str, Any] = {"host": connection.host, "port": connection.port, "sent": connection.sent, "received": connection.received}
    if connection.status in (400, 403, 413):
        log.event("net.refuse", f"{place}: {connection.why}", priority="warning", **fields)
    elif not connection.ok:
        log.event("net.fail", f"{place}: {connection.why}", **fields)
    else:
        why = f"; {connection.why}" if connection.why else ""
        log.event("net.open", f"{place}: {connection.sent} bytes sent, {connection.received} received{why}", **fields)
