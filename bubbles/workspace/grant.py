"""Further roots that the owner lends to a session.

It does not know who the owner is: whoever sets a grant asks `check` first, and the rules are `bubbles.lending`'s.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from bubbles import lending
from bubbles.errors import Misconfigured


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
        if why := lending.refused(path, home):
            raise Misconfigured(f"{path} cannot be a workspace: {why}", remedy="grant a project's own directory")
        real = Path(os.path.realpath(path))
        if not os.path.isdir(real):
            raise Misconfigured(f"the workspace {path} is not there", remedy=f"mkdir -p {path}")
        return real
