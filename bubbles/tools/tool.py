"""What a tool is, and the workbench that it is handed.

It does not know which tools there are, nor where the call came from but for what `TurnInfo` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from bubbles.errors import ToolError
from bubbles.workspace import Workspace

limits_active: ContextVar[str] = ContextVar("limits_active", default="")  # what bounded the command of the call that runs now, for the log


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


class Jobs(Protocol):
    """The commands that a session runs in the background. All raise ToolError for what cannot be done."""

    async def start(self, command: str, cwd: Path | None, timeout_s: float) -> str:
        """Begin one; its id."""
        ...

    async def result(self, id: str, offset: int, wait_s: float, most_tokens: int) -> str:
        """How it stands, and what it printed from byte `offset` on, as the model shall read it."""
        ...

    async def stop(self, id: str) -> str:
        """End it; how it stands then."""
        ...


class Chats(Protocol):
    """The chats that a turn reaches. All raise ToolError for what cannot be done, Refused for what may not."""

    async def send(self, to: str, text: str, files: Sequence[str], open_files: Callable[[], Workspace]) -> str:
        """Queue a message to the address `to` ("": where the turn is); what is told of it."""
        ...

    async def find(self, query: str) -> str:
        """The members of the turn's group whose names have `query` in them, a line each."""
        ...


def _quiet(text: str) -> None:
    """Progress that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a tool works with: the session's files, its shell, the `tools` section of the settings, and who is asking.

    `files` opens the session's files, once; `result_tokens` is what a result may measure before it is clipped; `progress` shows a line to
    whoever watches and must not raise.
    """

    files: Callable[[], Workspace]
    sandbox: Any  # a bubbles.sandboxes.sandbox.Sandbox: tools may not import that layer
    settings: Any
    turn: TurnInfo
    progress: Callable[[str], None] = _quiet
    jobs: Jobs | None = None  # None: there is nobody here to keep them
    result_tokens: int = 8000
    chats: Chats | None = None  # None: nothing leaves from here

    @property
    def post(self) -> Chats:
        """The chats that the turn reaches. Raises ToolError where there are none."""
        if self.chats is None:
            raise ToolError("there are no chats here")
        return self.chats

    @property
    def background(self) -> Jobs:
        """The session's jobs. Raises ToolError where nobody keeps any."""
        if self.jobs is None:
            raise ToolError("there is no background work here")
        return self.jobs

    @property
    def workspace(self) -> Workspace:
        """The session's files; not opened for a tool that never asks."""
        return self.files()


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
