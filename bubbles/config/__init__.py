"""The owner's one configuration file: read and checked section by section, changed without losing what is not understood.

Each program loads its own sections, and pays for those alone. It does not know what any setting brings about.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from bubbles.config import credentials, environment, faults, file
from bubbles.config.section import Key, Section, arrange, dotted, field, fold, nearest, plain, within
from bubbles.config.settings import SECTIONS, SESSION_KEYS, Effective, Settings, section_class, session_file, session_settings
from bubbles.config.version import SESSION_VERSION, VERSION, migrate
from bubbles.errors import Misconfigured, Usage
from bubbles.paths import Home

__all__ = [
    "SECTIONS",
    "SESSION_KEYS",
    "SESSION_VERSION",
    "VERSION",
    "Effective",
    "Key",
    "Settings",
    "check",
    "defaults",
    "load",
    "parse",
    "plain",
    "refresh",
    "save",
    "session_file",
    "session_settings",
    "settings_of",
]

Raw = dict[str, Any]


def load(home: Home, *sections: str, env: Mapping[str, str] | None = None) -> Settings:
    """The named sections (all, where none is named) of the home's config.json under the environment and the credentials; no file means all defaults.

    A file that others may read is made private and warned of, as is each key that is no setting. Raises Misconfigured, and leaves the file alone.
    """
    where = str(home.config)
    unknown: list[Key] = []
    warnings: list[str] = []
    raw = _by_section(migrate(file.read(home.config), where), unknown)
    variables = os.environ if env is None else env
    found = {name: _load(name, raw.get(name, {}), variables, home, unknown, warnings) for name in sections or SECTIONS}
    warnings += [f"{where}: {_is_none(key)}; it is kept and does nothing" for key in unknown]
    warnings += filter(None, [file.tighten(home.config)])
    for name, section in found.items():
        found[name], gone = section.at_hand()
        warnings += [f"{where}: {text}" for text in gone]
    return Settings(home, found, tuple(warnings))


def _by_section(raw: Raw, unknown: list[Key]) -> Raw:
    found: Raw = {}
    for key, value in raw.items():
        name = fold(key)
        if name not in SECTIONS:
            unknown += [(key,)] if key != "version" else []
        elif name in found:
            raise Misconfigured(f"{name} is given twice, once as {key!r}", remedy="leave one of the two")
        else:
            found[name] = value
    return found


def _load(name: str, raw: Any, env: Mapping[str, str], home: Home, unknown: list[Key], warnings: list[str]) -> Section:
    cls = section_class(name)
    tree = {name: arrange(raw, cls, (name,), unknown)}
    sources: dict[Key, str] = {}
    for variable, key, text in environment.variables(env, name) if isinstance(tree[name], dict) else ():
        astray: list[Key] = []
        place = environment.lay(tree, name, cls, key, text, astray)
        if place is None:
            astray = [(name, *(str(part).lower() for part in key))]
        else:
            sources[place] = variable
        warnings += [f"{variable}: {_is_none(key)}; it does nothing" for key in astray]
    credentials.lay(tree, name, cls, env, sources, warnings)
    return _validated(name, cls, tree[name], home, sources)


def _validated(name: str, cls: type[Section], tree: Any, home: Home, sources: Mapping[Key, str]) -> Section:
    try:
        return cls.model_validate(tree, context={"home": home.root})
    except ValidationError as error:
        raise faults.misconfigured(error, (name,), cls, str(home.config), sources) from None


def settings_of(home: Home, raw: Raw, *sections: str) -> Settings:
    """The sections that `raw` would come to as the home's config.json, without the environment. Raises Misconfigured."""
    held = _by_section(raw, [])
    return Settings(home, {name: _load(name, held.get(name, {}), {}, home, [], []) for name in sections or SECTIONS})


def check(home: Home, raw: Raw) -> list[Key]:
    """Raises Misconfigured where `raw` would not load from the home's config.json. The keys in it that are no settings."""
    unknown: list[Key] = []
    for name, value in _by_section(raw, unknown).items():
        _load(name, value, {}, home, unknown, [])
    return unknown


def _is_none(key: Key) -> str:
    """`agents.defaults.modle is not a setting (did you mean agents.defaults.model?)`"""
    near = _nearest(key)
    return f"{dotted(key)} is not a setting" + (f" (did you mean {near}?)" if near else "")


def _nearest(key: Key) -> str:
    names: Mapping[str, Any] = dict.fromkeys(SECTIONS)
    if len(key) > 1:
        top = fold(str(key[0]))
        _, above = field(section_class(top), key[1:-1]) if len(key) > 2 and top in SECTIONS else (key, None)
        inner, container = (section_class(top), None) if len(key) == 2 and top in SECTIONS else within(above.annotation if above else None)
        names = inner.model_fields if inner is not None and container is None else {}
    found = nearest(str(key[-1]), {fold(name): name for name in names})
    return dotted((*key[:-1], found)) if found else ""


def save(home: Home, changes: Mapping[Any, Any]) -> None:
    """Set each dotted key (a tuple, where a name in it holds dots) in the home's config.json; None takes it out.

    Everything else in the file stays as it is. Raises Misconfigured, and leaves the file alone, where the result would not load."""
    with file.locked(home.lock("config")):
        before = file.read(home.config)
        raw = migrate(file.parse(file.render(before), str(home.config)), str(home.config))
        keys = [_set(raw, tuple(key.split(".")) if isinstance(key, str) else key, plain(value)) for key, value in changes.items()]
        for key in check(home, raw):
            if any(place[: len(key)] == key for place in keys):
                raise Misconfigured(_is_none(key))
        if raw != before or not home.config.exists():
            file.write(home.config, raw)


def _set(raw: Raw, key: Key, value: Any) -> Key:
    """Set or take out `key`, spelled as the file spells it already. The key as it is spelled there."""
    place = _spelled(raw, key)
    if value is not None:
        environment.put(raw, place, value)
    elif isinstance(holder := environment.get(raw, place[:-1]), dict):
        holder.pop(place[-1], None)
    return place


def _spelled(raw: Any, key: Key) -> Key:
    here: Any = SECTIONS
    place: list[str | int] = []
    for part in key:
        names = {fold(name): name for name in here} if here is not None else {}
        name = names.get(fold(str(part)))
        held = {fold(k): k for k in raw} if isinstance(raw, dict) and name is not None else {}
        place.append(held.get(fold(str(part)), name or part))
        raw = raw.get(place[-1]) if isinstance(raw, dict) else None
        here = _fields_below(here, name)
    return tuple(place)


def _fields_below(fields: Any, name: str | None) -> Any:
    """The fields of the section that the field `name` holds; None where it holds a value or a map."""
    if name is None:
        return None
    if fields is SECTIONS:
        return section_class(name).model_fields
    inner, container = within(fields[name].annotation)
    return inner.model_fields if inner is not None and container is None else None


def defaults() -> Raw:
    """A whole config.json in which everything stands at its default."""
    return {"version": VERSION, **{name: plain(section_class(name)()) for name in SECTIONS}}


def refresh(raw: Raw) -> Raw:
    """`raw` in its canonical form: every value of the owner's kept, every setting that it lacks added at its default, what is no setting last."""
    raw = migrate(raw, "config.json")
    unknown: list[Key] = []
    found = _by_section(raw, unknown)
    filled = {name: _filled(found.get(name, {}), section_class(name)) for name in SECTIONS}
    return {"version": raw["version"], **filled, **{str(key[0]): raw[str(key[0])] for key in unknown}}


def _filled(raw: Any, cls: type[Section]) -> Any:
    if not isinstance(raw, dict):
        return raw
    unknown: list[Key] = []
    arrange(raw, cls, (), unknown)  # refuses what is given twice
    held = {fold(key): value for key, value in raw.items()}
    filled: Raw = {}
    for name, info in cls.model_fields.items():
        inner, container = within(info.annotation)
        value = held.get(fold(name), plain(info.get_default(call_default_factory=True)))
        filled[name] = _filled(value, inner) if inner is not None and container is None else value
    return filled | {str(key[0]): raw[str(key[0])] for key in unknown if len(key) == 1}


def parse(key: str, text: str) -> Any:
    """What a person's `text` means as the value of `key`, a dotted key or one of SESSION_KEYS, in the form that a file holds. Raises Usage.

    >>> parse("temperature", "0.3"), parse("agents.defaults.apiRetries", "4")
    (0.3, 4)
    """
    names = {fold(name): place for name, place in SESSION_KEYS.items()}
    top, *rest = names.get(fold(key), tuple(key.split(".")))
    _, found = field(section_class(fold(top)), tuple(rest)) if fold(top) in SECTIONS else ((), None)
    if found is None:
        raise Usage(_is_none((top, *rest)) if rest else f"{key} is not a setting", remedy=f"one of: {', '.join(SESSION_KEYS)}")
    unknown: list[Key] = []
    value = environment.fit(found, text, (key,), unknown)
    if unknown:
        raise Usage(_is_none(unknown[0]))
    try:
        return plain(environment.adapter(found).validate_python(value))
    except ValidationError as error:
        lines, remedy = faults.sentences(error, (key,), found, {})
        raise Usage("; ".join(lines), remedy=remedy) from None
