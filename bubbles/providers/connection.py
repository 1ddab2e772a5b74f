"""One connection to a server that is spoken HTTP to, and how long it may keep one waiting. It does not know which server, nor what is asked."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

from bubbles.providers.http1 import Broken, Response

_PIECE = 256 << 10  # bytes of a body that are written at a time
_UNREAD_MOST = 4 << 20  # bytes of an answer that may wait to be read


class Watch:
    """Bounds a silence, and the whole. Within it a wait that takes too long is cancelled and becomes a TimeoutError.

    One timer serves all waits of an exchange: hearing only notes the time, and the timer looks when it is due.
    """

    def __init__(self, silence_s: float, total_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._last = self._loop.time()
        self._end = self._last + total_s
        self._task: asyncio.Task[object] | None = None
        self._over = False
        self._cancelling = 0
        self._timer = self._loop.call_at(min(self._last + silence_s, self._end), self._look)

    def heard(self) -> None:
        self._last = self._loop.time()

    def expect_within(self, silence_s: float) -> None:
        """It was heard just now, and is to be heard again within so long."""
        self.heard()
        if silence_s != self._silence_s:
            self._silence_s = silence_s
            self._timer.cancel()
            self._timer = self._loop.call_at(min(self._last + silence_s, self._end), self._look)

    def stop(self) -> None:
        self._timer.cancel()

    def __enter__(self) -> None:
        if self._over:
            raise TimeoutError
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        task, self._task = self._task, None
        if self._over and task and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _look(self) -> None:
        due = min(self._last + self._silence_s, self._end)
        if self._loop.time() < due - 0.001:
            self._timer = self._loop.call_at(due, self._look)
            return
        if self._loop.time() < self._end and self._task is None:  # whoever reads is busy with what came: that is no silence
            self._last = self._loop.time()
            self._timer = self._loop.call_at(min(self._last + self._silence_s, self._end), self._look)
            return
        self._over = True
        if self._task:
            self._task.cancel()


class Connection(asyncio.Protocol):
    """One connection; a request at a time."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.response = Response()
        self.response.ended = True
        self.pieces: deque[bytes] = deque()
        self.lost = False
        self.free_since = 0.0
        self._watch: Watch | None = None
        self._unread = 0
        self._error: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._full = False  # the kernel takes no more for now

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(high=1, low=0)

    def expect(self, response: Response, watch: Watch | None = None) -> None:
        """What comes from here on belongs to `response`."""
        self.response, self._watch = response, watch
        self.pieces.clear()

    def ignore(self) -> None:
        """That something comes is no sign of life any more: whoever reads it says what is one."""
        self._watch = None

    async def write(self, head: bytes, body: bytes) -> None:
        """Hand a request to the kernel: piece by piece where it is large, for what waits in memory is copied again and again.

        A server that answers, or hangs up, before it has read all is not written to any further.
        """
        if len(body) <= _PIECE:
            self.transport.write(head + body)
            return
        self.transport.write(head)
        view = memoryview(body)
        for at in range(0, len(body), _PIECE):
            while self._full and not self.lost and not self.response.begun:
                await self._wait()
            if self.lost or self.response.begun:
                self.response.kept = False
                return
            if self._watch:
                self._watch.heard()
            self.transport.write(view[at : at + _PIECE])

    async def more(self) -> None:
        """Return when more has come. Raises OSError where none will."""
        if self._error:
            raise self._error
        if self.lost:
            raise Broken("the connection was closed")
        self.transport.resume_reading()
        self._unread = 0
        await self._wait()
        if self._error and not self.pieces:
            raise self._error

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def abort(self) -> None:
        self.lost = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._watch:
            self._watch.heard()
        if self.response.ended:  # nothing was asked
            self.abort()
            return
        try:
            found = self.response.feed(data)
        except Broken as error:
            self._fail(error)
            return
        self.pieces.extend(found)
        self._unread += len(data)
        if self._unread > _UNREAD_MOST and not self.response.ended:
            self.transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        try:
            if error is not None:
                raise error if isinstance(error, OSError) else Broken(str(error))
            self.response.end()
        except OSError as broken:
            self._error = self._error or broken
        self._wake()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._wake()

    def _fail(self, error: OSError) -> None:
        self._error = error
        self.abort()
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
