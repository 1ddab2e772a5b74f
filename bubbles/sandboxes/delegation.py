"""Which cgroup is this very process's to divide: its unit's own, where systemd has given it away, and nothing above it.

A shell that somebody typed a daemon's name into is never taken for a unit: systemd has to have started this process itself, in a unit of ours or
in one with Delegate=, or the environment has to say so (`BUBBLES_CGROUP=own`, for a test or a container). It does not know what for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SAID = "BUBBLES_CGROUP"
MAIN = "main"  # in which a daemon that divides its cgroup lives itself: one that shares out memory may hold no process
_UNIT = "bubbles-agentd.service"  # has Delegate=yes; a user's manager of systemd 252 leaves no mark of that on the cgroup
_MARKS = ("user.delegate", "trusted.delegate")  # of the system's manager
_OCTAL = re.compile(r"\\([0-7]{3})")


class NotOurs(Exception):
    """There is no cgroup that this process may divide; says why, as the end of a sentence."""


def own(environ: Mapping[str, str]) -> Path:
    """The directory of the cgroup that is ours to divide; we are in it, or in its `main/`. Raises NotOurs."""
    try:
        cgroups, mounts = (Path("/proc/self", name).read_text(errors="surrogateescape") for name in ("cgroup", "mountinfo"))
    except OSError as error:
        raise NotOurs("there is no /proc to find it by") from error
    lives = next((path for path in places(cgroups, mounts) if _holds_us(path)), None)
    if lives is None:
        raise NotOurs("no cgroup2 file system is seen here in which this process is")
    unit = lives.parent if lives.name == MAIN else lives
    if environ.get(SAID) != "own":
        if environ.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
            raise NotOurs("this process is not the one that systemd started for a unit")
        if unit.name != _UNIT and not _is_delegated(unit):
            raise NotOurs(f"{unit.name} has no Delegate=yes")
    if not (unit / "cgroup.type").exists():
        raise NotOurs("the root of all cgroups is nobody's own")
    return unit


def places(cgroups: str, mounts: str) -> Iterator[Path]:
    """Where this process's cgroup of version 2 is seen, by the texts of /proc/self/cgroup and /proc/self/mountinfo.

    >>> list(places("3:cpu:/x\\n0::/a/b\\n", "29 23 0:26 /a /sys/fs/cgroup rw - cgroup2 cgroup2 rw\\n"))
    [PosixPath('/sys/fs/cgroup/b')]
    """
    for cgroup in (Path(line[3:]) for line in cgroups.splitlines() if line.startswith("0::/")):
        for line in mounts.splitlines():
            before, _, after = line.partition(" - ")
            if after.startswith("cgroup2 "):
                root, point = map(_plain, before.split()[3:5])
                if ".." not in cgroup.parts and cgroup.is_relative_to(root):
                    yield point / cgroup.relative_to(root)


def _plain(field: str) -> Path:
    return Path(_OCTAL.sub(lambda found: chr(int(found[1], 8)), field))


def _holds_us(path: Path) -> bool:
    try:
        return str(os.getpid()) in (path / "cgroup.procs").read_text().split()
    except OSError:
        return False


def _is_delegated(unit: Path) -> bool:
    return any(_xattr(unit, name) == b"1" for name in _MARKS)


def _xattr(path: Path, name: str) -> bytes:
    try:
        return os.getxattr(path, name)
    except (OSError, AttributeError):  # no such mark; not Linux
        return b""
