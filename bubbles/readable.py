"""Waiting for descriptors of any number: select() knows those below 1024 alone, and a large program may have more."""

from __future__ import annotations

import select


def readable(fds: list[int], timeout_s: float | None) -> list[int]:
    """Those of `fds` that can be read or have come to their end, [] where none can within `timeout_s` (None: however long it takes)."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)]
