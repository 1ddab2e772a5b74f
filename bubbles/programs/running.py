"""How the daemons of a home run: which, by whom, since when, and what each says at its door. It looks, and changes nothing.

It does not know what is well and what is not; `bubbles.programs.verdict` does.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.errors import BubblesError, Unavailable
from bubbles.paths import Home
from bubbles.starter import ends_when_idle

if TYPE_CHECKING:
    from bubbles.systemd import Unit, UserManager

CORE = ("agentd", "modeld", "cron")
DOORS_S = 2.0  # all doors together have so long to answer
_MANAGER_S = 2.8  # and the service manager, from the same moment: longer than what it is given to greet us
_READS_CONFIG = "agentd", "modeld", "channel-"
_OF_UNIT = ("name", "active", "sub", "result", "code", "restarts", "since", "status", "enabled")
RUN_BY = {"unit": "systemd", "gateway": "gateway", "terminal": "terminal", "once": "once", "hand": "hand"}  # for people, by Running.by
_OPS = {"agentd": "status", "modeld": "ping", "cron": "status"}


@dataclass(slots=True)
class Running:
    """One daemon. `by` is who runs it: unit, gateway, hand, terminal (it ends when the last terminal has), once (it ends when all is done); "" where
    it does not run."""

    name: str
    pid: int | None = None
    by: str = ""
    since: float | None = None  # epoch seconds
    unit: Unit | None = None  # where one is installed for this home
    answer: dict[str, Any] | None = None  # what it said at its door
    silent: str = ""  # why it did not
    before_config: bool = False  # it started before config.json was changed, and reads it only then

    @property
    def state(self) -> str:
        """up, starting, stopping, restarting (it ended by itself, and is started again), failed (it is not), down."""
        active, sub = (self.unit.active, self.unit.sub) if self.unit is not None and self.by in ("", "unit") else ("", "")
        if active == "failed" or sub == "auto-restart":
            return "failed" if active == "failed" else "restarting"
        if active in ("activating", "deactivating"):
            return "starting" if active == "activating" else "stopping"
        if self.unit is not None and self.unit.job and active == "inactive":
            return "starting"
        return "up" if self.pid is not None else "down"

    @property
    def lasts(self) -> bool:
        """Whether it is there for good, and not for a terminal's time."""
        return self.by in ("unit", "gateway", "hand")

    @property
    def version(self) -> str:
        """Of the program that runs; "" where it does not say."""
        return str((self.answer or {}).get("version", ""))

    @property
    def channel(self) -> str:
        """The channel that it serves, "" where it is none's."""
        return self.name.removeprefix("channel-") if self.name.startswith("channel-") else ""

    @property
    def unit_name(self) -> str:
        """What its unit is called, without its ending, whether there is one or not."""
        own = f"bubbles-channel@{self.channel}" if self.channel else f"bubbles-{self.name}"
        return self.unit.name.removesuffix(".service") if self.unit is not None else own

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "state": self.state,
            "pid": self.pid,
            "by": self.by or None,
            "since": self.since,
            "version": self.version or None,
            "silent": self.silent or None,
            "before_config": self.before_config,
            "unit": {key: getattr(self.unit, key) for key in _OF_UNIT} if self.unit is not None else None,
        }


@dataclass(slots=True)
class Ran:
    """All daemons of a home by their names, and what kept us from seeing their units. `is_hung`: their manager is there, and does not answer."""

    daemons: dict[str, Running] = field(default_factory=dict)
    unseen: str = ""
    is_hung: bool = False


def look(home: Home, channels: Iterable[str] = ()) -> Ran:
    """How the daemons run: those that always should, those of `channels`, and whichever other channel has a lock or a unit."""
    ran = Ran()
    wanted = [*CORE, *sorted({f"channel-{name}" for name in channels} | {path.stem for path in home.run.glob("channel-*.lock")})]
    units = _Units(home, wanted)
    for name in wanted:
        ran.daemons[name] = _seen(home, name)
    _ask(home, [daemon for daemon in ran.daemons.values() if daemon.pid is not None])
    for name, unit in sorted(units.by(ran).items()):
        ran.daemons.setdefault(name, Running(name)).unit = unit
    for daemon in ran.daemons.values():
        daemon.by = _by(home, daemon, daemon.pid) if daemon.pid is not None else ""
    return ran


def _seen(home: Home, name: str) -> Running:
    found = Running(name, is_running(home, name))
    if found.pid is not None:
        found.since = _mtime(home.lock(name))  # its pid was written there when it began
        changed = _mtime(home.config)
        found.before_config = name.startswith(_READS_CONFIG) and found.since is not None and changed is not None and changed > found.since
    return found


def _mtime(path: os.PathLike[str]) -> float | None:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


# -- by whom ---------------------------------------------------------------------------------------


def _by(home: Home, daemon: Running, pid: int) -> str:
    """Who started a daemon, as far as its unit and the system show it."""
    if (daemon.unit is not None and daemon.unit.pid == pid) or _is_of_unit(pid, f"{daemon.unit_name}.service"):
        return "unit"
    if (for_a_terminal := ends_when_idle(pid)) or "--once" in _words(pid):
        return "terminal" if for_a_terminal else "once"
    gateway = is_running(home, "gateway")
    return "gateway" if gateway is not None and _parent(pid) in (gateway, 0) else "hand"


def _words(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(1 << 16).decode("utf-8", "replace").split("\0")
    except OSError:
        return []


def _is_of_unit(pid: int, unit: str) -> bool:
    """Whether a process is in the group of a unit, as the kernel knows it: also where its manager says nothing."""
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return any(line.rstrip(b"\n").removesuffix(b"/main").endswith(b"/" + os.fsencode(unit)) for line in file)  # agentd divides its own
    except OSError:
        return False


def _parent(pid: int) -> int:
    """The pid of a process's parent; 0 where the system does not show it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read(4096).rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


# -- units -----------------------------------------------------------------------------------------


class _Units:
    """The units of a home's daemons, which are asked for beside all else: a manager that hangs takes no more time than is given to it."""

    def __init__(self, home: Home, wanted: Iterable[str]) -> None:
        self._home, self._wanted = home, list(wanted)
        self._found: Mapping[str, Unit] = {}
        self._unseen = ""
        self._is_hung = False
        self._until = time.monotonic() + _MANAGER_S
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._is_there = os.path.exists(os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), "systemd", "private"))
        if self._is_there:  # nothing is loaded to ask a manager that is not there
            self._thread.start()

    def by(self, ran: Ran) -> Mapping[str, Unit]:
        """They by the daemons' names. What cannot be seen is told in `ran`."""
        if self._is_there:
            self._thread.join(max(self._until - time.monotonic(), 0))
            ran.is_hung = self._is_hung or self._thread.is_alive()
        ran.unseen = self._unseen
        return self._found

    def _ask(self) -> None:
        from bubbles.systemd import UserManager, is_hung

        try:
            if (manager := UserManager.reach()) is not None:
                self._found = _shown(manager, self._home, self._wanted)
            else:
                self._is_hung = is_hung()
        except Unavailable as error:
            self._unseen = error.text


def _shown(manager: UserManager, home: Home, wanted: Iterable[str]) -> dict[str, Unit]:
    from bubbles.systemd import unit_of

    theirs = manager.home_of_units()
    if theirs is None or os.path.realpath(theirs) != os.path.realpath(home.root):
        return {}
    names = {name: f"bubbles-{name}.service" for name in CORE}
    channels = {*manager.channels(), *(name.removeprefix("channel-") for name in wanted if name.startswith("channel-"))}
    names |= {f"channel-{channel}": unit_of(channel) for channel in channels}
    shown = manager.show(*names.values())
    return {name: shown[unit] for name, unit in names.items() if shown[unit].is_installed}


# -- doors -----------------------------------------------------------------------------------------


def _ask(home: Home, daemons: list[Running]) -> None:
    """Ask all at once. One that does not answer in time, whatever keeps it, is left where it is."""
    threads = [threading.Thread(target=_question, args=(home, daemon), daemon=True) for daemon in daemons]
    for daemon, thread in zip(daemons, threads, strict=True):
        daemon.silent = f"was silent for {DOORS_S:g} s"
        thread.start()
    deadline = time.monotonic() + DOORS_S
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))


def _question(home: Home, daemon: Running) -> None:
    try:
        with Dial(home, daemon.name, restart_s=0) as dial:
            answer = dial.call(_OPS.get(daemon.name, "status"), timeout_s=DOORS_S)[0]
        daemon.answer, daemon.silent = answer, ""
    except BubblesError as error:
        is_there = os.path.exists(place := home.door(daemon.name).removeprefix("ipc://"))
        daemon.silent = error.text.removeprefix(f"{daemon.name} ") if is_there else f"has no door at {place}"
    except OSError as error:
        daemon.silent = f"cannot be asked: {error.strerror}"
