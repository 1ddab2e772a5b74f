"""The environment of a command: what it inherits, and what never reaches it.

It does not know which session it is for. A name that may carry a key, or that makes a program load somebody's code, is never passed.
"""

from __future__ import annotations

import functools
import os
import pwd
from collections.abc import Iterable, Mapping
from pathlib import Path

from bubbles.errors import Misconfigured
from bubbles.lending import unpassable, withheld

# What a program should know that has no terminal and nobody to ask.
_MANNERS = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PYTHONUNBUFFERED": "1",
}
_PATH = "/usr/local/bin:/usr/bin:/bin"


def check(names: Iterable[str]) -> None:
    """Raises Misconfigured for the first of `names`, those of tools.sandbox.pass_env, that must not be passed."""
    for name in names:
        if why := unpassable(name):
            raise Misconfigured(
                f"tools.sandbox.pass_env names {name}, which is never passed to commands: {why}",
                remedy=f"take {name} out of tools.sandbox.pass_env",
            )


def inherited(environ: Mapping[str, str], path_append: str = "", timezone: str = "") -> dict[str, str]:
    """The owner's own environment without what is never passed."""
    kept = {name: value for name, value in environ.items() if not withheld(name)}
    return kept | _MANNERS | {"PATH": _path(kept.get("PATH") or _PATH, path_append)} | _zone(timezone)


def private(environ: Mapping[str, str], home: Path, pass_env: Iterable[str] = (), path_append: str = "", timezone: str = "") -> dict[str, str]:
    """An environment made from nothing, with `home` as HOME; of `environ` only the names in `pass_env`."""
    user = _user(os.geteuid())
    made = {
        "PATH": _path(_PATH, path_append),
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
    }
    passed = {name: environ[name] for name in pass_env if name in environ and not unpassable(name)}
    return _zone(environ.get("TZ", "")) | made | _MANNERS | passed | _zone(timezone)


def _path(path: str, append: str) -> str:
    return ":".join(part for part in (path, append) if part)


def _zone(timezone: str) -> dict[str, str]:
    return {"TZ": timezone} if timezone else {}


@functools.lru_cache(maxsize=4)
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "agent"
