"""Backend `local`: the owner's own machine and environment, without its secrets.

It promises nothing against a command that means harm: such a command can read and write whatever the owner can.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bubbles.errors import OutsideWorkspace, Refused, ToolError
from bubbles.sandboxes import environment, guard, mark, spawn
from bubbles.sandboxes.sandbox import Limits, Outcome
from bubbles.workspace import Grant


class Local:
    """Commands of one session, run as the owner."""

    name = "local"
    promise = "no protection against a command that means harm: it can do whatever the owner can"

    def __init__(
        self,
        session_dir: Path,
        session_home: Path,
        *,
        pass_env: Sequence[str] = (),
        grants: Sequence[Grant] = (),
        path_append: str = "",
        timezone: str = "",
    ) -> None:
        environment.check(pass_env)
        self._session, self._home = session_dir, session_home
        self._pass_env, self._path_append, self._timezone = tuple(pass_env), path_append, timezone
        self._grants = tuple(grants)
        self._reach: guard.Reach | None = None

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None) -> Outcome:
        """As Sandbox.run."""
        argv, start, env = spawn.shell(command), self._start(cwd), self.environment()
        self._reach = self._reach or self._reaching(env)
        why = guard.refusal(command, self._reach, start)
        if why:
            raise Refused(f"the command was not run: {why}")
        return await spawn.run(argv, env, start, limits, mark.fresh(self._session.parent.parent))  # HOME/sessions/KEY

    def environment(self) -> dict[str, str]:
        """The variables that a command gets."""
        return environment.inherited(os.environ, self._path_append, self._timezone)

    def _reaching(self, env: dict[str, str]) -> guard.Reach:
        lent = [Path(os.path.expanduser(grant.path)) for grant in self._grants]
        return guard.Reach.of(self._session, [self._session, *lent], env)

    def describe(self) -> dict[str, Any]:
        """As Sandbox.describe."""
        env = self.environment()
        return {
            "backend": self.name,
            "promise": self.promise,
            "cwd": str(self._session / "work"),
            "home": env.get("HOME", ""),
            "environment": sorted(env),
            "workspaces": [{"path": str(grant.path), "mode": grant.mode} for grant in self._grants],
            "network": "host",
        }

    def _start(self, cwd: Path | None) -> Path:
        work = self._session / "work"
        try:
            if cwd is None and not work.is_symlink():
                work.mkdir(mode=0o700, exist_ok=True)
            real = Path(os.path.realpath(cwd or work, strict=True))
        except OSError as error:
            raise ToolError(f"{cwd or work} is not a directory: {error.strerror}") from error
        roots = [Path(os.path.realpath(root)) for root in (self._session, *(grant.path for grant in self._grants))]
        if not any(real.is_relative_to(root) for root in roots):
            raise OutsideWorkspace(f"{cwd or work} is outside the workspace", remedy=f"allowed: {', '.join(map(str, roots))}")
        return real
