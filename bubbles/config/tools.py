"""The section `tools`: where commands run, for how long, and which directories beside the session's own may be touched."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, model_validator

from bubbles.config.section import ApiKey, Headers, PathText, Secret, Section, Url, not_yet


def _names(names: list[str]) -> list[str]:
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise ValueError(f"names of environment variables; {wrong[0]!r} is none")
    return names


def _directories(value: str) -> str:
    if not all(part.startswith("/") for part in value.split(":") if part) or "\0" in value:
        raise ValueError("absolute directories, joined by colons")
    return value


class Sandbox(Section):
    """Where commands and file tools work. `local` shares the owner's environment; `local_isolated` gives each session a HOME of its own."""

    backend: Annotated[Literal["local", "local_isolated", "bwrap"], not_yet("the jail bwrap", "local_isolated", "local")] = "local_isolated"
    pass_env: Annotated[list[str], AfterValidator(_names)] = Field(default_factory=list)  # the sandbox refuses some


class Exec(Section):
    """The shell tool."""

    timeout_s: StrictFloat = Field(default=120, ge=1, le=600)
    path_append: Annotated[str, AfterValidator(_directories)] = ""  # after the PATH that a command has anyway
    output_bytes: StrictInt = Field(default=50_000_000, ge=10_000, le=1_000_000_000)  # a command that writes more is ended


class Files(Section):
    """What of a session's own files the file tools may change, beside its work/, data/ and MEMORY.md."""

    write_soul: StrictBool = False
    write_skills: StrictBool = False


class Grant(Section):
    """A directory outside the session that its tools may use: `{"path": …, "mode": …}`, or as text `PATH` or `PATH:rw`.

    Which directories may be lent at all is the workspace's to say."""

    path: Annotated[PathText, Field(min_length=1)]
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
