"""Starts a real daemon of the product that dies where it is told to, and can be broken on purpose.

    python -m tests.crash.launch PROGRAM [ARG ...]

PROGRAM is agentd, modeld, cron or channel (the test channel). CRASH_DIR names the directory with its order (see doom.py);
CRASH_FAULT one fault of faults.py. Nothing else differs from the product but its pauses, which are made short.

    python -m tests.crash.launch --nursery

has everything imported already and forks a daemon for each line `{"program", "args", "env", "log"}` on standard input: a start
then costs a few milliseconds. It answers `{"pid", "ended": [[pid, status], ...]}`, and ends with its input, its daemons with it.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import pkgutil
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":  # run by its path, from any directory
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import bubbles
from tests.crash import faults, hops
from tests.crash.doom import Doom

MODULES = {"agentd": "bubbles.programs.agentd", "modeld": "bubbles.programs.modeld", "cron": "bubbles.cron.daemon"}
MODULES |= {"channel": "tests.fakes.channel"}
_WARM = ("agentd", "bus", "config", "cron", "kernel", "sandboxes", "sessions", "spool", "tools")  # packages whose modules are loaded late
_PDEATHSIG = 1


def run(program: str, args: list[str]) -> NoReturn:
    """Be the daemon."""
    sys.argv = [program, *args]
    main = importlib.import_module(MODULES[program]).main
    pace()
    directory = os.environ.pop("CRASH_DIR", "")
    fault = os.environ.pop("CRASH_FAULT", "")
    if directory:
        hops.install(program, Doom(Path(directory), "-".join([program, *args[:1]]) if program == "channel" else program))
    if fault:
        faults.FAULTS[fault].install(program)
    main()
    sys.exit(0)


def pace() -> None:
    """Make pauses short: a test waits for no minute. Only how long is waited changes, never what for."""
    from bubbles import daemon
    from bubbles.agentd import models

    daemon.Daemon.__init__.__kwdefaults__ |= {"tick_s": 2.0}  # type: ignore[operator]
    models._AWAY_S = (0.05,) * 100  # type: ignore[assignment]


def nurse() -> None:
    """Fork daemons until standard input ends."""
    for module in ("bubbles.providers.custom", *MODULES.values(), *_modules()):
        if importlib.util.find_spec(module):
            importlib.import_module(module)
    ended: list[tuple[int, int]] = []
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = os.fork() if order else 0
        if order and pid == 0:
            _be(order)
        _bury(ended)
        print(json.dumps({"pid": pid, "ended": ended}), flush=True)
        ended.clear()


def _modules() -> list[str]:
    paths = [str(Path(bubbles.__file__).with_name(package)) for package in _WARM]
    return [f"bubbles.{Path(found.module_finder.path).name}.{found.name}" for found in pkgutil.iter_modules(paths)]  # type: ignore[union-attr]


def _bury(ended: list[tuple[int, int]]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def _be(order: dict[str, Any]) -> NoReturn:
    """A child: as if it had been started by itself."""
    code: Any = 1
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        os.setsid()
        os.chdir("/")
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(source, fd)
        os.closerange(3, 256)
        os.environ.update(order["env"])
        run(order["program"], order["args"])
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    if sys.argv[1:] == ["--nursery"]:
        nurse()
    else:
        run(sys.argv[1], sys.argv[2:])
