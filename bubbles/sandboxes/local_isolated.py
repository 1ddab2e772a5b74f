"""Backend `local_isolated`: the owner's machine, with an environment and a HOME that are the session's own.

Programs that look for keys by HOME or XDG_* find this session's and nobody else's. It promises that alone: a command that names the
owner's files by their paths can still read them.
"""

from __future__ import annotations

import os
from typing import Any

from bubbles.sandboxes import environment
from bubbles.sandboxes.local import Local


class LocalIsolated(Local):
    """Commands of one session, run as the owner in a HOME apart (mode 0700, outside the session's directory, never cleaned)."""

    name = "local_isolated"
    promise = "programs find only this session's own credentials; a command that names other files by path can still read them"

    def environment(self) -> dict[str, str]:
        """The variables that a command gets; makes the HOME that they name."""
        mode = self._home.stat().st_mode if self._home.is_dir() else 0o777
        if mode & 0o077:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._home.chmod(0o700)
        return environment.private(os.environ, self._home, self._pass_env, self._path_append, self._timezone)

    def describe(self) -> dict[str, Any]:
        """As Sandbox.describe."""
        return super().describe() | {"home": str(self._home)}
