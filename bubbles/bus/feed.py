"""The live feed: agentd tells whoever listens what is happening. What nobody listens to costs next to nothing.

It does not know who listens, and keeps nothing: an event that nobody heard is gone. What must not be lost is a file.
"""

from __future__ import annotations

from typing import Any

import zmq

from bubbles.bus import wire
from bubbles.bus.bound import Bound
from bubbles.paths import Home

NAME = "feed"
_SUBSCRIPTION_MOST = 4096  # bytes; listeners send nothing else


class Feed:
    """agentd's XPUB socket. Open it while the door's lock is held, and close it before."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._socket: Bound | None = None
        self._wanted: tuple[bytes, ...] = ()

    def open(self) -> None:
        """Bind, on the running loop. Raises TryAgain where that cannot be."""
        self._home.prepare_sockets()
        self._socket = Bound(self._home.door(NAME), zmq.XPUB, self._take, frame_most=_SUBSCRIPTION_MOST)

    def close(self) -> None:
        """Stop telling. Harmless where it is not open."""
        if self._socket is not None:
            self._socket.close()
            self._socket, self._wanted = None, ()

    def wanted(self, topic: str) -> bool:
        """Whether somebody listens to `topic`: for events that are dear to make."""
        return bool(self._wanted) and topic.encode().startswith(self._wanted)

    def publish(self, topic: str, body: dict[str, Any]) -> None:
        """Tell the listeners of `topic` now; those who do not keep up miss it, and all miss what is too large.

        Raises ProtocolError where `body` is not JSON.
        """
        if self._socket is not None and self.wanted(topic):
            frames = wire.event(body)
            if frames:
                self._socket.send([topic.encode(), *frames])

    def _take(self, frames: list[bytes]) -> None:
        """A subscription: 1 and a prefix begins one, 0 ends the last of that prefix; libzmq ends those of a listener that is gone."""
        wanted = set(self._wanted)
        for frame in frames:
            (wanted.add if frame[:1] == b"\1" else wanted.discard)(frame[1:])
        self._wanted = tuple(wanted)
