"""What every daemon does alike: its options, its exit codes, its signals, and what it tells the service manager.

It does not know what it serves. The end is always the same: SIGTERM, Ctrl-C and having been idle for long enough
all set `stopping`, and whatever kills it harder is recovered from at the next start.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

import sdnotify

from bubbles import __version__, log, logfile
from bubbles.bus.lock import Lock, is_running
from bubbles.errors import OK, SOFTWARE, USAGE, BubblesError, TryAgain
from bubbles.paths import Home
from bubbles.starter import WITH_PARENT, ends_when_idle, environment, has_clients

TICK_S = 60.0  # between two rescans
STOP_S = 10.0  # a daemon that is asked to stop has this long, then it is cancelled
_CANCEL_S = 2.0  # and then this long
_EXTEND_S, _EXTEND_EACH_S, _EXTEND_TIMES = 60.0, 10.0, 60  # a start that takes long, but no longer than ten minutes, is not taken for one that hangs
_LOOK_S = 0.05  # between two looks whether the one before us has ended
_STOPS = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4


class Daemon:
    """One running daemon. `serve` sets `busy` and `on_tick`, calls `ready`, works until `stopping` is set, and returns."""

    def __init__(
        self, home: Home, name: str, until_idle: float | None = None, *, once: bool = False, args: Sequence[str] = (), tick_s: float = TICK_S
    ) -> None:
        self.home, self.name = home, name
        self.until_idle, self.once, self.args = until_idle, once, tuple(args)
        self.stopping = asyncio.Event()
        self.stop_s, self.extend_each_s = STOP_S, _EXTEND_EACH_S
        self.busy: Callable[[], bool] = lambda: False
        self.on_tick: list[Callable[[], None]] = []
        self._tick_s = tick_s
        self._manager = _Manager()
        self._is_ready = False
        self._idle_since: float | None = None
        self._stderr = logfile.StandardError(home.log / f"{name}.log")

    def ready(self, status: str = "") -> None:
        """Say that the duty is done from here on. The only way anybody learns of it."""
        if self.until_idle is not None:
            self._mark()
        self._manager.tell("READY=1", *([f"STATUS={_line(status)}"] if status else []))
        self._manager.hurry()
        self._is_ready = True
        log.event("daemon.ready", status or f"{self.name} is ready")

    def status(self, text: str) -> None:
        """Say in a line how it goes, for `systemctl status`."""
        self._manager.tell(f"STATUS={_line(text)}")

    def stop(self) -> None:
        """Begin to end."""
        if not self.stopping.is_set():
            self._manager.tell("STOPPING=1", _extended(self.stop_s + _CANCEL_S + 1))
            self.stopping.set()

    async def succeed(self) -> None:
        """Have one of our name that a terminal started end: it would stay as long as the terminal does, and we are here for good.

        What it was working on is taken up as after any end. Returns at once where there is none; one that lasts is left alone.
        """
        name = idle(self.name)
        if self.until_idle is None and not self.once and (pid := is_running(self.home, name)) and _ask_to_end(self.home, name, pid):
            self.status(f"waiting for the {self.name} that a terminal started (pid {pid}) to end")
            while is_running(self.home, name) == pid and not self.stopping.is_set():
                await asyncio.sleep(_LOOK_S)

    def _mark(self) -> None:
        """Hold a second lock, which says that we are not here for good. The process's end gives it back, after the one of our door."""
        self._idle = Lock(self.home, idle(self.name))
        with contextlib.suppress(TryAgain):  # the one before us is about to end
            self._idle.acquire()

    async def extend(self) -> None:
        """Ask for time until we are ready. Runs beside `serve`: that it comes proves that the loop turns."""
        for _ in range(_EXTEND_TIMES):
            await asyncio.sleep(self.extend_each_s)
            if self._is_ready:
                break
            self._manager.tell(_extended(_EXTEND_S))

    async def beat(self) -> None:
        """Feed the watchdog and tick; end when idle for long enough. Runs beside `serve`."""
        loop = asyncio.get_running_loop()
        feed_s = min(self._manager.watchdog_s / 2 or self._tick_s, self._tick_s)
        look_s = feed_s if self.until_idle is None else max(min(feed_s, self.until_idle / 3), 0.01)
        ticked = fed = loop.time()
        while True:
            await asyncio.sleep(look_s)
            now = loop.time()
            if now - fed > feed_s * 0.9:
                fed = now
                self._manager.tell("WATCHDOG=1") if self._manager.watchdog_s else None
            if now - ticked > self._tick_s * 0.9:
                ticked = now
                self._tick()
            if self.until_idle is not None:
                self._look(now, self.until_idle)

    def _tick(self) -> None:
        for call in [self._stderr.tend, *self.on_tick]:
            try:
                call()
            except Exception:  # what is looked after now and then must not end the daemon
                log.error("daemon.bug", "a tick failed")

    def _look(self, now: float, until_idle: float) -> None:
        """A daemon stays for clients and for its own work; all but agentd stay for agentd as well."""
        if self.busy() or has_clients(self.home):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= until_idle and (self.name == "agentd" or is_running(self.home, "agentd") is None):
            log.debug(f"idle for {until_idle:g} s")
            self.stop()


Serve = Callable[[Daemon], Awaitable[None]]


def main(
    name: str, serve: Serve, argv: Sequence[str] | None = None, *, about: str = "", takes: str = "", check: Callable[[str], None] = lambda _: None
) -> NoReturn:
    """Run the daemon `name` to its end, and the process with it: raises SystemExit with its exit code.

    `about` is its page: as for every program, the docstring of its module. A daemon that `takes` an argument (`"NAME"`) is called
    `name-ARGUMENT`, and finds it in `daemon.args`; `check` raises, before anything is made under that name, where it may not be called so.
    """
    options = _options(name, about, takes, sys.argv[1:] if argv is None else argv)
    for argument in options.args:
        check(argument)
    sys.exit(_code("-".join([name, *options.args]), serve, options))


def _code(name: str, serve: Serve, options: argparse.Namespace) -> int:
    try:
        return _run(Home.find(), name, serve, options)
    except BubblesError as error:
        return _told(error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _bug(name, error)
        return _told(TryAgain(f"the disk is full: {error.filename or name}", remedy=f"look at: df -h {Home.find().root}"))
    except Exception as error:  # the outermost place: it is told, and is the exit code
        return _bug(name, error)


def _run(home: Home, name: str, serve: Serve, options: argparse.Namespace) -> int:
    os.umask(0o077)
    _undumpable()
    _with_parent(os.environ.pop(WITH_PARENT, ""))
    _forget_keys(name)
    home.prepare()
    log.setup(name, home=home)
    log.event("daemon.start", f"{name} {__version__}", pid=os.getpid())
    try:
        asyncio.run(_serve(home, name, serve, options))
    except BubblesError as error:  # for whoever asks the log later: standard error has it as well
        log.event("daemon.stop", f"{name} ends with {error.exit}: {error.text}", priority="error", remedy=error.remedy)
        raise
    except BaseException:
        log.event("daemon.stop", f"{name} ends", priority="error")
        raise
    log.event("daemon.stop", f"{name} ends")
    return OK


async def _serve(home: Home, name: str, serve: Serve, options: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    daemon = Daemon(home, name, options.until_idle, once=options.once, args=options.args)
    for number in _STOPS:
        loop.add_signal_handler(number, daemon.stop)
    gc.freeze()  # what is loaded by now stays
    work = loop.create_task(_succeed_and_serve(daemon, serve))
    extend = loop.create_task(daemon.extend())
    beat = loop.create_task(daemon.beat())
    stop = loop.create_task(daemon.stopping.wait())
    await asyncio.wait({work, stop, beat}, return_when=asyncio.FIRST_COMPLETED)
    daemon.stop()
    await asyncio.wait({work}, timeout=daemon.stop_s)
    if not work.done():
        log.event("daemon.warning", f"still at work {daemon.stop_s:g} s after it was asked to stop", priority="warning")
    for task in (work, beat, stop, extend):
        task.cancel()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)  # the loop is about to give its handlers back, and we are ending
    if (await asyncio.wait({work, beat, stop, extend}, timeout=_CANCEL_S))[1]:
        log.event("daemon.bug", f"{name} does not end; it is left as it is", priority="error")
        os._exit(SOFTWARE)  # a start recovers from this as from any other end
    for task in (work, beat, stop):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _succeed_and_serve(daemon: Daemon, serve: Serve) -> None:
    await daemon.succeed()
    if not daemon.stopping.is_set():
        await serve(daemon)


def idle(name: str) -> str:
    """The name of the lock that a daemon `name` started `--until-idle` holds beside its own."""
    return f"{name}.idle"


def _ask_to_end(home: Home, name: str, pid: int) -> bool:
    """SIGTERM to the holder of the lock `name`, and to nobody who got its number meanwhile."""
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, signal.SIGTERM)
        return True
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if is_running(home, name) != pid or not ends_when_idle(pid):  # it lives now, so the descriptor is its own
            return False
        signal.pidfd_send_signal(fd, signal.SIGTERM)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _options(name: str, about: str, takes: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = _Page(prog=f"bubbles {name}", usage=f"bubbles {name} [OPTIONS]{takes and f' {takes}'}", allow_abbrev=False, add_help=False)
    parser.what, _, parser.rest = about.strip().partition("\nInput:")
    if takes:
        parser.add_argument("args", metavar=takes, nargs=1, help=argparse.SUPPRESS)
    else:
        parser.set_defaults(args=[])
    parser.add_argument("--until-idle", metavar="SECONDS", type=float, help="End when nobody has needed it for so long.")
    parser.add_argument("--once", action="store_true", help="Do what there is to do now, and end.")
    parser.add_argument("-V", "--version", action="version", version=f"bubbles {name} {__version__}", help="Say which version this is.")
    parser.add_argument("-h", "--help", action="help", help="Print this page.")
    return parser.parse_args(argv)


class _Page(argparse.ArgumentParser):
    """The options of a daemon, and its page in the order of all programs: the call, what it does, options, input, output, exit codes, examples."""

    what = rest = ""

    def format_help(self) -> str:
        options = self._get_formatter()
        options.start_section("Options")
        options.add_arguments([action for action in self._actions if action.option_strings])
        options.end_section()
        parts = [f"Usage: {self.usage}", self.what.strip(), options.format_help().strip()]
        return "\n\n".join([*filter(None, parts), *([f"Input:{self.rest.rstrip()}"] if self.rest else [])]) + "\n"

    def error(self, message: str) -> NoReturn:
        print(f"bubbles: {message}\n  try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)


def _told(error: BubblesError) -> int:
    with contextlib.suppress(OSError):  # whoever read it is gone
        print(f"bubbles: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""), file=sys.stderr, flush=True)
    return error.exit


def _bug(name: str, error: Exception) -> int:
    log.error("daemon.bug", f"{name} ends by a bug", error=error)
    print(f"bubbles: {name} ends by a bug: {type(error).__name__}", file=sys.stderr, flush=True)
    return SOFTWARE


def _undumpable() -> None:
    """Keep other processes of this user from reading our memory, which holds keys, and the kernel from writing it to a core file."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _with_parent(pid: str) -> None:
    """Be asked to end as soon as the parent, if it is `pid`, has ended; at once where it has by now."""
    if pid and sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if str(os.getppid()) != pid:
            raise TryAgain("whoever started this has ended", remedy="bubbles status")


def _forget_keys(name: str) -> None:
    """Drop what a service manager's or a person's environment holds that is not for this daemon, so that nothing it starts inherits it.

    The kernel goes on showing the first environment in /proc/PID/environ: to those whom `_undumpable` keeps out.
    """
    for variable in set(os.environ) - set(environment(name)):
        del os.environ[variable]


def _extended(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


def _line(text: str) -> str:
    return " ".join(text.split())


class _Manager:
    """Whoever started us and wants to know: systemd, or `starter`. Nothing that we start inherits the connection."""

    def __init__(self) -> None:
        self._notifier = sdnotify.SystemdNotifier()
        self.watchdog_s = 0.0
        if os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid()):
            with contextlib.suppress(ValueError):
                self.watchdog_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)

    def hurry(self) -> None:
        """From now on, what a manager that takes nothing (a terminal's Ctrl-Z stops a gateway) has no room for is dropped: we go on without it."""
        if self._notifier.socket is not None:
            self._notifier.socket.setblocking(False)

    def tell(self, *lines: str) -> None:
        text = "\n".join(lines)
        self._notifier.notify(text.encode().decode("latin-1"))  # the package sends latin-1; the manager reads UTF-8
