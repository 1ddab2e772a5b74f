"""Group commit: many files are made durable by one thread, and the event loop never waits for the disk.

It does not know what is in a file. A write that reached the kernel survives SIGKILL; `sync` is for a power cut.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading


class Commit:
    """One thread that calls fdatasync for whoever asks, taking together all that ask while it works."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[int, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="commit", daemon=True)
        self._thread.start()

    async def sync(self, fd: int) -> None:
        """Return when what was written to `fd` is on the disk. Raises OSError as fdatasync does."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._asked.put((fd, done))
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
            results: dict[int, OSError | None] = {}
            for fd, _ in batch:
                if fd not in results:
                    try:
                        os.fdatasync(fd)
                        results[fd] = None
                    except OSError as error:
                        results[fd] = error
            try:
                self._loop.call_soon_threadsafe(_tell, [(done, results[fd]) for fd, done in batch])
            except RuntimeError:  # the loop has ended: nobody waits any more
                return


def _tell(batch: list[tuple[asyncio.Future[None], OSError | None]]) -> None:
    for done, error in batch:
        if done.cancelled():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
