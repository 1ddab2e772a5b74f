"""The section `tools`: where commands run, for how long, and which directories beside the session's own may be touched."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, StrictFloat, StrictInt, ValidationInfo, model_validator

from bubbles import lending
from bubbles.config.section import ApiKey, Headers, PathText, Secret, Section, Url, not_yet


class _Mendable(ValueError):
    """A value that does not fit, and what to do about it."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.remedy = remedy


def _names(names: list[str]) -> list[str]:
    wrong = [name for name in names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)]
    if wrong:
        raise ValueError(f"names of environment variables; {wrong[0]!r} is none")
    for name in names:
        if why := lending.unpassable(name):
            raise _Mendable(f"names of variables that a command may see; {name} is never passed: {why}", f"take {name} out of tools.sandbox.pass_env")
    return names


def _lendable(path: str, info: ValidationInfo) -> str:
    home = (info.context or {}).get("home")  # whoever reads a file knows it; whoever reads a typed word may not
    if why := lending.refused(Path(path), home):
        raise ValueError(f"a project's own directory; this one may not be lent: {why}")
    return path


def _path_and_mode(value: Any) -> Any:
    """What `PATH` or `PATH:rw` says, as an object; anything else as it is."""
    if not isinstance(value, str):
        return value
    path, colon, mode = value.rpartition(":")
    return {"path": path, "mode": mode} if colon and mode in ("ro", "rw") else {"path": value}


def _directories(value: str) -> str:
    if not all(part.startswith("/") for part in value.split(":") if part) or "\0" in value:
        raise ValueError("absolute directories, joined by colons")
    return value


def _domains(names: list[str]) -> list[str]:
    return [_domain(name) for name in names]


def _domain(written: str) -> str:
    name = written.strip().lower().removesuffix(".")
    labels = name.split(".")
    if name.startswith("*.") or name.startswith("."):
        raise ValueError(f"names of domains; what lies below one is meant with it: write {name.lstrip('*.')!r} for {written!r}")
    if not name.isascii():
        raise ValueError(f"names of domains as machines write them (xn--…); {written!r} is not")
    if len(name) > 253 or not all(re.fullmatch(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", label) for label in labels):
        raise ValueError(f"names of domains, without scheme, port or path; {written!r} is none")
    if re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1]):
        raise ValueError(f"names of domains; {written!r} is an address")
    return name


def _bind_remedy(path: str, *, at_place: bool) -> str:
    if at_place:
        return f'show it elsewhere: {{"path": "{path}", "to": "/mnt/{Path(path).name}"}} in tools.sandbox.binds'
    return f"take {path} out of tools.sandbox.binds, or name a project's own directory or file"


class Bind(Section):
    """A directory or file of the machine that is shown in every jail: `path`, at `to` ("": at the same place). As text: `PATH` or `PATH:rw`."""

    path: Annotated[PathText, Field(min_length=1)]
    to: PathText = ""
    mode: Literal["ro", "rw"] = "ro"

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return _path_and_mode(value)

    @model_validator(mode="after")
    def _bindable(self, info: ValidationInfo) -> Self:
        home = (info.context or {}).get("home")
        moved = self.place != Path(self.path)
        if why := lending.unbindable(Path(self.path), self.mode, home) or lending.misplaced(self.place, moved=moved, home=home):
            raise _Mendable(f"{self.path} may not be shown in a jail: {why}", _bind_remedy(self.path, at_place="place in the jail" in why))
        return self

    @property
    def place(self) -> Path:
        """Where a jail shows it."""
        return Path(self.to or self.path)


class Limits(Section):
    """What all that one command starts may take together. `cpu_percent` is of one processor, 0: as much as there is."""

    memory_bytes: StrictInt = Field(default=2 << 30, ge=64 << 20)
    processes: StrictInt = Field(default=256, ge=8, le=100_000)
    cpu_percent: StrictInt = Field(default=0, ge=0, le=100_000)
    file_bytes: StrictInt = Field(default=2 << 30, ge=1 << 20)
    tmp_bytes: StrictInt = Field(default=256 << 20, ge=1 << 20)
    free_bytes: StrictInt = Field(default=1 << 30, ge=0)  # that stay free on the disk, or a tenth of it where that is less


def unkept(backend: str, network: str) -> str:
    """Why `backend` cannot keep commands to the rule `network`, "" where it can: only a jail has a network of its own.

    >>> unkept("local", "none")
    'the sandbox local cannot keep commands from the network (network "none"); bwrap can'
    """
    if backend == "bwrap" or network in ("", "host"):
        return ""
    return f'the sandbox {backend} cannot keep commands from the network (network "{network}"); bwrap can'


class Sandbox(Section):
    """Where commands work: in a jail (`bwrap`), in the owner's environment (`local`), or there with a HOME of the session's own."""

    backend: Literal["local", "local_isolated", "bwrap"] = "local_isolated"
    # What a command may reach: nothing, public addresses alone, or what the machine may. "": as the backend has it.
    network: Literal["", "none", "public", "host"] = ""
    unattended_network: Literal["none", "public", "host"] = "none"  # the most in turns that no person began, and in groups
    allow_domains: Annotated[list[str], AfterValidator(_domains)] = Field(default_factory=list)  # with `public`: these and those below; none: all
    pass_env: Annotated[list[str], AfterValidator(_names)] = Field(default_factory=list)  # handed on to commands by name
    binds: list[Bind] = Field(default_factory=list)
    limits: Limits = Field(default_factory=Limits)
    allow_debug: StrictBool = False  # strace and gdb, within the jail

    @model_validator(mode="after")
    def _keeps_what_it_promises(self) -> Self:
        if why := unkept(self.backend, self.network):
            raise _Mendable(why, 'set tools.sandbox.backend to "bwrap", or tools.sandbox.network to "host"')
        return self

    @model_validator(mode="after")
    def _nothing_lies_where_commands_write(self) -> Self:
        for bind in self.binds:
            others = [other.place for other in self.binds if other is not bind and other.mode == "rw"]
            if why := lending.misplaced(bind.place, moved=False, home=None, writable=others):
                raise ValueError(f"binds: {bind.path}: {why}")
        if len({bind.place for bind in self.binds}) < len(self.binds):
            raise ValueError("binds: two of them have the same place in a jail")
        return self


class Exec(Section):
    """The shell tool."""

    timeout_s: StrictFloat = Field(default=120, ge=1, le=3600)  # of a call that asks for no other
    timeout_max_s: StrictFloat = Field(default=600, ge=1, le=3600)  # the most that a call may ask for
    path_append: Annotated[str, AfterValidator(_directories)] = ""  # after the PATH that a command has anyway
    output_bytes: StrictInt = Field(default=50_000_000, ge=10_000, le=1_000_000_000)  # a command that writes more is ended
    jobs: StrictInt = Field(default=8, ge=0, le=64)  # of a session that run in the background at once
    job_timeout_s: StrictFloat = Field(default=86_400, ge=1, le=604_800)

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
        return _path_and_mode(value)


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
        """Without the workspaces and binds that are not there today: a disk that is away must not keep the rest from working."""
        there = [grant for grant in self.workspaces if os.path.isdir(grant.path)]
        shown = [bind for bind in self.sandbox.binds if os.path.exists(bind.path)]
        gone = [f"tools.workspaces: {grant.path} is not there; it is left out" for grant in self.workspaces if grant not in there]
        gone += [f"tools.sandbox.binds: {bind.path} is not there; it is left out" for bind in self.sandbox.binds if bind not in shown]
        sandbox = self.sandbox.model_copy(update={"binds": shown})
        return (self.model_copy(update={"workspaces": there, "sandbox": sandbox}), gone) if gone else (self, [])
