"""Where a backup goes: a descriptor. What its target refuses is told apart from what of the home cannot be read.

It does not know what the target is called.
"""

from __future__ import annotations

import os

_PIECE = 1 << 18


class Unwritten(Exception):
    """The target takes no more; `error` says why."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class Sink:
    """Writes to the descriptor `fd`, which is somebody else's to close. Its methods raise Unwritten, once; then it drops what it gets."""

    def __init__(self, fd: int) -> None:
        self._fd, self._offset = fd, 0
        self._kept = bytearray()
        self._is_broken = False

    def tell(self) -> int:
        return self._offset

    def write(self, data: bytes) -> int:
        self._offset += len(data)
        if not self._is_broken:
            self._kept += data
        if len(self._kept) >= _PIECE:
            self.flush()
        return len(data)

    def flush(self) -> None:
        try:
            while self._kept:
                del self._kept[: os.write(self._fd, self._kept)]
        except OSError as error:
            self._broke(error)

    def sync(self) -> None:
        """Have all of it on the disk."""
        self.flush()
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._broke(error)

    def _broke(self, error: OSError) -> None:
        self._is_broken = True
        self._kept.clear()
        raise Unwritten(error) from error
