"""The home and its sockets: there, their owner's, and nobody else's.

It does not know what stands in a file. What a session's commands made (work/, data/, their HOME) is not looked into.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bubbles.bus import is_running
from bubbles.paths import Home, typed
from bubbles.programs.doctoring.alive import is_starting
from bubbles.programs.doctoring.alone import alone
from bubbles.programs.doctoring.finding import Finding, Findings, Fix, Patient, closed, fail, note, ok, warn
from bubbles.programs.running import CORE, Running, look

_NAMED = 3  # files that a sentence names
_OTHERS = 0o077
_PRUNED = {"sessions": ("work", "data"), "session_homes": None, "models": None}  # below these; None: all that lies below
_MARKS = ("config.json", "chats.json", "sessions", "session_homes", "turns")  # that nobody else has two of in one place
_OURS = (*_MARKS, "spool", "channels", "cron", "models", "jobs", "usage", "tokens", "log", "run")
_ANOTHER = "set BUBBLES_HOME to a directory of its own"
_NOTIFIED = re.compile(r"notify-([0-9]+)-[0-9a-f]+\.sock")  # on which a daemon tells who started it that it is ready
_TIGHTENED = ("config.json", "cron/jobs.json")  # whoever reads these makes them private, and says so


def home(patient: Patient) -> Findings:
    """Can the home be used, and by its owner alone?"""
    root = patient.home.root
    if "~" in root.parts:
        yield fail("nobody says where your files are: HOME is not set, and this user is not known", "set HOME, or BUBBLES_HOME")
        return
    try:
        found = root.stat()
    except FileNotFoundError:
        if root.is_symlink():
            yield fail(f"{root} is a link that leads nowhere", f"rm {typed(root)}")
        else:
            yield note(f"there is no home yet: {root}", "bubbles onboard")
        return
    except OSError as error:
        yield closed(root, error)
        return
    yield _usable(root, found)


def _usable(root: Path, found: os.stat_result) -> Finding:
    """As `Home.prepare` sees it; it is made by nobody here."""
    mode = stat.S_IMODE(found.st_mode)
    close = f"chmod 700 {typed(root)}"
    private = Fix(close, lambda: root.chmod(0o700))
    if not stat.S_ISDIR(found.st_mode):
        return fail(f"{root} is not a directory", "set BUBBLES_HOME to a directory of your own")
    if _is_for_others(root):
        return fail(f"{root} is a place for other things, too; no daemon starts in it", _ANOTHER)
    if not _is_home(root):
        return warn(f"{root} is no home of Bubbles, and other things lie in it", _ANOTHER)
    if found.st_uid != os.geteuid():
        return fail(
            f"{root} belongs to another user (uid {found.st_uid}), and you are uid {os.geteuid()}", "run this as its owner, or set BUBBLES_HOME"
        )
    if mode & 0o022 or mode & 0o700 != 0o700:
        return fail(f"{root} has mode {mode:04o}; no daemon starts in it", close, private)
    if mode & _OTHERS:
        return warn(f"{root} may be looked into by others (mode {mode:04o})", close, private)
    return ok(f"{root}")


def _is_home(root: Path) -> bool:
    """Whether a directory is a home, or may become one: nothing but what Bubbles makes lies in it, or two things that nobody else makes.

    What cannot be looked into is believed to be one.
    """
    if _is_for_others(root):
        return False
    try:
        names = os.listdir(root)
    except OSError:
        return True
    return all(map(_is_ours, names)) or sum(mark in names for mark in _MARKS) >= 2


def _is_for_others(root: Path) -> bool:
    """Whether `Home.prepare` makes no home of it, whatever lies in it."""
    return os.path.realpath(root) in ("/", os.path.realpath(os.path.expanduser("~")))


def _is_ours(name: str) -> bool:
    """Whether something in the home has a name that Bubbles gives, or a copy of it."""
    return any(name == ours or name.startswith(f"{ours}.") for ours in _OURS)


@dataclass(slots=True)
class _Seen:
    count: int = 0
    foreign: list[Path] = field(default_factory=list)
    loose: list[Path] = field(default_factory=list)
    closed: list[Path] = field(default_factory=list)  # to ourselves
    unread: list[Path] = field(default_factory=list)


def modes(patient: Patient) -> Findings:
    """Are the home's files its owner's, and private?"""
    seen = _Seen()
    root = patient.home.root
    if not _is_home(root):
        return  # `home` tells
    for path, info in _entries(root, "", seen):
        _sort(root, path, info, seen)
    if seen.foreign:
        yield fail(
            f"{_these(root, seen.foreign)} to another user: was a program run by `sudo`?", f"chown -R {os.geteuid()} {_tops(root, seen.foreign)}"
        )
    if seen.closed:
        yield fail(
            f"{_these(root, seen.closed)} to you, and cannot be used",
            f"chmod -R u+rwX {_tops(root, seen.closed)}",
            _chmod(seen.closed, "make usable"),
        )
    if seen.loose:
        yield warn(f"{_these(root, seen.loose)} to others as well", f"chmod -R go= {_tops(root, seen.loose)}", _chmod(seen.loose, "make private"))
    if seen.unread:
        yield fail(f"{_listed(root, seen.unread)} cannot be looked into", f"ls -ld {typed(seen.unread[0])}")
    if seen.count and not (seen.foreign or seen.closed or seen.loose or seen.unread):
        yield ok(f"{seen.count} files and directories are yours alone")


def _entries(root: Path, below: str, seen: _Seen) -> Iterator[tuple[Path, os.stat_result]]:
    """What lies in the home and is ours to look after. No link is followed."""
    try:
        entries = sorted(os.scandir(root / below), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        if not below:
            raise
        seen.unread.append(root / below)
        return
    for entry in entries:
        if not below and not _is_ours(entry.name):
            continue
        place = f"{below}/{entry.name}".lstrip("/")
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:  # gone meanwhile
            continue
        yield root / place, info
        if stat.S_ISDIR(info.st_mode) and not _is_pruned(place) and info.st_mode & 0o500 == 0o500:
            yield from _entries(root, place, seen)


def _is_pruned(place: str) -> bool:
    top, *rest = place.split("/")
    names = _PRUNED.get(top, ())
    return names is None or (len(rest) == 2 and rest[1] in names)


def _sort(root: Path, path: Path, info: os.stat_result, seen: _Seen) -> None:
    is_directory = stat.S_ISDIR(info.st_mode)
    if not is_directory and not stat.S_ISREG(info.st_mode):
        return
    seen.count += 1
    needed = 0o700 if is_directory else 0o600
    if info.st_uid != os.geteuid():
        seen.foreign.append(path)
    elif info.st_mode & needed != needed:
        seen.closed.append(path)
    elif info.st_mode & _OTHERS and str(path.relative_to(root)) not in _TIGHTENED:
        seen.loose.append(path)


def _chmod(paths: list[Path], what: str) -> Fix:
    def deed() -> None:
        for path in paths:
            found = path.lstat()
            if not stat.S_ISLNK(found.st_mode):
                path.chmod(stat.S_IMODE(found.st_mode) & 0o700 | (0o700 if stat.S_ISDIR(found.st_mode) else 0o600))

    return Fix(f"{what}: {_listed(None, paths)}", deed)


def _tops(root: Path, paths: list[Path]) -> str:
    """What to name in a command so that it reaches all of `paths`, and nothing that is not ours."""
    return " ".join(typed(root / name) for name in sorted({path.relative_to(root).parts[0] for path in paths}))


def _these(root: Path, paths: list[Path]) -> str:
    return f"{_listed(root, paths)} {'belongs' if len(paths) == 1 else 'belong'}"


def _listed(root: Path | None, paths: list[Path]) -> str:
    names = [str(path.relative_to(root)) if root else str(path) for path in paths[:_NAMED]]
    more = len(paths) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


# -- sockets ------------------------------------------------------------------------------------------


def sockets(patient: Patient) -> Findings:
    """Can the programs reach each other?"""
    place = patient.home.sockets
    yield from _elsewhere(place)
    try:
        found = place.lstat()
    except FileNotFoundError:
        found = None
    if found is not None and (wrong := _not_private(place, found)):
        yield wrong
        return
    stale = list(_stale(patient.home, place))
    lost = list(_lost(patient.home, place))
    yield from stale
    yield from lost
    if not stale and not lost:
        yield ok(f"{place}" if found else f"{place}, made when the first daemon starts")


def _elsewhere(place: Path) -> Findings:
    """Where the runtime directory is not used, why."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if str(place.parent) == runtime:
        return
    if not runtime:
        yield note(
            f"XDG_RUNTIME_DIR is not set: the sockets lie in {place}", "log in afresh, not by su or sudo; in a container this is as it should be"
        )
    elif _is_private(runtime):
        yield note(f"XDG_RUNTIME_DIR is too long for the name of a socket ({len(os.fsencode(runtime))} bytes): they lie in {place}")
    else:
        yield warn(
            f"XDG_RUNTIME_DIR ({runtime}) is no directory of yours alone: the sockets lie in {place}, where units do not look",
            f"export XDG_RUNTIME_DIR=/run/user/{os.geteuid()}",
        )


def _is_private(runtime: str) -> bool:
    """Whether a runtime directory is one that `Home.sockets` would take."""
    try:
        found = os.stat(runtime)
    except (OSError, ValueError):
        return False
    return os.path.isabs(runtime) and stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _not_private(place: Path, found: os.stat_result) -> Finding | None:
    mode, close = stat.S_IMODE(found.st_mode), f"chmod 700 {typed(place)}"
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return fail(f"{place} is not a directory of yours, and no daemon starts", f"rm -r {typed(place)}")
    if mode & _OTHERS or mode & 0o700 != 0o700:
        return fail(f"{place} has mode {mode:04o}, and no daemon starts", close, Fix(close, lambda: place.chmod(0o700)))
    return None


def _stale(home: Home, place: Path) -> Findings:
    """Sockets of programs that are dead: whoever binds one anew takes its place, and whoever looks for it is misled until then.

    What has another name is not ours to judge.
    """
    for path in sorted(place.glob("*.sock")):
        owner = _owner(path.stem)
        if owner and is_running(home, owner) is None:
            deed = partial(_remove, home, owner, path)
            yield warn(f"{path} is the socket of a dead {owner}", f"rm {typed(path)}", Fix(f"remove {path}", deed))
        elif (starter := _NOTIFIED.fullmatch(path.name)) and not _is_there(int(starter[1])) and not _is_heard(path):
            deed = partial(path.unlink, missing_ok=True)
            yield warn(f"{path} was left by a program that is gone", f"rm {typed(path)}", Fix(f"remove {path}", deed))


def _owner(name: str) -> str:
    """The daemon that a socket belongs to, "" where it is none's: agentd has a feed as well."""
    return "agentd" if name == "feed" else name if name in CORE or name.startswith("channel-") else ""


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _is_heard(path: Path) -> bool:
    """Whether somebody has a socket for datagrams open: in a container processes have other numbers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
    return True


def _remove(home: Home, name: str, path: Path) -> None:
    """Under the daemon's own lock: one that starts meanwhile keeps its socket. Raises TryAgain where it runs."""
    with alone(home, name):
        path.unlink(missing_ok=True)


def _lost(home: Home, place: Path) -> Findings:
    """Daemons whose sockets are not where we look."""
    for daemon in look(home).daemons.values():
        if _is_lost(home, place, daemon) and is_starting(daemon):
            yield note(f"{daemon.name} is starting (pid {daemon.pid})")
        elif _is_lost(home, place, daemon):
            yield fail(
                f"{daemon.name} runs (pid {daemon.pid}), and its socket is not in {place}: it was started with another XDG_RUNTIME_DIR,"
                " or somebody removed it",
                f"see that XDG_RUNTIME_DIR is the same everywhere, then: kill {daemon.pid}",
            )


def _is_lost(home: Home, place: Path, daemon: Running) -> bool:
    return daemon.pid is not None and not (place / f"{daemon.name}.sock").exists() and is_running(home, daemon.name) == daemon.pid
