"""Starts daemons where no service manager does, and says whether anybody still needs them.

It does not know what a daemon does. One is started as systemd would start it: with a notification socket of its
own, on which it says that it is ready; there is no second way to know. Nothing here loads an event loop or ZeroMQ,
because every small tool may pass through.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bubbles import logfile
from bubbles.bus.dial import connect
from bubbles.bus.lock import is_running
from bubbles.errors import TEMPFAIL, BubblesError, DataError, Misconfigured, ProtocolError, TryAgain, Unavailable, Usage
from bubbles.paths import Home, typed

if TYPE_CHECKING:  # loaded by who starts one: mostly all run, and a tool that only looks is done in less time
    import subprocess

UNTIL_IDLE_S = 30.0
WITH_PARENT = "BUBBLES_WITH_PARENT"  # the variable that tells a daemon the pid of the parent it is to end with
_READY_S = 30.0  # a daemon that is not ready by then is ended
_END_S = 2.0
_LOOK_S = 0.05  # between two looks whether the child is still there
_GRACE_S = 2.0  # for one whose feeding is due: it may have been frozen together with us, as the whole container, and feeds as soon as it goes on
_OURS = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", WITH_PARENT)  # what whoever started us has told us, and nobody else
_HAVE_KEYS = ("modeld", "channel-")
_ALONE = {"cron": "bubbles.cron.daemon"}  # of a program that has verbs as well, the daemon alone
_ERRORS = {cls.exit: cls for cls in (Usage, DataError, Unavailable, TryAgain, ProtocolError, Misconfigured)}


def environment(name: str) -> dict[str, str]:
    """The variables that the daemon `name` may have: settings of providers, keys among them, are for the one that asks models,
    those of channels for channels (and for agentd, to which they say whose session a message enters), and credentials for both.
    """
    return {variable: value for variable, value in os.environ.items() if _is_for(name, variable)}


def _is_for(name: str, variable: str) -> bool:
    if variable == "CREDENTIALS_DIRECTORY":
        return name.startswith(_HAVE_KEYS)
    section, parted, _ = variable.removeprefix("BUBBLES_").partition("__")
    of_providers = variable.startswith("BUBBLES_") and bool(parted) and section.replace("_", "").replace("-", "").lower() == "providers"
    return name == "modeld" or not of_providers


class Started:
    """A daemon that was started here. `pid`, `process`, `name`; `status` is its last word about itself; `log` its log file or None.

    One that has a watchdog is to feed it every `watchdog_s` once it is ready; `hung` says that it did not, and was ended for it.
    """

    def __init__(
        self, home: Home, name: str, argv: Sequence[str], stderr: BinaryIO | None, *, with_us: bool = False, watchdog_s: float = 0.0
    ) -> None:
        self.name, self.watchdog_s = name, watchdog_s
        self.status = ""
        self.ready = self.hung = False
        self._more_until = 0.0  # it asked for time until then
        self._fed = 0.0
        self._path = home.prepare_sockets() / f"notify-{os.getpid()}-{os.urandom(4).hex()}.sock"  # no longer than the longest door's name
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
        """Return once it is ready. Raises the error it ended with, or Unavailable (and ends it) after `timeout_s`, or the time it asked for."""
        deadline = time.monotonic() + timeout_s
        try:
            while not self.ready:
                self._hear(_LOOK_S)
                if not self.ready and self.process.poll() is not None:
                    raise self._ended()
                if not self.ready and time.monotonic() > max(deadline, self._more_until):
                    self._end()
                    raise Unavailable(f"{self.name} was not ready after {timeout_s:g} s", remedy=self._look())
        finally:
            self._deaf(goes_on=self.ready and self.watchdog_s > 0)
        return self

    def stay(self) -> int:
        """Hear one that is ready and has a watchdog, until it ends, and end it where it does not feed. Returns its exit code."""
        import threading

        from bubbles.readable import readable

        self._fed = time.monotonic()
        end, write = os.pipe()
        threading.Thread(target=self._mark_end, args=(write,), daemon=True).start()
        try:
            while not self.hung:
                left = self._fed + self.watchdog_s - time.monotonic()
                found = readable([self._socket.fileno(), end], left if left > 0 else _GRACE_S)
                if end in found:
                    break
                if found:
                    self._hear(_LOOK_S)
                elif left <= 0:
                    self._abort()
                    if not readable([end], _END_S):
                        self.process.kill()
        finally:
            os.close(end)
            self._deaf()
        return self.process.wait()

    def leave(self) -> None:
        """Do not wait for it: its log tells how it went."""
        self._deaf()

    def _spawn(self, home: Home, argv: Sequence[str], stderr: BinaryIO | None, with_us: bool) -> subprocess.Popen[bytes]:
        import subprocess

        env = {name: value for name, value in environment(self.name).items() if name not in _OURS}
        env |= {"BUBBLES_HOME": str(home.root), "NOTIFY_SOCKET": str(self._path)}
        if with_us:
            env[WITH_PARENT] = str(os.getpid())
        if self.watchdog_s:
            env["WATCHDOG_USEC"] = str(int(self.watchdog_s * 1e6))
        with contextlib.ExitStack() as stack:
            self._said = 0
            if self.log is not None:
                stderr = stack.enter_context(_log(self.log))
                self._said = stderr.tell()
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=env, cwd="/", start_new_session=True)

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
            if line == "WATCHDOG=1":
                self._fed = time.monotonic()
            if line.startswith("EXTEND_TIMEOUT_USEC=") and line.removeprefix("EXTEND_TIMEOUT_USEC=").isdigit():
                self._more_until = time.monotonic() + int(line.removeprefix("EXTEND_TIMEOUT_USEC=")) / 1e6

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
        return f"look at {typed(self.log)}" if self.log else ""

    def _end(self) -> None:
        self.process.terminate()
        deadline = time.monotonic() + _END_S
        while self.process.poll() is None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        self.process.kill()  # no more than a look where it has ended
        self.process.wait()

    def _abort(self) -> None:
        """As a service manager does it. One that is stopped takes the signal as it goes on, and does nothing before."""
        self.hung = True
        for number in (signal.SIGABRT, signal.SIGCONT):
            self.process.send_signal(number)

    def _mark_end(self, write: int) -> None:
        self.process.wait()
        os.close(write)

    def _deaf(self, *, goes_on: bool = False) -> None:
        """Hear nobody any more, or only the one that has connected by now."""
        if not goes_on:
            self._socket.close()
        self._path.unlink(missing_ok=True)


def spawn(home: Home, program: str, *args: str, stderr: BinaryIO | None = None, with_us: bool = False, watchdog_s: float = 0.0) -> Started:
    """Begin to start `program` (`agentd`, or `channel` with its name as first argument). Its words go to `stderr`, else to a file in `home.log`.

    One that is to live `with_us` is asked to end when we do, however we are ended (on Linux): the kernel asks when the thread that called this ends.
    """
    name = "-".join([program, *[arg for arg in args[:1] if not arg.startswith("-")]])
    argv = [sys.executable, "-P", "-m", _ALONE.get(program, f"bubbles.programs.{program}"), *args]
    return Started(home, name, argv, stderr, with_us=with_us, watchdog_s=watchdog_s)


def start(home: Home, program: str, *args: str) -> Started:
    """Start `program` and return once it is ready. Raises the error it ended with."""
    return spawn(home, program, *args).wait()


def ensure(home: Home, programs: Sequence[str], *, until_idle: float = UNTIL_IDLE_S, after: Sequence[str] = ()) -> list[Started]:
    """Have all of `programs` running and answering; those that were not are started side by side and end by themselves. Safe to race.

    One that the service manager is about to bring back is waited for: it has the limits and the log that its unit gives it. Those `after`
    them are started when they run, and not waited for: nobody asks them anything now, and they take no CPU from the others.
    """
    _wait_for_units(home, [*programs, *after])
    if "agentd" in programs and is_running(home, "agentd") is None and _is_strict(home):  # nothing weakens by itself
        raise Unavailable("agentd runs under its unit alone (units install --strict), and is down", remedy="systemctl --user start bubbles.target")
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
    for program in after:
        if is_running(home, program) is None:
            spawn(home, program, "--until-idle", f"{until_idle:g}").leave()
    return [started for started in mine if started.ready]


def _wait_for_units(home: Home, programs: Sequence[str]) -> None:
    """Return when each of `programs` runs, or no unit of this home is about to. Where no units are installed that costs a few looks at the disk."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        down = [program for program in programs if is_running(home, program) is None]
        if not down or not any((place / f"bubbles-{down[0]}.service").exists() for place in _unit_directories()):
            return
        from bubbles import systemd

        if not systemd.coming(home.root, down):
            return
        time.sleep(_LOOK_S)


def _is_strict(home: Home) -> bool:
    """Whether this home's owner has had agentd's unit confined."""
    try:
        text = (next(_unit_directories()) / "bubbles-agentd.service.d/strict.conf").read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return f'"{home.root}"' in text.replace("%h", os.path.expanduser("~")).replace("%%", "%")


def _unit_directories() -> Iterator[Path]:
    """Where the service manager of a user finds units that somebody has installed."""
    yield Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "systemd/user")
    yield from (Path(place, "systemd/user") for place in ("/etc", "/usr/lib", "/usr/local/lib"))


def ends_when_idle(pid: int) -> bool:
    """Whether a process was called as one that ends when idle. False where the system does not say: it has no /proc, or nobody has that number
    (of two containers that share a home, each has a numbering of its own).
    """
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return any(word.partition(b"=")[0] == b"--until-idle" for word in file.read().split(b"\0"))
    except OSError:
        return False


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
        raise TryAgain(f"cannot open {home.run / 'clients'}: {error.strerror}", remedy=f"look at: df -h {typed(home.run)}") from error


def _log(path: Path) -> BinaryIO:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.fdopen(logfile.opened(path), "ab", buffering=0)
        file.seek(0, os.SEEK_END)
    except OSError as error:
        raise TryAgain(f"cannot write {path}: {error.strerror}", remedy=f"look at: df -h {typed(path.parent)}") from error
    return file
