"""What the owner may lend to a session's tools, and what nobody may: directories, what every jail shows, and variables of the environment.

It does not know who the owner is, nor where a loan is written down.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

SYSTEM = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc")
WHOLE = ("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/usr", "/opt", "/mnt", "/media", "/srv", "/Users", "/Volumes")

_FOR_ALL = ("/opt", "/srv", "/mnt", "/media")  # nobody's own, and shown whole where only reading is asked for
# What a jail is furnished with itself: nothing is bound over it, nor below what it can write.
_FURNITURE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev", "/run", "/var/run", "/tmp", "/var/tmp")
_BESIDE = Path("/mnt")  # where in a jail a thing may be shown that lies elsewhere outside

_OWN = re.compile(r"HOME|XDG_(CONFIG|CACHE|DATA|STATE)_HOME", re.IGNORECASE)
_PROXY = re.compile(r".*_PROXY", re.IGNORECASE)
# Why a variable never reaches a command; the first that fits is told.
_WITHHELD = {
    "it is Bubbles' own": re.compile(r"BUBBLES_.*", re.IGNORECASE),
    "a name like that may hold a key": re.compile(r".*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL).*", re.IGNORECASE),
    "a name like that may hold what logs somebody in": re.compile(
        r"(?!XDG_|DESKTOP_|GNOME_|KDE_)(.*_)?(PAT|AUTH|COOKIES?|SESSION|SESSION_ID|JWT|BEARER|PASS)", re.IGNORECASE
    ),
    "it makes programs run somebody else's code": re.compile(
        r"""LD_.* | DYLD_.* | BASH_ENV | BASH_FUNC_.* | ENV | SHELLOPTS | BASHOPTS | IFS | PS4 | PROMPT_COMMAND
        | PYTHON(PATH|STARTUP|HOME) | NODE_OPTIONS | PERL5(OPT|LIB) | RUBY(OPT|LIB) | GIT_(CONFIG.*|SSH.*|DIR|EXEC_PATH|ASKPASS) | SSH_ASKPASS""",
        re.VERBOSE | re.IGNORECASE,
    ),
    "it leads to programs outside the sandbox": re.compile(
        r"""SSH_AUTH_SOCK | GPG_AGENT_INFO | DBUS_.* | XDG_RUNTIME_DIR | DISPLAY | WAYLAND_DISPLAY | XAUTHORITY
        | NOTIFY_SOCKET | WATCHDOG_.* | LISTEN_.* | JOURNAL_STREAM | INVOCATION_ID""",
        re.VERBOSE | re.IGNORECASE,
    ),
}


HOLDS_PROGRAM = "it holds the program that runs Bubbles"
_WAYS_MOST = 100


def refused(path: Path, home: Path | None) -> str:
    """Why the directory `path` may not be lent; "" where it may. `home` is the root of this Bubbles, where it is known.

    Whether it is there is not asked: what is away today may be back tomorrow.
    """
    if not path.is_absolute():
        return "it is not an absolute path"
    real = _real(path)
    user = Path(os.path.realpath(os.path.expanduser("~")))
    if real == user or real in user.parents or str(real) in WHOLE:
        return "it holds far more than one project"
    own = home and _real(home)
    if own and (real == own or real in own.parents or any(way.is_relative_to(own) for way in ways(path))):
        return "it holds, or lies in, Bubbles' own files"
    if any(real == Path(system) or Path(system) in real.parents for system in SYSTEM):
        return "it belongs to the system"
    return "it is not a directory" if os.path.exists(real) and not os.path.isdir(real) else ""


def ways(path: Path) -> set[Path]:
    """Every place that resolving `path` passes: itself, what its links lead to, and what those do. Whoever writes in one decides where it leads."""
    found: set[Path] = set()
    waiting = [Path(os.path.abspath(path))]
    while waiting and len(found) < _WAYS_MOST:
        way = waiting.pop()
        if way in found:
            continue
        found.add(way)
        for at in (*reversed(way.parents), way):
            with contextlib.suppress(OSError):
                target = os.readlink(at)
                waiting.append(Path(os.path.normpath(at.parent / target / way.relative_to(at))))
                waiting.append(_real(at.parent) / at.name / way.relative_to(at))
                break
    return found | {_real(path)}


def holds_program(path: Path) -> bool:
    """Whether `path` holds, or lies in, the program that runs Bubbles: who may write there decides what runs next time, outside any sandbox."""
    real = _real(path)
    program = [Path(os.path.realpath(one)) for one in (sys.prefix, sys.base_prefix, Path(__file__).parent)]
    return any(own.is_relative_to(real) or real.is_relative_to(own) for own in program if own != Path("/usr"))


def unbindable(path: Path, mode: str, home: Path | None) -> str:
    """Why a file or directory may not be shown in every jail, to be read or, in the mode "rw", written; "" where it may. `misplaced` says where.

    What is at `path` now is looked at, through links; whether anything is there is not asked.
    """
    real = _real(path)
    why = refused(path, home)
    if why in ("", "it is not a directory") or (mode == "ro" and str(real) in _FOR_ALL):
        why = _odd_to_bind(path, real, mode)
    return why


def _odd_to_bind(path: Path, real: Path, mode: str) -> str:
    if path.name.endswith(".sock") or real.name.endswith(".sock"):
        return "it is a socket, which leads to a program outside"
    try:
        kind = os.stat(real).st_mode
    except OSError:
        kind = stat.S_IFDIR
    if stat.S_ISSOCK(kind):
        return "it is a socket, which leads to a program outside"
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        return "it is neither a file nor a directory"
    return HOLDS_PROGRAM if mode == "rw" and holds_program(real) else ""


def misplaced(at: Path, *, moved: bool, home: Path | None, writable: Iterable[Path] = ()) -> str:
    """Why nothing may be shown at `at` in a jail, "" where it may. `writable` are the places there that a command can write.

    `moved`: it lies elsewhere outside, and is shown below /mnt.
    """
    if not at.is_absolute() or at != Path(os.path.normpath(at)):
        return "its place in the jail is not an absolute path"
    if moved and (at == _BESIDE or not at.is_relative_to(_BESIDE)):
        return f"its place in the jail is not below {_BESIDE}"
    if at == Path("/") or any(at.is_relative_to(own) for own in _FURNITURE):
        return "its place in the jail is one that the jail has itself"
    if home is not None and any(at.is_relative_to(own) or own.is_relative_to(at) for own in (home, Path(os.path.realpath(home)))):
        return "it holds, or lies in, Bubbles' own files"
    return "its place in the jail lies where commands can write" if any(at.is_relative_to(place) for place in writable) else ""


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except OSError:  # a link of /proc that may not be followed
        return Path(os.path.abspath(path))


def withheld(name: str) -> str:
    """Why no command may see a variable of this name; "" where it may.

    >>> withheld("GITHUB_TOKEN"), withheld("LANG")
    ('a name like that may hold a key', '')
    """
    if "=" in name or not name.isprintable():
        return "it is no name of a variable"
    return next((why for why, names in _WITHHELD.items() if names.fullmatch(name)), "")


def unpassable(name: str) -> str:
    """Why an owner may not have a variable passed on, "" where it may: it is withheld, each session has its own, or a setting is there for it.

    >>> unpassable("HOME"), unpassable("LANG")
    ('each session has its own', '')
    """
    if name.upper() == "PATH":
        return "tools.exec.path_append adds to it"
    if _PROXY.fullmatch(name):
        return "tools.sandbox.network decides what a command reaches, and a proxy's address may hold a password"
    return "each session has its own" if _OWN.fullmatch(name) else withheld(name)
