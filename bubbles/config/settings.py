"""The settings of an installation as its programs see them, and what one session changes in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bubbles.config import environment, faults
from bubbles.config.section import Key, Section, arrange, dotted, field, fold, nearest, secrets
from bubbles.config.version import SESSION_MIGRATIONS, SESSION_VERSION, migrate
from bubbles.errors import Misconfigured
from bubbles.paths import Home

if TYPE_CHECKING:
    from bubbles.config.agents import Agents
    from bubbles.config.channels import Channels
    from bubbles.config.gateway import Gateway
    from bubbles.config.providers import Providers
    from bubbles.config.tools import Grant, Tools

SECTIONS = {
    "agents": "bubbles.config.agents:Agents",
    "channels": "bubbles.config.channels:Channels",
    "providers": "bubbles.config.providers:Providers",
    "gateway": "bubbles.config.gateway:Gateway",
    "tools": "bubbles.config.tools:Tools",
}

# What a session may change for itself: the name in its config.json and in /config, and the setting it stands over.
SESSION_KEYS = {
    "model": ("agents", "defaults", "model"),
    "provider": ("agents", "defaults", "provider"),
    "system_prompt": ("agents", "defaults", "system_prompt"),
    "temperature": ("agents", "defaults", "temperature"),
    "language": ("agents", "defaults", "language"),
    "timezone": ("agents", "defaults", "timezone"),
    "sandbox": ("tools", "sandbox", "backend"),
    "network": ("tools", "sandbox", "network"),
    "workspaces": ("tools", "workspaces"),
}


def section_class(name: str) -> type[Section]:
    """The class of the section `name`, imported now."""
    module, _, cls = SECTIONS[name].partition(":")
    found: type[Section] = getattr(import_module(module), cls)
    return found


class Settings:
    """The sections that a program asked for, as attributes; `warnings` are sentences for the log. It never changes."""

    agents: Agents
    channels: Channels
    providers: Providers
    gateway: Gateway
    tools: Tools

    def __init__(self, home: Home, sections: Mapping[str, Section], warnings: tuple[str, ...] = ()) -> None:
        self.home = home
        self.warnings = warnings
        self._sections = dict(sections)

    def __getattr__(self, name: str) -> Section:
        try:
            sections: dict[str, Section] = self.__dict__["_sections"]
            return sections[name]
        except KeyError:
            raise AttributeError(f"the section {name!r} was not loaded" if name in SECTIONS else name) from None

    def __repr__(self) -> str:
        return f"Settings({', '.join(self._sections)})"

    def secrets(self) -> list[str]:
        """Every secret in what was loaded, for the log's redactor. Those of less than six characters (`EMPTY`, `none`) are words, not keys."""
        return sorted({text for found in self._sections.values() for text in secrets(found) if len(text) >= 6})


@dataclass(frozen=True, slots=True)
class Effective:
    """What holds in one session; one field for each of SESSION_KEYS. `warnings` name what in its file is no setting."""

    model: str
    provider: str
    system_prompt: str
    temperature: float
    language: str
    timezone: str
    sandbox: str
    network: str
    workspaces: tuple[Grant, ...]
    warnings: tuple[str, ...] = ()


def session_settings(settings: Settings, raw: Mapping[str, Any], where: str = "the session's config.json") -> Effective:
    """The owner's settings (sections agents and tools) with what a session's own file changes; each key replaces the owner's value.

    Raises Misconfigured naming the key where a value is wrong."""
    raw = session_file(raw, where)
    names = {fold(name): name for name in SESSION_KEYS}
    values: dict[str, Any] = {name: _at(settings, key) for name, key in SESSION_KEYS.items()}
    unknown: list[Key] = []
    for key, value in raw.items():
        name = names.get(fold(key))
        if name is not None:
            values[name] = _checked(name, value, settings.home, where, unknown)
        elif key != "version":
            unknown.append((key,))
    values["workspaces"] = tuple(values["workspaces"])
    _check_together(values, where)
    return Effective(**values, warnings=tuple(f"{where}: {_is_none(key)}; it does nothing" for key in unknown))


def _check_together(values: Mapping[str, Any], where: str) -> None:
    from bubbles.config.tools import unkept  # its section is loaded by now

    if why := unkept(values["sandbox"], values["network"]):
        raise Misconfigured(f"{where}: network: {why}", remedy=f'set sandbox to "bwrap", or network to "host", in {where}')


def session_file(raw: Mapping[str, Any], where: str = "the session's config.json") -> dict[str, Any]:
    """What a session's config.json of any form says, in the form in which it is to be written: its version stands first.

    Raises Misconfigured for one of a newer program."""
    return migrate(dict(raw), where, steps=SESSION_MIGRATIONS, version=SESSION_VERSION)


def _is_none(key: Key) -> str:
    names = {fold(name): name for name in SESSION_KEYS}
    near = nearest(str(key[0]), names) if len(key) == 1 else ""
    return f"{dotted(key)} is not a setting of a session" + (f" (did you mean {near}?)" if near else "")


def _at(settings: Settings, key: tuple[str, ...]) -> Any:
    value: Any = settings
    for part in key:
        value = getattr(value, part)
    return value


def _checked(name: str, value: Any, home: Home, where: str, unknown: list[Key]) -> Any:
    top, *rest = SESSION_KEYS[name]
    _, found = field(section_class(top), tuple(rest))
    assert found is not None, name
    value = arrange(value, found.annotation, (name,), unknown)
    if isinstance(value, str) and not environment.fits(found, value):
        value = environment.fit(found, value, (name,), unknown)  # as typed in a terminal
    try:
        return environment.adapter(found).validate_python(value, context={"home": home.root})
    except ValidationError as error:
        raise faults.misconfigured(error, (name,), found, where, {}) from None
