"""bubbles.target as the user's service manager runs it: started if need be, its log shown, and what becomes of its units told.

It does not know what stands in a unit. Only a target that was started here is stopped from here.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from bubbles import log
from bubbles.bus.lock import is_running
from bubbles.errors import BubblesError, TryAgain, Unavailable
from bubbles.paths import Home
from bubbles.programs import entries
from bubbles.programs.children import DAEMONS, holder
from bubbles.programs.entries import Entry
from bubbles.programs.wake import Wake
from bubbles.systemd import SERVICES, TARGET, Unit, UserManager, unit_of

_SETTLING_S, _SETTLED_S = 0.5, 5.0  # between two looks at the units; the log tells of most changes before
_SOON_S = 0.1  # in which a manager has noticed that a process ended
_PATIENCE_S = 5.0  # whoever waits for longer is told what for
_LINES_MOST = 10  # of what a unit said before it failed
_RUNS = ("active", "activating", "reloading")

Say = Callable[[str], object]
ShowEntry = Callable[[Entry], object]


class Following:
    """One watch over the target. `show` is given each entry of the log."""

    def __init__(self, home: Home, manager: UserManager, *, say: Say, show: ShowEntry) -> None:
        self._home, self._manager, self._say, self._show = home, manager, say, show
        self.wake = Wake()
        self._units: dict[str, Unit] = {}
        self._is_mine = False
        self._seen_active = False
        self._names = [TARGET, *SERVICES]

    def run(self) -> int:
        """Until a signal comes, the target is stopped, or nothing of it runs. Returns the exit code. Raises TryAgain, Unavailable."""
        self._names += [unit_of(name) for name in self._manager.channels()]
        self._is_mine = self._manager.show(TARGET)[TARGET].active not in _RUNS
        if self._is_mine:
            self._refuse_beside_another()
        with self._log():
            if not self._is_mine:
                self._say(f"gateway: {TARGET} is active already; Ctrl-C ends this watch, and stops nothing")
                return self._left(self._watch(None))
            self._say(f"gateway: starting {TARGET}; Ctrl-C stops it")
            return self._stopped(self._watch(Errand(self._manager, self.wake, "start", TARGET)))

    def _refuse_beside_another(self) -> None:
        """A unit whose lock another holds would be started again and again."""
        gateway = is_running(self._home, "gateway")
        if gateway is not None:
            raise TryAgain(
                f"gateway is already running (pid {gateway}), and keeps the daemons as its children", remedy="end it where it runs, by Ctrl-C"
            )
        pids = {unit.pid for unit in self._manager.show(*SERVICES).values()}
        for name in DAEMONS:
            there = holder(self._home, name)
            if there is not None and there.stays and there.pid not in pids:
                raise TryAgain(f"{name} runs already (pid {there.pid}), and no unit started it", remedy=f"end what started it: kill {there.pid}")

    # -- the log

    @contextlib.contextmanager
    def _log(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            try:
                for _ in entries.read(self._home, entries.Wanted(since=time.time())):  # or why it cannot be read
                    break
                found = stack.enter_context(entries.follow(self._home))
                threading.Thread(target=self._show_all, args=(found,), daemon=True).start()
            except Unavailable as error:
                self._say(f"gateway: the log cannot be shown: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""))
            yield

    def _show_all(self, found: Iterable[Entry]) -> None:
        with contextlib.suppress(OSError, ValueError):  # it was closed, and we are ending
            for entry in found:
                self._show(entry)
                if entry.event.startswith("daemon."):
                    self.wake.touch()

    # -- the units

    def _watch(self, start: Errand | None) -> int:
        """Tell what becomes of the units. Returns the exit code when there is nothing left to watch, 0 where a signal ended it."""
        began = told = time.monotonic()
        while not self.wake.signals:
            starts = start is not None and not start.over
            try:
                before, self._units = self._units, self._manager.show(*self._names)
                if start is not None and start.failed is not None:
                    raise start.failed
            except Unavailable:
                if self.wake.signals:  # a terminal's Ctrl-C ends systemctl as well
                    break
                raise
            for name in self._names[1:]:
                self._tell(before.get(name), self._units[name])
            code = self._over(starts)
            if code is not None:
                return code
            waited = [unit for unit in self._services() if _is_begun(unit)]
            if waited and time.monotonic() - told >= _PATIENCE_S:
                told = time.monotonic()
                self._say(f"gateway: {', '.join(map(_waited, waited))}; not ready yet, after {told - began:.0f} s")
            self._sleep(_SETTLING_S if starts or waited else _SETTLED_S)
        return 0

    def _sleep(self, for_s: float) -> None:
        """Until something may have changed. A main process that has ended is looked at soon, while its manager says how that was."""
        lives = []
        for unit in self._services():
            with contextlib.suppress(OSError):  # gone by now
                lives += [os.pidfd_open(unit.pid)] if unit.pid else []
        ended = self.wake.wait(for_s, *lives)
        for fd in lives:
            os.close(fd)
        if ended:
            self.wake.wait(_SOON_S)

    def _services(self) -> list[Unit]:
        return [self._units[name] for name in self._names[1:]]

    def _tell(self, before: Unit | None, unit: Unit) -> None:
        name = _daemon(unit)
        if before is not None and (before.active, before.sub, before.pid) == (unit.active, unit.sub, unit.pid):
            return
        if unit.active == "active":
            ran = before is None and not self._is_mine
            self._say(f"gateway: {name} {'runs' if ran else 'is back' if unit.restarts else 'is ready'} (pid {unit.pid})")
        elif unit.sub == "auto-restart":
            self._say(f"gateway: {name} {_end(unit)}; it is started again")
        elif unit.active == "failed":
            self._say(f"gateway: {name} {_end(unit)}, and is not started again" + "".join(f"\n  {line}" for line in self._said(unit.name)))
        elif unit.active == "inactive" and before is not None and before.active in _RUNS and not unit.job and not self.wake.signals:
            self._say(f"gateway: {name} was stopped")

    def _over(self, starts: bool) -> int | None:
        """The exit code where there is nothing left to watch."""
        target = self._units[TARGET]
        self._seen_active = self._seen_active or target.active == "active"
        if starts:
            return None
        if target.active not in _RUNS and self._seen_active:
            self._say(f"gateway: {TARGET} was stopped by somebody else")
            self._is_mine = False
            return 0
        failed = [unit for unit in self._services() if unit.active == "failed"]
        if failed and not any(unit.active in _RUNS or _is_begun(unit) for unit in self._services()):
            return max(unit.code if unit.result == "exit-code" else 1 for unit in failed)
        return None

    def _said(self, unit: str) -> list[str]:
        """The last lines of a unit's last run that are not entries of the log: its errors, and what to do about them."""
        argv = ["journalctl", "--user", f"--user-unit={unit}", "--output=json", "--lines=50", "--quiet", "--no-pager"]
        try:
            told = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=10).stdout.splitlines()
        except (OSError, subprocess.SubprocessError):
            told = []
        found = [entry for line in told if (entry := _object(line)).get("_TRANSPORT") == "stdout"]
        run = found[-1].get("_SYSTEMD_INVOCATION_ID") if found else None
        lines = [str(entry.get("MESSAGE")) for entry in found if entry.get("_SYSTEMD_INVOCATION_ID") == run]
        return [log.escaped(line) for line in lines[-_LINES_MOST:]] or [f"look at: journalctl --user -u {unit} -n 20"]

    # -- the end

    def _left(self, code: int) -> int:
        if self.wake.signals:
            self._say(f"gateway: {TARGET} goes on")
        return code

    def _stopped(self, code: int) -> int:
        if not self._is_mine:
            return code
        self._say(f"gateway: stopping {TARGET}; Ctrl-C again leaves it to that")
        asked = len(self.wake.signals)
        hurried = False
        stop = Errand(self._manager, self.wake, "stop", *self._names)  # a target's own stop does not wait for its units'
        while not stop.over and not (hurried := signal.SIGINT in self.wake.signals[asked:]):
            self.wake.wait()
        if stop.failed is not None and not hurried:  # a terminal's Ctrl-C ends systemctl as well
            raise stop.failed
        self._say(f"gateway: {TARGET} {'goes on stopping by itself' if hurried else 'is stopped'}")
        return code


class Errand(threading.Thread):
    """`systemctl --user VERB UNITS`, until it is done. `failed` is why it could not be."""

    def __init__(self, manager: UserManager, wake: Wake, verb: str, *units: str) -> None:
        super().__init__(daemon=True)
        self._manager, self._wake, self._argv = manager, wake, (verb, *units)
        self.over = False
        self.failed: BubblesError | None = None
        self.start()

    def run(self) -> None:
        try:
            self._manager.call(*self._argv)
        except Unavailable as error:
            self.failed = error
        self.over = True
        self._wake.touch()


def _daemon(unit: Unit) -> str:
    return f"channel-{unit.channel}" if unit.channel else unit.name.removeprefix("bubbles-").removesuffix(".service")


def _is_begun(unit: Unit) -> bool:
    """Whether it is being started; it may still wait for what comes before it."""
    return unit.active == "activating" or (unit.active == "inactive" and unit.job > 0)


def _waited(unit: Unit) -> str:
    return _daemon(unit) + (f" ({log.escaped(unit.status)})" if unit.status else "")


def _end(unit: Unit) -> str:
    """How it ended, in words."""
    if unit.result == "signal":
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(unit.code).name}"
    if unit.result == "exit-code":
        return f"ended with {unit.code}"
    said = {"watchdog": "did not feed its watchdog and was killed", "oom-kill": "was killed for want of memory", "timeout": "took too long"}
    return said.get(unit.result, "ended")


def _object(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
