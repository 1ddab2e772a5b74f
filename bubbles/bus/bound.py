"""A socket of libzmq's that a daemon binds and reads on its event loop. It does not know what crosses it.

It reads the socket's descriptor itself, which costs half of what zmq.asyncio does, and there is no receive that could be
cancelled with a message in its hands. The descriptor is edge-triggered, and a send may eat the edge: so after every send
the socket is looked at once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence

import zmq

from bubbles.errors import TryAgain

_EVENTS, _READABLE = int(zmq.EVENTS), int(zmq.POLLIN)
_ROUND = 200  # messages taken before the loop's other work has a turn
WAITING = 10_000  # messages queued for one slow peer; what is above is lost, as any message may be
_LINGER_MS = 200
_TERM_S = 1.0


class Bound:
    """The socket of `kind` (a zmq constant) at an `ipc://` endpoint, on the running loop. `take` gets each message's frames, and must not raise.

    Raises TryAgain where it cannot be bound.
    """

    def __init__(self, endpoint: str, kind: int, take: Callable[[list[bytes]], None], *, frame_most: int) -> None:
        self._take = take
        self._path = endpoint.removeprefix("ipc://")
        self._looking = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = self._context.socket(kind)
        for option, value in ((zmq.MAXMSGSIZE, frame_most), (zmq.SNDHWM, WAITING), (zmq.RCVHWM, WAITING), (zmq.BACKLOG, 1024)):
            self._socket.setsockopt(option, value)
        before = os.umask(0o077)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            raise TryAgain(f"cannot bind {self._path}: {error.strerror}", remedy=f"look at: ls -ld {self._path}; df -h {self._path}") from error
        finally:
            os.umask(before)
        self._loop = asyncio.get_running_loop()
        self._fd = self._socket.fileno()
        self._loop.add_reader(self._fd, self._drain)
        self._look()

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send at once or never. False where the message was dropped: the peer does not read, or the socket is closed."""
        if self._socket is None:
            return False
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        finally:
            self._look()
        return True

    def close(self) -> None:
        """Let what was sent go out, for an instant; then nothing of the socket is left, its path included. Harmless a second time."""
        if self._socket is None:
            return
        self._loop.remove_reader(self._fd)
        socket, self._socket = self._socket, None
        socket.close(linger=_LINGER_MS)
        # libzmq may wait for ever for a peer that did not read and is gone; nobody shall wait with it.
        end = threading.Thread(target=self._context.term, name="zmq term", daemon=True)
        end.start()
        end.join(_TERM_S)
        with contextlib.suppress(OSError):
            os.unlink(self._path)

    def _look(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._looking = False
        for _ in range(_ROUND):
            # To ask what is there costs a fifth of an Again.
            if self._socket is None or not int(self._socket.getsockopt(_EVENTS)) & _READABLE:
                return
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._take(frames)
        self._look()
