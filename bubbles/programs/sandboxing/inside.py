"""The sandbox of one session as agentd would open it, from the settings on disk and what is lent to the session now.

It needs no daemon, and does not begin a session that is not there.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles import config, sandboxes
from bubbles.agentd.overrides import Overrides
from bubbles.errors import Misconfigured, ToolError
from bubbles.ids import safe
from bubbles.paths import Home
from bubbles.sandboxes.sandbox import Sandbox
from bubbles.sessions.lent import lent, together
from bubbles.workspace import Grant


class NoSession(Exception):
    """There is no such session. `remedy`: what to call for instead."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Inside:
    """What holds for one session: its `backend` and `network` ("": as the backend has it), and the owner's settings of `tools`.

    `left_out` are granted directories that cannot be had, each with why.
    """

    home: Home
    key: str
    backend: str
    network: str
    timezone: str
    tools: Any
    grants: tuple[Grant, ...]
    left_out: tuple[str, ...]

    @classmethod
    def of(cls, home: Home, session: str, verb: str) -> Inside:
        """The session named `session`. Raises NoSession, and Misconfigured where its settings do not load."""
        key = safe(session)
        if not home.session(key).is_dir():
            raise NoSession(f"there is no session {session!r}", _instead(home, key, verb))
        settings = config.load(home, "agents", "tools")
        found = Overrides(home, key, settings).effective()
        own, left_out = _grants(home, found.workspaces)
        grants = tuple(together(own, lent(home, key)))
        return cls(home, key, found.sandbox, found.network, found.timezone, settings.tools, grants, tuple(left_out))

    @property
    def directory(self) -> Path:
        return self.home.session(self.key)

    def open(self, network: str = "") -> Sandbox:
        """The sandbox, with `network` ("": the session's). Raises Misconfigured where the settings make it impossible."""
        tools = self.tools
        return sandboxes.open(
            self.backend, self.directory, self.home.session_home(self.key), tools.sandbox, self.grants,
            path_append=tools.exec.path_append, timezone=self.timezone, network=network or self.network,
        )  # fmt: skip


def _grants(home: Home, wanted: tuple[Any, ...]) -> tuple[list[Grant], list[str]]:
    found, left_out = [], []
    for each in wanted:
        grant = Grant(Path(each.path), each.mode)
        try:
            grant.check(home.root)
        except Misconfigured as error:
            left_out.append(error.text)
        else:
            found.append(grant)
    return found, left_out


def _instead(home: Home, key: str, verb: str) -> str:
    """What to call for: the sessions that were meant, or else what there is."""
    names = sorted(path.name for path in home.sessions.glob("*") if path.is_dir())
    meant = difflib.get_close_matches(key, names, 3) or names[:5]
    if not meant:
        return "bubbles agent, which begins one"
    return ", or ".join(f"bubbles sandbox {verb} -s {name}" for name in meant)


def told(error: ToolError) -> Misconfigured:
    """What a model would be told, told to the owner."""
    return Misconfigured(error.text, remedy=error.remedy)
