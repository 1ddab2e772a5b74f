"""A daemon's place, taken for as long as something of its own is mended: it does not start meanwhile, and where it runs nothing is touched.

It does not know what is mended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bubbles.bus.lock import Lock
from bubbles.paths import Home


@contextlib.contextmanager
def alone(home: Home, name: str) -> Iterator[None]:
    """Within it the daemon `name` does not run. Raises TryAgain where it does, and OSError."""
    home.run.mkdir(mode=0o700, exist_ok=True)  # a home that was put back from a copy may have none yet
    lock = Lock(home, name)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()
