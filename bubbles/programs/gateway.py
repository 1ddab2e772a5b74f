"""Run all daemons in this terminal, where no service manager does: in a container, on macOS, or to look on.

Each runs as a child and is started again when it ends, by the same rules as under systemd: after a second, and
not after a wrong call (64) or a wrong configuration (78). Ctrl-C stops what it started, and so does whatever ends
it; a daemon that ran before is left alone, and replaced only when it ends.

Input:
  nothing
Output:
  nothing; standard error has a line when all are ready, and the daemons' log, which also goes to files in log/
Exit codes:
  0   stopped, by Ctrl-C or SIGTERM
  64  a daemon was called wrongly, and no other is left
  78  the configuration is wrong, and no daemon is left
Examples:
  bubbles gateway
  bubbles gateway 2>&1 | grep tool.start
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from types import FrameType
from typing import BinaryIO

from bubbles import logfile, starter
from bubbles.bus import is_running
from bubbles.errors import CONFIG, TEMPFAIL, USAGE, BubblesError
from bubbles.paths import Home
from bubbles.programs.page import program

DAEMONS = ("modeld", "agentd", "cron")
RESTART_S = 1.0
_FINAL = (USAGE, CONFIG)  # exit codes after which starting it again would change nothing
_STAND_BY_S = 1.0  # between two looks at a daemon that somebody else started
_STOP_S = 12.0  # a daemon takes ten to end its work
_PRIORITY = re.compile(rb"<([0-7])>")
_COLOURS = {b"3": "31", b"4": "33", b"7": "2"}


@program("gateway", __doc__)
def main() -> int:
    home = Home.find()
    home.prepare()
    gateway = Gateway(home)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, gateway.interrupted)
    return gateway.run()


class Gateway:
    """The children of one gateway, a thread each."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.stopping = threading.Event()
        self._keepers = [Keeper(self, name) for name in DAEMONS]
        self._told = False
        self._lock = threading.Lock()

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        self.stopping.set()

    def run(self) -> int:
        """Until it is stopped, or no daemon is left to look after. Returns the exit code."""
        for keeper in self._keepers:
            keeper.start()
        while not self.stopping.wait(0.2) and any(keeper.is_alive() for keeper in self._keepers):
            pass
        asked = self.stopping.is_set()
        self.stopping.set()
        for keeper in self._keepers:
            keeper.end()
        for keeper in self._keepers:
            keeper.join()
        return 0 if asked else max(keeper.code for keeper in self._keepers)

    def changed(self) -> None:
        """Say so, once, when every daemon is there."""
        with self._lock:
            if not self._told and all(keeper.state for keeper in self._keepers):
                self._told = True
                say(f"gateway: {', '.join(f'{k.name} {k.state}' for k in self._keepers)}; Ctrl-C stops what was started here")


class Keeper(threading.Thread):
    """Keeps one daemon running. `state` says how it is there, "" while it is not; `code` is what it ended with for good."""

    def __init__(self, gateway: Gateway, name: str) -> None:
        super().__init__(name=name)
        self._gateway = gateway
        self.state = ""
        self.code = 0
        self._process: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        """Ask the daemon to end, ready or not."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def run(self) -> None:
        while not self._gateway.stopping.is_set():
            if (pid := is_running(self._gateway.home, self.name)) is not None:
                self._is(f"runs already (pid {pid})")
                self._gateway.stopping.wait(_STAND_BY_S)
                continue
            code = self._once()
            self.state = ""
            if self._gateway.stopping.is_set():
                return
            if code in _FINAL:
                say(f"gateway: {self.name} ended with {code} and is not started again; mend what it says above, then start the gateway anew")
                self.code = code
                return
            if code != TEMPFAIL or is_running(self._gateway.home, self.name) is None:
                say(f"gateway: {self.name} {_ended(code)}; starting it again")
            self._gateway.stopping.wait(RESTART_S)

    def _once(self) -> int:
        """Run it until it ends, or until we are stopped. Its exit code."""
        read, write = os.pipe()
        with os.fdopen(write, "wb", buffering=0) as stderr:
            try:
                started = starter.spawn(self._gateway.home, self.name, stderr=stderr, with_us=True)
            except BubblesError as error:
                os.close(read)
                say(f"gateway: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""))
                return error.exit
        reader = threading.Thread(target=forward, args=(self._gateway.home, self.name, os.fdopen(read, "rb")), daemon=True)
        reader.start()
        self._process = started.process
        try:
            started.wait()
            self._is(f"is ready (pid {started.pid})")
        except BubblesError:
            pass  # its own words are on the way through the pipe
        code = self._watched(started.process)
        reader.join(timeout=1)
        return code

    def _watched(self, process: subprocess.Popen[bytes]) -> int:
        while process.poll() is None:
            if self._gateway.stopping.is_set():
                return _ended_by_us(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        return process.returncode

    def _is(self, state: str) -> None:
        if self.state != state:
            self.state = state
            self._gateway.changed()


def _ended_by_us(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def forward(home: Home, name: str, lines: BinaryIO) -> None:
    """Show a daemon's log, and keep it where the other programs look for it."""
    with lines, contextlib.closing(logfile.Appended(home.log / f"{name}.log")) as file:
        for line in lines:
            with contextlib.suppress(OSError):  # a full disk does not keep anybody from looking on
                file.write(line)
            found = _PRIORITY.match(line)
            text = line[found.end() if found else 0 :].decode("utf-8", "replace").rstrip("\n")
            say(text, _COLOURS.get(found[1], "") if found else "")


def say(text: str, colour: str = "") -> None:
    """A line to standard error, whole: the daemons' lines do not run into each other."""
    if colour and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{colour}m{text}\x1b[0m"
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
