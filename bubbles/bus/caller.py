"""Asks at one door from within a daemon: any number of questions at once over one connection.

It does not know what it asks. A connection is made when there is something to ask and ends with its peer, so
nothing wakes up for a daemon that is down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from bubbles import ids, log
from bubbles.bus import wire, zmtp
from bubbles.bus.dial import SILENCE_S, Answer, Part, no_entry, unavailable
from bubbles.bus.pulse import Pulse
from bubbles.errors import BubblesError, ProtocolError, Unavailable
from bubbles.paths import Home

__all__ = ["Answer", "Caller", "Part"]

PATIENCE_S = 5.0  # a daemon that is restarted is back within it
_FIRST_S, _LONGEST_S = 0.02, 0.5  # between two tries to connect
_QUEUED_MOST = 256 << 20  # bytes that a peer which does not read may leave in our memory


class Caller:
    """Asks at the door `name` of a home, on the running loop. `patience_s`: how long a closed door is tried before it is Unavailable."""

    def __init__(self, home: Home, name: str, *, patience_s: float = PATIENCE_S) -> None:
        self._path = home.door(name).removeprefix("ipc://")
        self._name = name
        self._patience_s = patience_s
        self._line: _Line | None = None
        self._connecting: _Connecting | None = None
        self._ringing: set[asyncio.Task[None]] = set()
        self._calls: dict[str, _Call] = {}

    async def call(
        self,
        op: str,
        body: dict[str, Any] | None = None,
        blobs: Sequence[bytes] = (),
        *,
        on_part: Part | None = None,
        id: str | None = None,
        timeout_s: float = SILENCE_S,
    ) -> Answer:
        """The reply's body and blobs. `on_part` is given each part but the alive ones; what it raises ends the call.

        Raises the BubblesError that the reply tells; Unavailable where nobody listens, or nothing was heard for `timeout_s`. Where the
        daemon ends before it answers, the same request is sent once more to its successor.
        """
        id = id or ids.fresh("q")
        if id in self._calls:
            raise ValueError(f"{id} is being asked already")
        frames = wire.encode(wire.request(id, op, body or {}), blobs)
        call = self._calls[id] = _Call(on_part)
        try:
            try:
                return await self._ask(call, frames, timeout_s)
            except _Ended:
                return await self._ask(call, frames, timeout_s)
        except _Ended:
            raise unavailable(self._name, "ended twice before it answered") from None
        finally:
            del self._calls[id]

    def ring(self) -> asyncio.Task[None]:
        """Ring, once and now; lost where nobody listens. It may be awaited and need not be."""
        task = asyncio.get_running_loop().create_task(self._ring())
        self._ringing.add(task)
        task.add_done_callback(self._ringing.discard)
        return task

    def close(self) -> None:
        """Hang up. Calls in flight raise Unavailable."""
        for task in (*self._ringing, *([self._connecting.task] if self._connecting else [])):
            task.cancel()
        self._connecting = None
        error = unavailable(self._name, "is no longer asked")
        for call in self._calls.values():
            call.given_up = error
        self._hang_up(error)

    async def _ask(self, call: _Call, frames: list[bytes], timeout_s: float) -> Answer:
        loop = asyncio.get_running_loop()
        line = self._line or await self._connected(self._patience_s)
        if call.given_up is not None:
            raise call.given_up
        call.answer = loop.create_future()
        call.pulse = Pulse(loop, timeout_s, lambda: call.fail(unavailable(self._name, f"was silent for {timeout_s:g} s")))
        try:
            line.send(frames)
            return await call.answer
        finally:
            call.pulse.stop()
            call.pulse = None

    async def _connected(self, patience_s: float) -> _Line:
        """The line. One attempt for all who wait: one who is cancelled leaves it to the others. Raises Unavailable, or _Ended."""
        while self._line is None:
            attempt = self._connecting
            if attempt is None or attempt.task.done():
                attempt = self._connecting = _Connecting(patience_s, self._connect(patience_s))
            await asyncio.wait([attempt.task])
            if attempt.task.cancelled():
                raise unavailable(self._name, "is no longer asked")
            if attempt.patience_s < patience_s and isinstance(attempt.task.exception(), Unavailable):
                continue  # it was a ring's
            attempt.task.result()
            if self._line is None:
                raise _Ended
        return self._line

    async def _connect(self, patience_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline, wait_s = loop.time() + patience_s, _FIRST_S
        while True:
            try:
                self._line = await self._try()
                return
            except OSError as error:
                if loop.time() + wait_s > deadline:
                    raise unavailable(self._name, no_entry(error)) from error
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_S)

    async def _try(self) -> _Line:
        _, line = await asyncio.get_running_loop().create_unix_connection(lambda: _Line(self), self._path)
        try:
            async with asyncio.timeout(SILENCE_S):  # not wait_for, which may swallow a cancellation that comes with the result
                await line.ready
        except TimeoutError:
            line.abort()
            raise unavailable(self._name, f"was silent for {SILENCE_S:g} s") from None
        except BaseException:
            line.abort()
            raise
        return line

    async def _ring(self) -> None:
        try:
            line = self._line or await self._connected(0)
            line.send(wire.encode(wire.ring()))
        except (Unavailable, ProtocolError, _Ended):
            log.debug("rang, and nobody was there", door=self._name)

    def _heard(self, frames: list[bytes]) -> None:
        """A message of the peer's. One that answers nothing of ours is let go: it is late, or meant for a newer caller."""
        head, blobs = wire.decode(frames)
        call = self._calls.get(str(head.get("re", "")))
        if call is None or call.pulse is None:
            return
        call.pulse.heard()
        if "part" in head:
            call.told(head["part"])
        elif isinstance(outcome := wire.outcome(head), BubblesError):
            call.fail(outcome)
        elif not call.answer.done():
            call.answer.set_result((outcome, blobs))

    def _hang_up(self, error: Exception) -> None:
        if self._line is not None:
            self._line.abort()
            self._line = None
        for call in self._calls.values():
            call.fail(error)


class _Ended(Exception):
    """The connection ended before the answer came."""


class _Connecting:
    """An attempt to connect, and how patient whoever began it is."""

    def __init__(self, patience_s: float, attempt: Coroutine[Any, Any, None]) -> None:
        self.patience_s = patience_s
        self.task = asyncio.get_running_loop().create_task(attempt)
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())  # whoever waited may be gone


class _Call:
    """One question in flight."""

    def __init__(self, on_part: Part | None) -> None:
        self.on_part = on_part
        self.answer: asyncio.Future[Answer]
        self.pulse: Pulse | None = None  # while it waits for its answer
        self.given_up: Exception | None = None

    def told(self, part: Any) -> None:
        if self.on_part is None or not isinstance(part, dict) or part.get("alive") is True:
            return
        try:
            self.on_part(part)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        if self.pulse is not None and not self.answer.done():
            self.answer.set_exception(error)


class _Line(asyncio.Protocol):
    """The connection of a Caller."""

    def __init__(self, owner: Caller) -> None:
        self._owner = owner
        self._reader = zmtp.Reader()
        self._transport: asyncio.Transport
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())  # who waited for it may be gone

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(zmtp.hello("DEALER"))

    def data_received(self, data: bytes) -> None:
        try:
            for frames in self._reader.feed(data):
                self._owner._heard(frames)
        except ProtocolError as error:
            self._end(error)
        else:
            if self._reader.ready and not self.ready.done():
                self.ready.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(_Ended())

    def _end(self, error: Exception) -> None:
        self._transport.abort()
        if not self.ready.done():
            self.ready.set_exception(ConnectionResetError() if isinstance(error, _Ended) else error)
        if self._owner._line is self:
            self._owner._hang_up(error)

    def send(self, frames: list[bytes]) -> None:
        """Raises Unavailable where the peer has left too much unread."""
        if self._transport.get_write_buffer_size() > _QUEUED_MOST:
            raise unavailable(self._owner._name, "does not read what it is sent")
        self._transport.write(zmtp.encode(frames))

    def abort(self) -> None:
        self._transport.abort()
