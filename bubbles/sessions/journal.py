"""The journal of a session's running turn: one file, appended to line by line, emptied when the turn is in history.

It does not know what an event means. A file holds one turn, or, where words came too late for the turn that
was closing, that turn and after it the next one; each begins with a header line.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.kernel.events import Header, read_header


@dataclass(slots=True)
class Segment:
    """One turn in a journal: its header, and its event lines as they stand in the file."""

    header: Header
    lines: list[bytes] = field(default_factory=list)


class Journal:
    """The file `turns/KEY.jsonl`. It is kept open and truncated, not created and unlinked for each turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stray: list[bytes] = []  # lines before the first header that can be read, as `read` found them
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def append(self, *lines: bytes) -> None:
        """Write whole lines. They survive SIGKILL from here on. Where the disk is full nothing of them stays; raises OSError."""
        append(self.fd, b"".join(lines))

    def reset(self) -> None:
        """Forget the turns: they are in history."""
        os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """Let go of the file. Whoever writes after that fails, and does not meet a file that has got the same number since."""
        os.close(self.fd)
        self.fd = -1

    def read(self) -> list[Segment]:
        """The turns in the file, oldest first. A last line that was never written whole is cut off, and so is a header that nothing stands behind.

        Raises Misconfigured where a newer program wrote it; the file is then left as it is.
        """
        data = _all(self.fd)
        whole = data.rfind(b"\n") + 1
        segments: list[Segment] = []
        self.stray = []
        last = b""
        for line in data[:whole].splitlines(keepends=True):
            if header := self._header(line):
                segments.append(Segment(header))
            elif segments:
                segments[-1].lines.append(line)
            else:
                self.stray.append(line)
            last = line
        if segments and not segments[-1].lines:
            segments.pop()
            whole -= len(last)
        if whole < len(data):
            os.ftruncate(self.fd, whole)
        return segments

    def _header(self, line: bytes) -> Header | None:
        if not line.startswith(b'{"format":'):
            return None
        try:
            return read_header(line)
        except DataError:
            return None
        except ProtocolError as error:
            raise Misconfigured(f"{self.path}: {error.text}", remedy=error.remedy) from error


def append(fd: int, data: bytes) -> None:
    """Append `data` to a file in whole or not at all. Raises OSError."""
    written = 0
    try:
        while written < len(data):
            written += os.write(fd, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            if written:
                os.ftruncate(fd, os.fstat(fd).st_size - written)
        raise


def _all(fd: int) -> bytes:
    pieces: list[bytes] = []
    offset = 0
    while piece := os.pread(fd, 1 << 20, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)
