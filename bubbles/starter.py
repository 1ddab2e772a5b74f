"""Starts daemons where no service manager does, and says whether anybody still needs them.

It does not know what a daemon does. One is started as systemd would start it: with a notification socket of its
own, on which it says that it is ready; there is no second way to know. Nothing here loads an event loop or ZeroMQ,
because every small tool may pass through.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from bubbles import logfile
from bubbles.bus.dial import connect
from bubbles.bus.lock import is_running
from bubbles.errors import TEMPFAIL, BubblesError, DataError, Misconfigured, ProtocolError, TryAgain, Unavailable, Usage
from bubbles.paths import Home

UNTIL_IDLE_S = 30.0
WITH_PARENT = "BUBBLES_WITH_PARENT"  # the variable that tells a daemon the pid of the parent it is to end with
_READY_S = 30.0  # a daemon that is not ready by then is ended
_LOOK_S = 0.05  # between two looks whether the child is still there
_HAS_KEYS = "modeld"
_ERRORS = {cls.exit: cls for cls in (Usage, DataError, Unavailable, TryAgain, ProtocolError, Misconfigured)}


def environment(name: str) -> dict[str, str]:
    """The variables that the daemon `name` may have: settings of providers, keys among them, are for the one that asks models."""
    return {variable: value for variable, value in os.environ.items() if name == _HAS_KEYS or not _may_be_a_key(variable)}


def _may_be_a_key(variable: str) -> bool:
    section, parted, _ = variable.removeprefix("BUBBLES_").partition("__")
    return variable.startswith("BUBBLES_") and bool(parted) and section.replace("_", "").replace("-", "").lower() == "providers"


class Started:
    """A daemon that was started here. `pid`, `process`, `name`; `status` is its last word about itself; `log` its log file or None."""

    def __init__(self, home: Home, name: str, argv: Sequence[str], stderr: BinaryIO | None, *, with_us: bool = False) -> None:
        self.name = name
        self.status = ""
        self.ready = False
        self._path = home.prepare_sockets() / f"notify-{os.getpid()}-{time.monotonic_ns():x}.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        self.log = home.log / f"{name}.log" if stderr is None else None
        try:
            self.process = self._spawn(home, argv, stderr, with_us)
        except BaseException:
            self._deaf()
            raise
        self.pid = self.process.pid

    def wait(self, timeout_s: float = _READY_S) -> Started:
        """Return once it is ready. Raises the error it ended with, or Unavailable (and ends it) after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        try:
            while not self.ready:
                self._hear(_LOOK_S)
                if not self.ready and self.process.poll() is not None:
                    raise self._ended()
                if not self.ready and time.monotonic() > deadline:
                    self._end()
                    raise Unavailable(f"{self.name} was not ready after {timeout_s:g} s", remedy=self._look())
        finally:
            self._deaf()
        return self

    def _spawn(self, home: Home, argv: Sequence[str], stderr: BinaryIO | None, with_us: bool) -> subprocess.Popen[bytes]:
        env = {**environment(self.name), "BUBBLES_HOME": str(home.root), "NOTIFY_SOCKET": str(self._path)}
        env.pop(WITH_PARENT, None)
        if with_us:
            env[WITH_PARENT] = str(os.getpid())
        with contextlib.ExitStack() as stack:
            self._said = 0
            if self.log is not None:
                stderr = stack.enter_context(_log(self.log))
                self._said = stderr.tell()
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=env, cwd="/", start_new_session=True
            )

    def _hear(self, timeout_s: float) -> None:
        self._socket.settimeout(timeout_s)
        try:
            lines = self._socket.recv(4096).decode("utf-8", "replace").splitlines()
        except TimeoutError:
            return
        for line in lines:
            if line.startswith("STATUS="):
                self.status = line.removeprefix("STATUS=")
            self.ready = self.ready or line == "READY=1"

    def _ended(self) -> BubblesError:
        """What the child said on its last lines, as the error that its exit code stands for."""
        code = self.process.returncode
        text, remedy = self._words()
        cls = _ERRORS.get(code, Unavailable)
        return cls(text or f"{self.name} ended with {code} before it was ready", remedy=remedy or self._look())

    def _words(self) -> tuple[str, str]:
        if self.log is None:
            return "", ""
        with open(self.log, "rb") as file:
            file.seek(self._said)
            lines = file.read(1 << 16).decode("utf-8", "replace").splitlines()
        text = [line.removeprefix("bubbles: ") for line in lines if line.startswith("bubbles: ")]
        remedy = [line.removeprefix("  try: ") for line in lines if line.startswith("  try: ")]
        return (text or [""])[-1], (remedy or [""])[-1]

    def _look(self) -> str:
        return f"look at {self.log}" if self.log else ""

    def _end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _deaf(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def spawn(home: Home, program: str, *args: str, stderr: BinaryIO | None = None, with_us: bool = False) -> Started:
    """Begin to start `program` (`agentd`, or `channel` with its name as first argument). Its words go to `stderr`, else to a file in `home.log`.

    One that is to live `with_us` is asked to end when we do, however we are ended (on Linux): the kernel asks when the thread that called this ends.
    """
    name = "-".join([program, *[arg for arg in args[:1] if not arg.startswith("-")]])
    return Started(home, name, [sys.executable, "-P", "-m", f"bubbles.programs.{program}", *args], stderr, with_us=with_us)


def start(home: Home, program: str, *args: str) -> Started:
    """Start `program` and return once it is ready. Raises the error it ended with."""
    return spawn(home, program, *args).wait()


def ensure(home: Home, programs: Sequence[str], *, until_idle: float = UNTIL_IDLE_S) -> list[Started]:
    """Have all of `programs` running and answering; those that were not are started side by side and end by themselves. Safe to race."""
    mine = [spawn(home, program, "--until-idle", f"{until_idle:g}") for program in programs if is_running(home, program) is None]
    failed: BubblesError | None = None
    for started in mine:
        try:
            started.wait()
        except TryAgain as error:
            if started.process.returncode != TEMPFAIL or is_running(home, started.name) is None:
                failed = failed or error
        except BubblesError as error:
            failed = failed or error
    if failed is not None:
        raise failed
    for program in programs:  # somebody else's may hold its lock and not be at its door yet
        connect(home.door(program).removeprefix("ipc://"), program, _READY_S)[0].close()
    return [started for started in mine if started.ready]


@contextlib.contextmanager
def client(home: Home) -> Iterator[None]:
    """While this lasts, daemons that were started `--until-idle` stay. Enter it before `ensure`."""
    fd = _clients(home)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def has_clients(home: Home) -> bool:
    """Whether anybody is within `client`."""
    fd = _clients(home)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _clients(home: Home) -> int:
    try:
        return os.open(home.run / "clients", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise TryAgain(f"cannot open {home.run / 'clients'}: {error.strerror}", remedy=f"look at: df -h {home.run}") from error


def _log(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.fdopen(logfile.opened(path), "ab", buffering=0)
        file.seek(0, os.SEEK_END)
    except OSError as error:
        raise TryAgain(f"cannot write {path}: {error.strerror}", remedy=f"look at: df -h {path.parent}") from error
    return file
