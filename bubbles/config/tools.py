"""The section `tools`: where commands run, for how long, and which directories beside the session's own may be touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, ValidationInfo, model_validator

from bubbles import lending
from bubbles.config.section import ApiKey, Headers, PathText, Secret, Section, Url, not_yet


def _names(names: list[str]) -> list[str]:
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise ValueError(f"names of environment variables; {wrong[0]!r} is none")
    for name in names:
        if why := lending.unpassable(name):
            raise ValueError(f"names of variables that a command may see; {name} is never passed: {why}")
    return names


def _lendable(path: str, info: ValidationInfo) -> str:
    home = (info.context or {}).get("home")  # whoever reads a file knows it; whoever reads a typed word may not
    if why := lending.refused(Path(path), home):
        raise ValueError(f"a project's own directory; this one may not be lent: {why}")
    return path


def _directories(value: str) -> str:
    if not all(part.startswith("/") for part in value.split(":") if part) or "\0" in value:
        raise ValueError("absolute directories, joined by colons")
    return value


class Sandbox(Section):
    """Where commands and file tools work. `local` shares the owner's environment; `local_isolated` gives each session a HOME of its own."""

    backend: Annotated[Literal["local", "local_isolated", "bwrap"], not_yet("the jail bwrap", "local_isolated", "local")] = "local_isolated"
    pass_env: Annotated[list[str], AfterValidator(_names)] = Field(default_factory=list)  # handed on to commands by name


class Exec(Section):
    """The shell tool."""

    timeout_s: StrictFloat = Field(default=120, ge=1, le=3600)  # of a call that asks for no other
    timeout_max_s: StrictFloat = Field(default=600, ge=1, le=3600)  # the most that a call may ask for
    path_append: Annotated[str, AfterValidator(_directories)] = ""  # after the PATH that a command has anyway
    output_bytes: StrictInt = Field(default=50_000_000, ge=10_000, le=1_000_000_000)  # a command that writes more is ended

    @model_validator(mode="after")
    def _the_usual_is_allowed(self) -> Self:
        if self.timeout_s > self.timeout_max_s:
            raise ValueError(f"timeout_s ({self.timeout_s:g}) must not be more than timeout_max_s ({self.timeout_max_s:g})")
        return self


class Files(Section):
    """What of a session's own files the file tools may change, beside its work/, data/ and MEMORY.md."""

    write_soul: StrictBool = False
    write_skills: StrictBool = False


class Grant(Section):
    """A directory outside the session that its tools may use: `{"path": …, "mode": …}`, or as text `PATH` or `PATH:rw`."""

    path: Annotated[PathText, Field(min_length=1), AfterValidator(_lendable)]
    mode: Literal["ro", "rw"] = "ro"

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        path, colon, mode = value.rpartition(":")
        return {"path": path, "mode": mode} if colon and mode in ("ro", "rw") else {"path": value}


class Search(Section):
    """Web search."""

    api_key: Annotated[ApiKey, not_yet("web search", Secret(""))] = Secret("")


class Web(Section):
    """The web tools."""

    search: Search = Field(default_factory=Search)


class McpServer(Section):
    """One server of tools: `command` and `args` for one spoken to by stdin and stdout, `url` for one behind HTTP."""

    command: str = ""
    args: list[str] = Field(default_factory=list)
    env: dict[str, Secret] = Field(default_factory=dict)
    url: Url = ""
    headers: Headers = Field(default_factory=dict)
    timeout_s: StrictFloat = Field(default=30, ge=1, le=600)


class Tools(Section):
    """The section `tools`."""

    sandbox: Sandbox = Field(default_factory=Sandbox)
    exec: Exec = Field(default_factory=Exec)
    files: Files = Field(default_factory=Files)
    workspaces: list[Grant] = Field(default_factory=list)
    web: Web = Field(default_factory=Web)
    mcp_servers: Annotated[dict[str, McpServer], not_yet("tools from MCP servers", {})] = Field(default_factory=dict)

    def at_hand(self) -> tuple[Self, list[str]]:
        """Without the workspaces that are not there today: a disk that is away must not keep the rest from working."""
        there = [grant for grant in self.workspaces if os.path.isdir(grant.path)]
        gone = [f"tools.workspaces: {grant.path} is not there; it is left out" for grant in self.workspaces if grant not in there]
        return (self.model_copy(update={"workspaces": there}), gone) if gone else (self, [])
