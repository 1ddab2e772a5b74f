"""The daemons as children of this process, by the rules of their units: started, told of, started again, and ended with it.

It does not know what a daemon does. One that was there before is left alone, unless it stays for a terminal's time only: then one of
ours takes its place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from bubbles import log, starter
from bubbles.bus.lock import Lock, is_running
from bubbles.channels import CHANNELS
from bubbles.errors import CONFIG, SOFTWARE, TEMPFAIL, USAGE, BubblesError
from bubbles.paths import Home
from bubbles.programs.daily import FIRST_S, Tidier
from bubbles.programs.wake import Wake
from bubbles.starter import Started, ends_when_idle

if TYPE_CHECKING:
    from bubbles.config.channels import Channels

DAEMONS = ("modeld", "agentd", "cron")
RESTART_S, CHANNEL_RESTART_S, WATCHDOG_S = 0.5, 5.0, 30.0  # as in the units
IDLE = "{}.idle"  # the second lock of one that does not stay: bubbles.daemon.idle, which would bring an event loop along
FINAL = (USAGE, CONFIG)  # exit codes after which starting it again would change nothing
STOP_S = 15.0  # a daemon takes twelve at most to end
_STAND_BY_S = 1.0  # between two looks at a daemon that somebody else started
PATIENCE_S = 5.0  # whoever waits for longer is told what for

Spawn = Callable[[BinaryIO], Started]  # begins to start a daemon whose words go to that file
Say = Callable[[str], object]
Show = Callable[[Home, str, BinaryIO], None]  # shows what the daemon of that name says, to its end


def daemons(home: Home, built: Iterable[str] = CHANNELS, *, watchdog_s: float = WATCHDOG_S) -> dict[str, Spawn]:
    """What is to run in a home: those that always do, and the channels that are built and switched on. Raises Misconfigured."""

    def spawn(*argv: str) -> Spawn:
        return lambda stderr: starter.spawn(home, *argv, stderr=stderr, with_us=True, watchdog_s=watchdog_s)

    from bubbles import config  # `gateway --help` needs none

    channels = switched_on(config.load(home, "channels").channels, built)
    return {name: spawn(name) for name in DAEMONS} | {f"channel-{name}": spawn("channel", name) for name in channels}


def switched_on(settings: Channels, built: Iterable[str]) -> list[str]:
    """Those of `built` that the configuration switches on."""
    return [name for name in built if getattr(getattr(settings, name, None), "enabled", False)]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is a home's daemon of some name. `stays` is false for one that a terminal started for its own time and that can be asked to end."""

    pid: int
    stays: bool
    where: str = ""  # "": here


def holder(home: Home, name: str) -> Holder | None:
    """Who it is; None where nobody is."""
    pid = is_running(home, name)
    if pid is None or is_running(home, IDLE.format(name)) != pid:
        return None if pid is None else Holder(pid, True)
    here = sys.platform != "linux" or ends_when_idle(pid)  # containers that share a home number their processes each for themselves
    return Holder(pid, not here, "" if here else " in another container, for a terminal")


class Children:
    """All daemons of a home, a thread each. One process alone keeps those of a home so. `why` says why no service manager does."""

    def __init__(
        self,
        home: Home,
        wanted: Mapping[str, Spawn],
        *,
        say: Say,
        show: Show,
        why: str = "",
        first_tidy_s: float = FIRST_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.home, self.say, self.show, self._why = home, say, show, why
        self.wake = Wake()
        self.stopping = threading.Event()
        self._all = [Child(self, name, spawn) for name, spawn in wanted.items()]
        self._tidier = Tidier(home, self.stopping, say, first_s=first_tidy_s)
        self._patience_s = patience_s
        self._told = False
        self._lock = threading.Lock()

    def run(self) -> int:
        """Until a signal comes, or no daemon is left to look after. Returns the exit code. Raises TryAgain where another does this already."""
        lock = Lock(self.home, "gateway")
        lock.acquire()
        try:
            because = f" ({self._why})" if self._why else ""
            self.say(f"gateway: starting {_and(child.name for child in self._all)} as children of this program{because}")
            for each in (*self._all, self._tidier):
                each.start()
            self._watch()
            return self._end()
        finally:
            lock.release()

    def settled(self) -> None:
        """A child is there, or will not be. Say so, once, when that holds for all."""
        with self._lock:
            if self._told or not all(child.state for child in self._all):
                return
            self._told = True
        ours, gone = [c.name for c in self._all if c.is_ours], [c.name for c in self._all if c.over]
        trouble = f"{_and(gone)} will not run; " if gone else ""
        ends = f"Ctrl-C ends {'all' if len(ours) == len(self._all) else _and(ours)}" if ours else "Ctrl-C ends this watch and none of them"
        self.say(f"gateway: {trouble}{'the others run' if gone else 'all run'}; {ends}")

    def _watch(self) -> None:
        told = 0.0
        while not self.wake.signals and not all(child.over for child in self._all):
            waits = any(child.waits_since for child in self._all)
            self.wake.wait(self._patience_s if waits else None)
            now = time.monotonic()
            waits_s = {child.name: now - since for child in self._all if (since := child.waits_since)}
            slow = [child.waited for child in self._all if waits_s.get(child.name, 0.0) >= self._patience_s]
            if slow and now - told >= self._patience_s and not self.wake.signals:
                told = now
                self.say(f"gateway: {_and(slow)} not ready yet, after {max(waits_s.values()):.0f} s")

    def _end(self) -> int:
        """End what is ours, at a second Ctrl-C or when it takes too long the hard way."""
        asked = bool(self.wake.signals)
        self.stopping.set()
        ours = [child.name for child in self._all if child.end()]
        if ours:
            self.say(f"gateway: ending {_and(ours)}; Ctrl-C again kills what is slow to end")
        deadline = time.monotonic() + STOP_S
        while not all(child.over for child in self._all):
            if time.monotonic() >= deadline or signal.SIGINT in self.wake.signals[1:]:
                self._kill()
            self.wake.wait(max(deadline - time.monotonic(), 0.1))
        for each in (*self._all, self._tidier):
            each.join()
        return 0 if asked else max(child.code for child in self._all)

    def _kill(self) -> None:
        killed = [child.name for child in self._all if child.kill()]
        if killed:
            self.say(f"gateway: killed {_and(killed)}; the next start goes on where it was")


class Child(threading.Thread):
    """Keeps one daemon running. `state` says how it is there, "" while it is not; `code` is what it ended with for good."""

    def __init__(self, family: Children, name: str, spawn: Spawn) -> None:
        super().__init__(name=name)
        self._family, self._spawn = family, spawn
        self._restart_s = CHANNEL_RESTART_S if name.startswith("channel-") else RESTART_S
        self.state = ""
        self.waits_since = 0.0  # when ours was begun that is not ready yet, by the monotonic clock; 0: there is none
        self.code = SOFTWARE  # whatever ends this thread without saying why is a bug
        self.is_ours = self.over = False
        self._was_ready = self._killed = False
        self._child: Started | None = None

    @property
    def waited(self) -> str:
        """Its name, and what it says for itself that it waits for."""
        status = self._child.status if self._child else ""
        return self.name + (f" ({log.escaped(status)})" if status else "")

    def end(self) -> bool:
        """Ask the daemon to end, ready or not. Whether there is one of ours."""
        process = self._child.process if self._child else None
        if process is None or process.poll() is not None:
            return False
        process.terminate()
        return True

    def kill(self) -> bool:
        """Kill it. Whether it was there, and not killed before."""
        if self._killed or self._child is None or self._child.process.poll() is not None:
            return False
        self._killed = True
        self._child.process.kill()
        return True

    def run(self) -> None:
        try:
            while not self._family.stopping.is_set() and self._keep():
                pass
        finally:
            self.over = True
            self._family.settled()
            self._family.wake.touch()

    def _keep(self) -> bool:
        """See that it runs, until it does not any more. Whether to go on."""
        there = holder(self._family.home, self.name)
        if there is not None and there.stays:
            self._is(f"runs already{there.where} (pid {there.pid}), and is left alone")
            return not self._family.stopping.wait(_STAND_BY_S)
        if there is not None:
            self._say(f"runs for a terminal (pid {there.pid}); one that stays takes its place")
        elif self.state:
            self._say("has ended; one of ours takes its place")
        self.state = ""
        code, started = self._once()
        self.state, self.is_ours = "", False
        if self._family.stopping.is_set():
            return False
        if code in FINAL:
            self._say(f"ended with {code} and is not started again; mend what it says above, then start the gateway anew")
            self.state, self.code = "will not run", code
            return False
        if code != TEMPFAIL or (there := holder(self._family.home, self.name)) is None or not there.stays:
            self._say(f"{_ended(code, started)}; it is started again in {self._restart_s:g} s")
            self._family.stopping.wait(self._restart_s)
        return True

    def _once(self) -> tuple[int, Started | None]:
        """Run it until it ends. Its exit code, and what there was of it."""
        read, write = os.pipe()
        lines = os.fdopen(read, "rb")
        try:
            with os.fdopen(write, "wb", buffering=0) as stderr:
                self._child = started = self._spawn(stderr)
        except (BubblesError, OSError) as error:
            lines.close()
            return self._not_started(error), None
        if self._family.stopping.is_set():  # it came while there was nothing to end
            started.process.terminate()
        self.waits_since = time.monotonic()
        self._family.wake.touch()
        reader = threading.Thread(target=self._family.show, args=(self._family.home, self.name, lines), daemon=True)
        reader.start()
        with contextlib.suppress(BubblesError):  # its own words are on the way through the pipe
            started.wait()
            self.is_ours, self.waits_since = True, 0.0
            self._is(f"is {'back' if self._was_ready else 'ready'} (pid {started.pid})")
            self._was_ready = True
            if started.watchdog_s:
                started.stay()
        self.waits_since = 0.0
        code = started.process.wait()
        reader.join(timeout=1)
        return code, started

    def _not_started(self, error: BubblesError | OSError) -> int:
        if isinstance(error, OSError):
            self._say(f"cannot be started: {error.strerror}")
            return TEMPFAIL
        self._say(f"cannot be started: {error.text}" + (f"\n  try: {error.remedy}" if error.remedy else ""))
        return error.exit

    def _is(self, state: str) -> None:
        if self.state != state:
            self.state = state
            self._say(state)
            self._family.settled()

    def _say(self, text: str) -> None:
        self._family.say(f"gateway: {self.name} {text}")


def _ended(code: int, started: Started | None) -> str:
    """How it ended, in words."""
    hung = f"did not feed its watchdog for {started.watchdog_s:g} s and " if started and started.hung else ""
    ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return hung + ended + ("" if started and started.ready else " before it was ready")


def _and(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
