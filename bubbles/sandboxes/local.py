"""Backend `local`: the owner's own machine and environment, without its secrets.

It promises nothing against a command that means harm: such a command can read and write whatever the owner can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bubbles.errors import Misconfigured, Refused
from bubbles.sandboxes import environment, guard, mark, place, spawn, tether
from bubbles.sandboxes.bounding import bounding
from bubbles.sandboxes.sandbox import Bounds, Limits, Outcome
from bubbles.sandboxes.tree import Tree
from bubbles.workspace import Grant
from bubbles.workspace.grant import apart


class Local:
    """Commands of one session, run as the owner."""

    name = "local"
    promise = "no protection against a command that means harm: it can do whatever the owner can"

    def __init__(
        self,
        session_dir: Path,
        session_home: Path,
        settings: Any,
        *,
        grants: Sequence[Grant] = (),
        path_append: str = "",
        timezone: str = "",
        network: str = "",
    ) -> None:
        environment.check(settings.pass_env)
        if network not in ("", "host"):
            raise Misconfigured(
                f"the sandbox {self.name} cannot keep commands off the network: its network can only be host",
                remedy="/config sandbox bwrap, or /config network -",
            )
        self._session, self._home = session_dir, session_home
        self._pass_env, self._path_append, self._timezone = tuple(settings.pass_env), path_append, timezone
        self._grants, self._bounds = tuple(apart(grants)), Bounds.of(settings.limits)

    async def run(self, command: str, limits: Limits, *, cwd: Path | None = None, output: Callable[[bytes], None] | None = None) -> Outcome:
        """As Sandbox.run."""
        start, inherited = place.start(cwd, self._session, self._grants), self.environment()
        argv, env = spawn.shell(command, inherited)
        why = guard.refusal(command, self._reach(inherited), start)
        if why:
            raise Refused(f"the command was not run: {why}")
        own = mark.fresh(self._session.parent.parent)  # HOME/sessions/KEY
        with tether.holding(own), bounding(self._bounds, self._written()) as bounds:
            env |= {mark.MARK: own} | spawn.bounded(self._bounds, bounds.join, bounds.processes)
            outcome = await spawn.run(argv, env, start, limits, lambda child: Tree(child, own), output=output, watchers=bounds.watchers)
            return bounds.told(outcome)

    def _written(self) -> list[Path]:
        """Where a command is expected to write, each on what may be a disk of its own."""
        return [self._session, *(Path(os.path.expanduser(grant.path)) for grant in self._grants if grant.mode == "rw")]

    def environment(self) -> dict[str, str]:
        """The variables that a command gets."""
        return environment.inherited(os.environ, self._path_append, self._timezone)

    def _reach(self, env: dict[str, str]) -> guard.Reach:
        lent = (Path(os.path.expanduser(grant.path)) for grant in self._grants)
        return guard.Reach.of(self._session, (self._session, *lent), env.get("HOME") or "/", env.get("PATH", ""))

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
