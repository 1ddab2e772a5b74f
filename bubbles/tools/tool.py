"""What a tool is, and the workbench that it is handed.

It does not know which tools there are, nor where the call came from but for what `TurnInfo` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from bubbles.workspace import Workspace


class Arguments(BaseModel):
    """A tool's arguments; the fields' descriptions are read by the model."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=False)


@dataclass(frozen=True, slots=True)
class TurnInfo:
    """The turn in which a call is made. `origin` is "user" or "system"; `owner`: the owner's own words are in it."""

    session: str
    turn: str = ""
    origin: str = "user"
    is_group: bool = False
    owner: bool = False


def _quiet(text: str) -> None:
    """Progress that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a tool works with: the session's files, its shell, the `tools` section of the settings, and who is asking.

    `result_tokens` is what a result may measure before it is clipped; `progress` shows a line to whoever watches and must not raise.
    """

    workspace: Workspace
    sandbox: Any  # a bubbles.sandboxes.sandbox.Sandbox: tools may not import that layer
    settings: Any
    turn: TurnInfo
    progress: Callable[[str], None] = _quiet
    result_tokens: int = 8000


class Tool(Protocol):
    """One ability of the assistant. `free` claims: no side effects, so calls may run together and again."""

    name: str
    description: str
    Arguments: type[BaseModel]
    free: bool

    async def run(self, args: Any, bench: Bench) -> str:
        """Do it; `args` is a validated `Arguments`. Returns the result as the model shall read it.

        Raises ToolError (TimedOut, OutsideWorkspace, Refused) whose text tells the model what is wrong and what would be right.
        """
        ...
