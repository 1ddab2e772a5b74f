"""The person's own service manager: is there one, what does it say of our units, and whose home are they for.

It does not know what stands in a unit; `bubbles.programs.units` does. All it learns, it learns by `systemctl --user`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Unavailable

TARGET = "bubbles.target"
SERVICES = ("bubbles-agentd.service", "bubbles-modeld.service", "bubbles-cron.service")  # those that always run
TIDY = ("bubbles-tidy.timer", "bubbles-tidy.service")
CHANNEL = "bubbles-channel@"  # and its name, and .service

_SHOWN = (
    "LoadState,ActiveState,SubState,MainPID,Result,ExecMainStatus,NRestarts,StateChangeTimestampMonotonic,StatusText,"
    "UnitFileState,FragmentPath,DropInPaths,Job"
)
_COMING = ("active", "activating", "deactivating", "reloading")  # one whose main process has just died still counts as active
_GREETED_S = 2.0
_ASKED_S = 10.0  # a manager that has not said by then how its units are, does not answer


@dataclass(frozen=True, slots=True)
class Unit:
    """What the manager says of a unit, in its own words. `since` is epoch seconds of its last change; all numbers are 0 where there is none."""

    name: str
    load: str  # loaded, not-found, bad-setting, masked, error
    active: str  # active, activating, deactivating, failed, inactive
    sub: str  # running, auto-restart, dead, …
    pid: int
    result: str  # success, exit-code, signal, watchdog, oom-kill, timeout, …
    code: int  # of the main process's last end
    restarts: int
    since: float
    status: str  # its last word about itself
    enabled: str  # enabled, disabled, static, …; "": not installed
    path: Path | None
    drop_ins: tuple[Path, ...]
    job: int = 0  # the number of what the manager is about to do with it, once another unit is through

    @property
    def is_installed(self) -> bool:
        return self.load not in ("not-found", "")

    @property
    def channel(self) -> str:
        """The name of the channel that it serves; "" for any other unit."""
        return channel_of(self.name)


def unit_of(channel: str) -> str:
    """The unit that serves a channel."""
    return f"{CHANNEL}{channel}.service"


def channel_of(unit: str) -> str:
    """The name of the channel that a unit serves; "" where it serves none."""
    return unit.removeprefix(CHANNEL).removesuffix(".service") if unit.startswith(CHANNEL) else ""


def version() -> int:
    """Which systemd is installed here; 0: none."""
    try:
        said = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, timeout=_ASKED_S).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.match(r"systemd (\d+)", said)
    return int(found[1]) if found else 0


def lingers() -> bool:
    """Whether this user's manager is started at boot, and stays when the last login ends."""
    with contextlib.suppress(KeyError, OSError):
        return (Path("/var/lib/systemd/linger") / pwd.getpwuid(os.geteuid()).pw_name).exists()
    return False


def coming(home: Path, programs: Sequence[str]) -> bool:
    """Whether the user's manager runs one of these daemons of `home`, is starting or ending one, or will in a moment. False where none answers."""
    try:
        manager = UserManager.reach()
        if manager is None or not any(manager.is_up_to(f"bubbles-{name}.service" for name in programs)):
            return False
        return _is_same(manager.home_of_units(), home)
    except Unavailable:
        return False


def is_hung() -> bool:
    """Whether this user's manager is there and does not answer: to be asked where `reach` gave None. A busy one has had its time twice then."""
    place = _place()
    with socket.socket(socket.AF_UNIX) as door:
        try:
            if place:
                _answers(door, place)
        except (TimeoutError, BlockingIOError):  # nobody speaks, or nobody has opened for so long that the queue at the door is full
            return True
        except OSError:  # nobody listens: it left its socket behind
            return False
    return False


def _place() -> str:
    """Where this user's manager is to be spoken to; "" where there is none to be seen, or nothing to speak with."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(runtime) or shutil.which("systemctl") is None:
        return ""
    place = os.path.join(runtime, "systemd", "private")
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(place)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.geteuid():  # after `sudo -E` it is another's
            return place
    return ""


def _is_same(one: Path | None, other: Path) -> bool:
    return one is not None and os.path.realpath(one) == os.path.realpath(other)


class UserManager:
    """A manager that answered when it was reached."""

    @classmethod
    def reach(cls) -> UserManager | None:
        """This user's manager; None where none answers. It raises nothing, and starts no program."""
        place = _place()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as door:
            if place and _answers(door, place):
                return cls()
        return None

    def show(self, *names: str) -> dict[str, Unit]:
        """Each of `names` as it stands, in their order; what is not installed is there too, `load` says so. Raises Unavailable."""
        if not names:
            return {}
        told = self.call("show", f"--property={_SHOWN}", "--", *names, timeout_s=_ASKED_S)
        return {name: _unit(name, block) for name, block in zip(names, _blocks(told), strict=True)}

    def is_up_to(self, names: Iterable[str]) -> Iterator[bool]:
        """Of each unit, whether it is about to be something: it runs, starts, ends, or a job for it waits for another unit. Raises Unavailable."""
        for said in _blocks(self.call("show", "--property=ActiveState,Job", "--", *names, timeout_s=_ASKED_S)):
            yield said.get("ActiveState") in _COMING or _number(said.get("Job")) > 0

    def channels(self) -> list[str]:
        """The channels whose unit is loaded or enabled, sorted. Raises Unavailable."""
        wanted = self.call("show", "--property=Wants", "--value", TARGET, timeout_s=_ASKED_S).split()
        loaded = self.call("list-units", "--all", "--plain", "--no-legend", f"{CHANNEL}*.service", timeout_s=_ASKED_S).splitlines()
        names = [*wanted, *(line.split()[0] for line in loaded if line.strip())]
        return sorted({channel for name in names if (channel := channel_of(name))})

    def call(self, *args: str, timeout_s: float | None = None) -> str:
        """What `systemctl --user ARGS` prints. Raises Unavailable with its words where it fails."""
        command = ["systemctl", "--user", "--no-pager", "--no-ask-password", *args]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"the user's service manager did not answer within {timeout_s:g} s", remedy=shlex.join(command)) from error
        except OSError as error:
            raise Unavailable(f"systemctl cannot be run: {error.strerror}", remedy="install systemd, or: bubbles gateway") from error
        if done.returncode:
            words = " ".join(done.stderr.split()) or f"it ended with {done.returncode}"
            raise Unavailable(f"systemctl --user {' '.join(args[:2])}: {words}", remedy=shlex.join(["systemctl", "--user", "status", TARGET]))
        return done.stdout

    def home_of_units(self) -> Path | None:
        """The home that the installed units are for; None where none are installed. Raises Unavailable."""
        told = self.call("show", "--property=LoadState,Environment", SERVICES[0], timeout_s=_ASKED_S)
        said = dict(line.partition("=")[::2] for line in told.splitlines())
        if said.get("LoadState") in ("not-found", None):
            return None
        return _home(said.get("Environment", ""))


def _answers(door: socket.socket, place: str) -> bool:
    """Whether somebody at a bus lets us in. Whoever connects and says nothing is written into the manager's log."""
    door.settimeout(_GREETED_S)
    door.connect(place)
    door.sendall(b"\0AUTH EXTERNAL %s\r\n" % str(os.geteuid()).encode().hex().encode())
    return door.recv(64).startswith(b"OK")


def _home(environment: str) -> Path:
    """The home that a unit's variables name, as `systemctl show` prints them."""
    with contextlib.suppress(ValueError):
        for variable in reversed(shlex.split(re.sub(r"\\([$`])", r"\1", environment))):  # which shlex leaves escaped within quotes
            name, _, value = variable.partition("=")
            if name == "BUBBLES_HOME":
                return Path(value)
    return Path(os.path.expanduser("~/.bubbles"))


def _blocks(told: str) -> Iterator[dict[str, str]]:
    for block in told.strip("\n").split("\n\n"):
        yield dict(line.partition("=")[::2] for line in block.splitlines())


def _unit(name: str, said: dict[str, str]) -> Unit:
    path = said.get("FragmentPath", "")
    return Unit(
        name,
        load=said.get("LoadState", ""),
        active=said.get("ActiveState", ""),
        sub=said.get("SubState", ""),
        pid=_number(said.get("MainPID")),
        result=said.get("Result", ""),
        code=_number(said.get("ExecMainStatus")),
        restarts=_number(said.get("NRestarts")),
        since=_at(_number(said.get("StateChangeTimestampMonotonic"))),
        status=said.get("StatusText", ""),
        enabled=said.get("UnitFileState", ""),
        path=Path(path) if path else None,
        drop_ins=tuple(_paths(said.get("DropInPaths", ""))),
        job=_number(said.get("Job")),
    )


def _paths(text: str) -> Iterable[Path]:
    try:
        return map(Path, shlex.split(text))
    except ValueError:
        return map(Path, text.split())


def _at(monotonic_us: int) -> float:
    """Epoch seconds of a moment of the machine's monotonic clock; 0.0 for none. Older managers can name times in no other way that is a number."""
    return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - monotonic_us / 1e6) if monotonic_us else 0.0


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
