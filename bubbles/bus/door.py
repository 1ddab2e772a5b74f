"""A daemon's door: one ROUTER socket, at which it is asked and rung.

It does not know what an operation does, and keeps nothing about a peer but the requests it is answering.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import zmq

from bubbles import __version__, log
from bubbles.bus import wire
from bubbles.bus.bound import Bound
from bubbles.bus.lock import Lock
from bubbles.bus.pulse import Pulse
from bubbles.errors import BubblesError, ProtocolError
from bubbles.paths import Home

ALIVE_S = 5.0  # a request that is being answered is never silent for longer
ALIVE = {"alive": True}

Answer = dict[str, Any] | tuple[dict[str, Any], Sequence[bytes]]
Op = Callable[["Request"], Awaitable[Answer]]


class Request:
    """One question at the door: its `op`, `body` and `blobs`. `id` is the caller's, the same when it asks again."""

    __slots__ = ("blobs", "body", "id", "op", "send")

    def __init__(self, id: str, op: str, body: dict[str, Any], blobs: list[bytes]) -> None:
        self.id, self.op, self.body, self.blobs = id, op, body, blobs
        self.send: Callable[[list[bytes]], None] = _nowhere

    def part(self, part: dict[str, Any]) -> None:
        """Send a part on the way to the reply. Never waits; a part may be missed."""
        self.send(wire.encode(wire.part(self.id, part)))


def _nowhere(frames: list[bytes]) -> None:
    """Where a request's parts go before it is being answered."""


class Door:
    """The door `name` of a home. `ops` answer requests; `on_ring` is called for each ring; `alive_s` is for tests."""

    def __init__(
        self, name: str, home: Home, ops: Mapping[str, Op], *, on_ring: Callable[[], None] | None = None, alive_s: float = ALIVE_S
    ) -> None:
        self.name, self._home = name, home
        self._ops: dict[str, Op] = {"ping": self._ping, **ops}
        self._on_ring = on_ring
        self._alive_s = alive_s
        self._lock = Lock(home, name)
        self._running: dict[tuple[bytes, str], asyncio.Task[None]] = {}
        self._socket: Bound | None = None

    async def open(self) -> None:
        """Take the lock, then bind. Raises TryAgain naming the pid where this daemon is running already."""
        self._lock.acquire()
        try:
            self._home.prepare_sockets()
            self._socket = Bound(self._home.door(self.name), zmq.ROUTER, self._take, frame_most=wire.BLOBS_MOST)
        except BaseException:
            self._lock.release()
            raise
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Stop answering: callers see the connection end and ask again when the door is back. Harmless where it is not open."""
        if self._socket is None:
            return
        for task in list(self._running.values()):
            task.cancel()
        self._socket.close()
        self._socket = None
        self._lock.release()  # last: the path belongs to whoever holds it

    @property
    def answering(self) -> int:
        """How many requests are being answered now."""
        return len(self._running)

    def _take(self, frames: list[bytes]) -> None:
        """One message, whatever it is: nothing that a peer sends may raise here."""
        peer, frames = frames[0], frames[1:]
        try:
            head, blobs = wire.decode(frames)
            if head.get("op") == "ring" and "id" not in head:
                self._ring()
                return
            self._start(peer, _request(head, blobs))
        except ProtocolError as error:
            id = wire.sender(frames)
            log.debug(f"a message that is none: {error.text}", door=self.name)
            if id:
                self._send(peer, wire.encode(wire.failure(id, error)))

    def _ring(self) -> None:
        if self._on_ring is not None:
            try:
                self._on_ring()
            except Exception:
                log.error("daemon.bug", "a ring failed", door=self.name)

    def _start(self, peer: bytes, request: Request) -> None:
        key = (peer, request.id)
        if key in self._running:  # asked again while it is being answered: the answer to come will do
            return
        op = self._ops.get(request.op)
        if op is None:
            raise ProtocolError(f"{self.name} has no operation {request.op!r}", remedy="run the same version of Bubbles everywhere")
        self._running[key] = self._loop.create_task(self._answer(peer, request, op))

    async def _answer(self, peer: bytes, request: Request, op: Op) -> None:
        pulse = Pulse(self._loop, self._alive_s, lambda: request.part(ALIVE))

        def send(frames: list[bytes]) -> None:
            pulse.heard()
            self._send(peer, frames)

        request.send = send
        try:
            answer = _reply(request, await op(request))
        except BubblesError as error:
            answer = wire.encode(wire.failure(request.id, error))
        except Exception as error:
            log.error("daemon.bug", f"{request.op} failed", door=self.name, error=error)
            answer = wire.encode(wire.failure(request.id, error))
        finally:
            pulse.stop()
            self._running.pop((peer, request.id), None)
        self._send(peer, answer)

    def _send(self, peer: bytes, frames: Sequence[bytes]) -> None:
        """To one that is gone, libzmq drops it."""
        if self._socket is not None and not self._socket.send([peer, *frames]):
            log.debug("a peer does not read what it is sent", door=self.name)

    async def _ping(self, request: Request) -> dict[str, Any]:
        return {"name": self.name, "pid": os.getpid(), "version": __version__, "ops": sorted(self._ops)}


def _request(head: dict[str, Any], blobs: list[bytes]) -> Request:
    id, op, body = head.get("id"), head.get("op"), head.get("body", {})
    if not isinstance(id, str) or not 0 < len(id) <= wire.ID_MOST:
        raise ProtocolError(f"a request's id is text of 1 to {wire.ID_MOST} characters")
    if not isinstance(op, str) or not isinstance(body, dict):
        raise ProtocolError("a request has an 'op' that is text and a 'body' that is an object")
    return Request(id, op, body, blobs)


def _reply(request: Request, answer: Answer) -> list[bytes]:
    """The frames of an answer; one that is too large, or not JSON, raises what its caller is then told."""
    body, blobs = answer if isinstance(answer, tuple) else (answer, ())
    return wire.encode(wire.reply(request.id, body), blobs)
