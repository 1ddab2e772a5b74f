"""The log of the daemons beside a conversation: `bubbles agent --logs` and `--debug`.

It does not know events. Daemons that a terminal or `bubbles gateway` started write to files; the others write to the journal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bubbles.paths import Home

_LOOK_S = 0.2
_PRIORITY = re.compile(r"<\d>")
Tell = Callable[[str], None]


@contextmanager
def followed(home: Home, key: str, tell: Tell, *, everything: bool) -> Iterator[None]:
    """Tell each line that concerns the session `key` (with `everything`, each line at all) until the block ends."""
    files = [_Tail(home.log / f"{name}.log") for name in ("agentd", "modeld")]
    journal = None if any(tail.is_written_for(home) for tail in files) else _journal(key, everything)
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            for line in (line for tail in files for line in tail.more()):
                if everything or f"session={key} " in f"{line} " or " modeld " in line:
                    tell(_PRIORITY.sub("", line, count=1))

    def read() -> None:
        assert journal is not None
        assert journal.stdout is not None
        for line in journal.stdout:
            tell(line.rstrip("\n"))

    thread = threading.Thread(target=read if journal else look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.wait(2 * _LOOK_S)  # the last lines are on their way
        over.set()
        if journal:
            journal.terminate()
            journal.wait()
        thread.join(timeout=2)
        for tail in files:
            tail.close()


class _Tail:
    """What is appended to a file from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._opened()
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)
        self._rest = b""

    def is_written_for(self, home: Home) -> bool:
        """Whether the daemon that runs now has written to it: at its start, which its lock's file tells, or later."""
        try:
            return self._path.stat().st_mtime >= home.lock(self._path.stem).stat().st_mtime - 1
        except OSError:
            return False

    def more(self) -> list[str]:
        data = self._rest + self._read()
        if self._moved_aside():
            data += self._read()  # its last lines may have come in between
            self.close()
            self._file = self._opened()
            data += self._read()
        *lines, self._rest = data.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _read(self) -> bytes:
        return self._file.read() if self._file is not None else b""

    def _moved_aside(self) -> bool:
        try:
            found = self._path.stat()
        except OSError:
            return False
        return self._file is None or not os.path.samestat(found, os.fstat(self._file.fileno()))

    def _opened(self) -> BinaryIO | None:
        try:
            return self._path.open("rb", buffering=0)
        except OSError:
            return None


def _journal(key: str, everything: bool) -> subprocess.Popen[str] | None:
    if not shutil.which("journalctl"):
        return None
    wanted = ["SYSLOG_IDENTIFIER=bubbles-modeld", "+", "SYSLOG_IDENTIFIER=bubbles-agentd", *([] if everything else [f"BUBBLES_SESSION={key}"])]
    return subprocess.Popen(["journalctl", "--user", "-f", "-n0", "-o", "cat", *wanted], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
