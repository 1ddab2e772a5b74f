"""Asks at one door from a small tool: one question at a time, and no event loop.

It does not know what it asks. It imports no ZeroMQ and no asyncio: a tool that asks and prints is done in less time
than either takes to load.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from bubbles import ids
from bubbles.bus import wire, zmtp
from bubbles.errors import BubblesError, Unavailable
from bubbles.paths import Home

SILENCE_S = 15.0
RESTART_S = 5.0  # how long the successor of a daemon that ended in mid-question is waited for

Part = Callable[[dict[str, Any]], None]
Answer = tuple[dict[str, Any], list[bytes]]


class Dial:
    """Asks at the door `name` of a home. Use one from one thread; after an interrupt it may be used again."""

    def __init__(self, home: Home, name: str, *, restart_s: float = RESTART_S) -> None:
        self._path = home.door(name).removeprefix("ipc://")
        self._name = name
        self._restart_s = restart_s
        self._socket: socket.socket | None = None
        self._reader = zmtp.Reader()

    def call(
        self,
        op: str,
        body: dict[str, Any] | None = None,
        blobs: Sequence[bytes] = (),
        *,
        on_part: Part | None = None,
        id: str | None = None,
        timeout_s: float = SILENCE_S,
    ) -> Answer:
        """The reply's body and blobs. `on_part` is given each part but the alive ones.

        Raises the BubblesError that the reply tells; Unavailable at once where nobody listens, and where nothing was heard for
        `timeout_s`. Where the daemon ends before it answers, the same request is sent once more to its successor.
        """
        id = id or ids.fresh("q")
        frames = wire.encode(wire.request(id, op, body or {}), blobs)
        for patience_s in (0.0, self._restart_s):
            try:
                self._send(frames, patience_s)
                return self._answer(id, on_part, timeout_s)
            except ConnectionError:
                self.close()
            except BaseException:  # an interrupt may have hit between two halves of a message
                self.close()
                raise
        raise unavailable(self._name, "ended twice before it answered")

    def ring(self) -> None:
        """Ring. Raises Unavailable where nobody listens."""
        try:
            self._send(wire.encode(wire.ring()), 0)
        except ConnectionError:  # it was restarted since the last call
            self.close()
            self._send(wire.encode(wire.ring()), 0)

    def close(self) -> None:
        """Hang up. The next call connects anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Dial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _send(self, frames: list[bytes], patience_s: float) -> None:
        if self._socket is None:
            self._socket, self._reader = connect(self._path, self._name, patience_s)
        self._socket.sendall(zmtp.encode(frames))

    def _answer(self, id: str, on_part: Part | None, timeout_s: float) -> Answer:
        assert self._socket is not None
        deadline = time.monotonic() + timeout_s
        while True:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(1 << 18)
            except TimeoutError:
                raise unavailable(self._name, f"was silent for {timeout_s:g} s") from None
            if not data:
                raise ConnectionResetError
            for frames in self._reader.feed(data):
                head, blobs = wire.decode(frames)
                if head.get("re") != id:
                    continue  # what is left of a question that was given up
                deadline = time.monotonic() + timeout_s
                if "part" not in head:
                    return _outcome(head), blobs
                _tell(head["part"], on_part)


def connect(path: str, name: str, patience_s: float, *, socket_type: str = "DEALER") -> tuple[socket.socket, zmtp.Reader]:
    """A connection to the daemon `name` at `path`, hands shaken, and the reader of what comes. Raises Unavailable after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        plug = socket.socket(socket.AF_UNIX)
        try:
            plug.connect(path)
            return plug, _greet(plug, socket_type)
        except TimeoutError as error:
            plug.close()
            raise unavailable(name, f"was silent for {SILENCE_S:g} s") from error
        except OSError as error:  # one that is just dying may still let us in, and hang up
            plug.close()
            if time.monotonic() >= deadline:
                raise unavailable(name, no_entry(error)) from error
        except BaseException:
            plug.close()
            raise
        time.sleep(0.02)


def _greet(plug: socket.socket, socket_type: str) -> zmtp.Reader:
    reader = zmtp.Reader()
    plug.settimeout(SILENCE_S)
    plug.sendall(zmtp.hello(socket_type))
    while not reader.ready:
        data = plug.recv(4096)
        if not data:
            raise ConnectionResetError
        reader.feed(data)
    return reader


def no_entry(error: OSError) -> str:
    """What the failure to connect to a daemon says of it."""
    missing = isinstance(error, FileNotFoundError | ConnectionError)
    return "is not running" if missing else f"cannot be reached: {error.strerror}"


def _outcome(head: dict[str, Any]) -> dict[str, Any]:
    outcome = wire.outcome(head)
    if isinstance(outcome, BubblesError):
        raise outcome
    return outcome


def _tell(part: Any, on_part: Part | None) -> None:
    if on_part is not None and isinstance(part, dict) and part.get("alive") is not True:
        on_part(part)


def unavailable(name: str, why: str) -> Unavailable:
    """The error that says why the daemon `name` does not answer."""
    return Unavailable(f"{name} {why}", remedy="bubbles status")
