"""A program on a pseudo-terminal, typed at and read from."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bubbles.readable import readable
from tests.programs.run import BIN

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()=>78][0-9A-B]?")


class Terminal:
    """`bubbles ARGV...`, or a whole `command`, on a terminal of 100 columns and 40 rows. As a `group` of our session, like a shell's job, it
    can be suspended.
    """

    def __init__(
        self, argv: list[str], env: dict[str, str], *, cwd: Path | None = None, group: bool = False, command: list[str] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.modes = termios.tcgetattr(slave)
        own: dict[str, Any] = {"process_group": 0} if group else {"start_new_session": True}
        command = command or [str(BIN / "bubbles"), *argv]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **env}, cwd=cwd, **own)
        self._slave = slave
        self.raw = ""
        self._at = 0

    @property
    def text(self) -> str:
        """All that was printed so far, escapes left out."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def type(self, text: str, enter: bool = True) -> None:
        os.write(self._master, text.encode() + (b"\r" if enter else b""))

    def press(self, key: str) -> None:
        """`c` with Ctrl, and so on."""
        os.write(self._master, bytes([ord(key) - 96]))

    def expect(self, wanted: str, timeout_s: float = 30) -> str:
        """Read on until `wanted` was printed after what was expected last, and return what came up to it."""
        deadline = time.monotonic() + timeout_s
        while (found := self.text.find(wanted, self._at)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"{wanted!r} never came; this did:\n{self.text[self._at :]}"
            if self.process.poll() is not None and not self._read(0.2):
                raise AssertionError(f"ended with {self.process.returncode} before {wanted!r} came; this did:\n{self.text[self._at :]}")
            self._read(min(left, 0.2))
        before = self.text[self._at : found]
        self._at = found + len(wanted)
        return before

    def end(self, timeout_s: float = 20) -> int:
        """Wait for the program's end, reading what it still prints. Its exit code."""
        deadline = time.monotonic() + timeout_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end; this came:\n{self.text[self._at :]}"
            self._read(0.1)
        while self._read(0):
            pass
        return self.process.returncode

    def modes_now(self) -> list[object]:
        return termios.tcgetattr(self._slave)  # type: ignore[return-value]

    def _read(self, timeout_s: float) -> bool:
        if not readable([self._master], timeout_s):
            return False
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._master)
        os.close(self._slave)
