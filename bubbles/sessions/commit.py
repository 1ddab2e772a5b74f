"""Group commit: many files are made durable by one thread, and the event loop never waits for the disk.

It does not know what is in a file. A write that reached the kernel survives SIGKILL; `sync` is for a power cut.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

What: TypeAlias = int | Callable[[], object]  # a descriptor to be synced, or something that syncs


class Commit:
    """One thread that calls fdatasync for whoever asks, taking together all that ask while it works."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[What, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._thread.start()

    async def sync(self, what: What) -> None:
        """Return when what was written to a descriptor is on the disk, or `what` was called. Raises OSError, or what that call raises."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._asked.put((what, done))
        await asyncio.shield(done)

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (first := self._asked.get()) is not None:
            batch = [first]
            while not self._asked.empty():
                item = self._asked.get()
                if item is None:
                    self._asked.put(None)
                    break
                batch.append(item)
            results = {what: _synced(what) for what in dict.fromkeys(what for what, _ in batch)}
            try:
                self._loop.call_soon_threadsafe(_tell, [(done, results[what]) for what, done in batch])
            except RuntimeError:  # the loop has ended: nobody waits any more
                return


def _synced(what: What) -> Exception | None:
    try:
        what() if callable(what) else os.fdatasync(what)
    except Exception as error:
        return error
    return None


def _tell(batch: list[tuple[asyncio.Future[None], Exception | None]]) -> None:
    for done, error in batch:
        if done.cancelled():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
