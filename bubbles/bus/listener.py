"""Listens to the feed from a small tool, without an event loop. It does not know what the topics mean."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from bubbles.bus import wire, zmtp
from bubbles.bus.dial import connect
from bubbles.errors import ProtocolError, Unavailable
from bubbles.paths import Home

Event = tuple[str, dict[str, Any]]
FEED = "feed"
_FIRST_S, LONGEST_S = 0.1, 10.0  # between two looks for an agentd that is down


class Listener:
    """An endless iterator over `(topic, body)` of the topics that begin with one of `prefixes` (none: all). It outlives agentd's restarts."""

    def __init__(self, home: Home, *prefixes: str) -> None:
        self._path = home.door(FEED).removeprefix("ipc://")
        self._wanted = subscriptions(prefixes)

    def __iter__(self) -> Iterator[Event]:
        wait_s = _FIRST_S
        while True:
            try:
                for event in self._listen():
                    wait_s = _FIRST_S
                    yield event
            except (Unavailable, ConnectionError):
                pass
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_S)

    def _listen(self) -> Iterator[Event]:
        plug, reader = connect(self._path, FEED, 0, socket_type="SUB")
        with plug:
            plug.settimeout(None)
            plug.sendall(self._wanted)
            while data := plug.recv(1 << 18):
                for frames in reader.feed(data):
                    yield event(frames)


def subscriptions(prefixes: Sequence[str]) -> bytes:
    """What a listener sends first."""
    return b"".join(zmtp.encode([b"\1" + prefix.encode()]) for prefix in prefixes or ("",))


def event(frames: list[bytes]) -> Event:
    """The topic and body of one message of the feed. Raises ProtocolError where it is none."""
    try:
        topic = frames[0].decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a topic is UTF-8") from error
    return topic, wire.decode(frames[1:])[0]
