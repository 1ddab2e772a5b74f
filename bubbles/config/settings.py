"""The settings of an installation as its programs see them, and what one session changes in them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bubbles.config import environment, faults
from bubbles.config.section import Key, Section, arrange, dotted, field, fold, plain, secrets
from bubbles.errors import Misconfigured
from bubbles.paths import Home

if TYPE_CHECKING:
    from bubbles.config.agents import Agents
    from bubbles.config.channels import Channels
    from bubbles.config.gateway import Gateway
    from bubbles.config.providers import Providers
    from bubbles.config.tools import Tools

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
    "workspaces": ("tools", "workspaces"),
}


def section(name: str) -> type[Section]:
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


def session_settings(settings: Settings, raw: Mapping[str, Any], where: str = "the session's config.json") -> Settings:
    """`settings` with what the session's own file changes; each key replaces the installation's value. Unknown keys are warned of.

    Raises Misconfigured naming the key where a value is wrong."""
    changed: dict[str, Section] = dict(settings._sections)
    warnings = list(settings.warnings)
    names = {fold(name): name for name in SESSION_KEYS}
    for key, value in raw.items():
        name = names.get(fold(key))
        if name is not None:
            top, *rest = SESSION_KEYS[name]
            unknown: list[Key] = []
            if top in changed:
                changed[top] = _with(changed[top], tuple(rest), _checked(name, value, settings.home, where, unknown))
            warnings += [f"{where}: {dotted(place)} is not a setting; it does nothing" for place in unknown]
        elif key != "version":
            warnings.append(f"{where}: {key} is not a setting of a session; it does nothing")
    return Settings(settings.home, changed, tuple(warnings))


def _checked(name: str, value: Any, home: Home, where: str, unknown: list[Key]) -> Any:
    top, *rest = SESSION_KEYS[name]
    _, found = field(section(top), tuple(rest))
    if found is None:
        raise Misconfigured(f"{where}: {name} is not a setting")
    try:
        return environment.adapter(found).validate_python(arrange(value, found.annotation, (name,), unknown), context={"home": home.root})
    except ValidationError as error:
        raise faults.misconfigured(error, (name,), found, where, {}) from None


def _with(old: Section, key: tuple[str, ...], value: Any) -> Section:
    name, *rest = key
    return old.model_copy(update={name: _with(getattr(old, name), tuple(rest), value) if rest else value})


def overrides(settings: Settings) -> dict[str, Any]:
    """What each of SESSION_KEYS is at in `settings`, as /config shows it; only of sections that were loaded."""
    shown: dict[str, Any] = {}
    for name, (top, *rest) in SESSION_KEYS.items():
        value: Any = settings._sections.get(top)
        for part in rest if value is not None else ():
            value = getattr(value, part)
        if value is not None:
            shown[name] = plain(value)
    return shown
