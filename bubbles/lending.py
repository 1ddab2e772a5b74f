"""What the owner may lend to a session's tools, and what nobody may: directories, and variables of the environment.

It does not know who the owner is, nor where a loan is written down.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SYSTEM = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc")
WHOLE = ("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/usr", "/opt", "/mnt", "/media", "/srv", "/Users", "/Volumes")

_OWN = re.compile(r"HOME|XDG_(CONFIG|CACHE|DATA|STATE)_HOME", re.IGNORECASE)
# Why a variable never reaches a command; the first that fits is told.
_WITHHELD = {
    "it is Bubbles' own": re.compile(r"BUBBLES_.*", re.IGNORECASE),
    "a name like that may hold a key": re.compile(r".*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL).*", re.IGNORECASE),
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


def refused(path: Path, home: Path | None) -> str:
    """Why the directory `path` may not be lent; "" where it may. `home` is the root of this Bubbles, where it is known.

    Whether it is there is not asked: what is away today may be back tomorrow.
    """
    if not path.is_absolute():
        return "it is not an absolute path"
    real = Path(os.path.realpath(path))
    user = Path(os.path.realpath(os.path.expanduser("~")))
    if real == user or real in user.parents or str(real) in WHOLE:
        return "it holds far more than one project"
    own = home and Path(os.path.realpath(home))
    if own and (real == own or real in own.parents or own in real.parents):
        return "it holds, or lies in, Bubbles' own files"
    if any(real == Path(system) or Path(system) in real.parents for system in SYSTEM):
        return "it belongs to the system"
    return "it is not a directory" if os.path.exists(real) and not os.path.isdir(real) else ""


def withheld(name: str) -> str:
    """Why no command may see a variable of this name; "" where it may.

    >>> withheld("GITHUB_TOKEN"), withheld("LANG")
    ('a name like that may hold a key', '')
    """
    if "=" in name or not name.isprintable():
        return "it is no name of a variable"
    return next((why for why, names in _WITHHELD.items() if names.fullmatch(name)), "")


def unpassable(name: str) -> str:
    """Why an owner may not have a variable passed on, "" where it may: it is withheld, or each session has its own.

    >>> unpassable("HOME"), unpassable("LANG")
    ('each session has its own', '')
    """
    return "each session has its own" if _OWN.fullmatch(name) else withheld(name)
