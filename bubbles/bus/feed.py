"""The live feed: agentd tells whoever listens what is happening. What nobody listens to costs next to nothing.

It does not know who listens, and keeps nothing: an event that nobody heard is gone. What must not be lost is a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import zmq

from bubbles.bus import wire
from bubbles.paths import Home

NAME = "feed"
_WAITING = 10_000  # events queued for one slow listener; it misses what is above
_LINGER_MS = 200


class Feed:
    """agentd's XPUB socket. Open it while the door's lock is held, and close it before."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._socket: zmq.Socket[bytes] | None = None
        self._wanted: tuple[bytes, ...] = ()

    def open(self) -> None:
        """Bind, on the running loop."""
        self._home.prepare_sockets()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, _WAITING)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4096)  # listeners send subscriptions and nothing else
        before = os.umask(0o077)
        try:
            self._socket.bind(self._home.door(NAME))
        finally:
            os.umask(before)
        self._loop = asyncio.get_running_loop()
        self._fd = self._socket.fileno()
        self._loop.add_reader(self._fd, self._drain)
        self._loop.call_soon(self._drain)

    def close(self) -> None:
        """Stop telling. Harmless where it is not open."""
        if self._socket is None:
            return
        self._loop.remove_reader(self._fd)
        socket, self._socket, self._wanted = self._socket, None, ()
        socket.close(linger=_LINGER_MS)
        self._context.term()
        with contextlib.suppress(OSError):
            os.unlink(self._home.door(NAME).removeprefix("ipc://"))

    def wanted(self, topic: str) -> bool:
        """Whether somebody listens to `topic`: for events that are dear to make."""
        return bool(self._wanted) and topic.encode().startswith(self._wanted)

    def publish(self, topic: str, body: dict[str, Any]) -> None:
        """Tell the listeners of `topic` now; those who do not keep up miss it. Raises ProtocolError where `body` is no message."""
        if self._socket is None or not self.wanted(topic):
            return
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart([topic.encode(), *wire.encode(body)], zmq.NOBLOCK)
        self._loop.call_soon(self._drain)  # the send may have eaten the descriptor's edge

    def _drain(self) -> None:
        """Take subscriptions: 1 and a prefix begins one, 0 ends the last of that prefix; libzmq ends those of a listener that is gone."""
        while self._socket is not None:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            wanted = set(self._wanted)
            (wanted.add if frame[:1] == b"\1" else wanted.discard)(frame[1:])
            self._wanted = tuple(wanted)
