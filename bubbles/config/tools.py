"""The section `tools`: where commands run, for how long, and which directories beside the session's own may be touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, ValidationInfo, field_validator, model_validator

from bubbles.config.section import ApiKey, Headers, PathText, Secret, Section, Url, not_yet
from bubbles.paths import Home

# Variables that would give a command other people's keys, or let it choose what a later program loads.
_NEVER_PASSED = re.compile(
    r"LD_.*|DYLD_.*|BASH_ENV|ENV|SHELLOPTS|BASHOPTS|IFS|PROMPT_COMMAND|PYTHON(PATH|STARTUP|HOME)|NODE_OPTIONS|PERL5OPT|RUBYOPT"
    r"|GIT_(CONFIG.*|SSH.*|DIR|EXEC_PATH)|SSH_AUTH_SOCK|DBUS_.*|XDG_RUNTIME_DIR|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY"
    r"|NOTIFY_SOCKET|LISTEN_.*|JOURNAL_STREAM|INVOCATION_ID|CREDENTIALS_DIRECTORY|BUBBLES_.*|.*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL).*"
)
# Directories that are not granted, and those below which nothing is.
_NEVER_GRANTED = ("/", "/home", "/tmp", "/root", "/var", "/etc", "/usr")
_NOTHING_BELOW = ("/proc", "/sys", "/dev", "/run", "/var/run", "/boot")


def _passable(names: list[str]) -> list[str]:
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(f"names of environment variables; {name!r} is none")
        if _NEVER_PASSED.fullmatch(name.upper()):
            raise ValueError(f"variables that carry neither keys nor code; {name} may")
    return names


def _directories(value: str) -> str:
    if not all(part.startswith("/") for part in value.split(":") if part) or "\0" in value:
        raise ValueError("absolute directories, joined by colons")
    return value


class Sandbox(Section):
    """Where commands and file tools work. `local` shares the owner's environment; `local_isolated` gives each session a HOME of its own."""

    backend: Annotated[Literal["local", "local_isolated", "bwrap"], not_yet("the jail bwrap", "local_isolated", "local")] = "local_isolated"
    pass_env: Annotated[list[str], AfterValidator(_passable)] = Field(default_factory=list)  # names of variables


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
    """A directory outside the session that its tools may use: `{"path": …, "mode": …}`, or as text `PATH` or `PATH:rw`."""

    path: PathText
    mode: Literal["ro", "rw"] = "ro"

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        path, colon, mode = value.rpartition(":")
        return {"path": path, "mode": mode} if colon and mode in ("ro", "rw") else {"path": value}

    @field_validator("path")
    @classmethod
    def _may_be_granted(cls, value: str, info: ValidationInfo) -> str:
        root = Path(os.path.realpath((info.context or {}).get("home") or Home.find().root))
        path = Path(os.path.realpath(value))
        if not value:
            raise ValueError("the path of a directory")
        if path == root or path in root.parents or root in path.parents:
            raise ValueError("a directory apart from the home of Bubbles, which holds its keys")
        if str(path) in (*_NEVER_GRANTED, os.path.expanduser("~")) or any(path.is_relative_to(p) for p in _NOTHING_BELOW) or path.suffix == ".sock":
            raise ValueError("a directory of your own work, not one of the system's or your whole home")
        return value


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
