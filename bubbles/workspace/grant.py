"""Further roots that the owner lends to a session, and those that nobody may lend.

It does not know who the owner is: whoever sets a grant asks `check` first.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Misconfigured

_SYSTEM = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot", "/etc")
_WHOLE = ("/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/usr", "/opt", "/mnt", "/media", "/srv", "/Users", "/Volumes")


@dataclass(frozen=True, slots=True)
class Grant:
    """A directory outside the session that its tools may use: `mode` is "ro" or "rw"."""

    path: Path
    mode: str = "ro"

    def check(self, home: Path) -> Path:
        """The real path of what is lent; `home` is the root of this Bubbles. Raises Misconfigured where it may not be lent."""
        if self.mode not in ("ro", "rw"):
            raise Misconfigured(f"a workspace's mode is {self.mode!r}", remedy='write "ro" or "rw"')
        path = Path(os.path.expanduser(self.path))
        if not path.is_absolute():
            raise Misconfigured(f"the workspace {str(self.path)!r} is not an absolute path", remedy="write it out, from / on")
        real = Path(os.path.realpath(path))
        why = _refused(real, Path(os.path.realpath(home)))
        if why:
            raise Misconfigured(f"{path} cannot be a workspace: {why}", remedy="grant a project's own directory")
        if not real.is_dir():
            raise Misconfigured(f"the workspace {path} is not a directory", remedy=f"mkdir -p {path}")
        return real


def _refused(real: Path, home: Path) -> str:
    user = Path(os.path.realpath(os.path.expanduser("~")))
    if real == user or real in user.parents or str(real) in _WHOLE:
        return "it holds far more than one project"
    if real == home or real in home.parents or home in real.parents:
        return "it holds, or lies in, Bubbles' own files"
    if any(real == Path(system) or Path(system) in real.parents for system in _SYSTEM):
        return "it belongs to the system"
    return ""
