"""Settings from environment variables: `BUBBLES_AGENTS__DEFAULTS__MODEL=…` stands over the file's `agents.defaults.model`.

It does not know BUBBLES_HOME and its like: a variable is a setting only where its first part names a section and another part follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from bubbles.config.section import Key, Section, arrange, dotted, field, fold, within
from bubbles.errors import Misconfigured

_PREFIX = "BUBBLES_"


def variables(env: Mapping[str, str], section: str) -> Iterator[tuple[str, Key, str]]:
    """(variable, key below the section, text) for every variable that names a setting of `section`."""
    for name in sorted(env):
        first, *rest = name.removeprefix(_PREFIX).split("__")
        if name.startswith(_PREFIX) and rest and all(rest) and fold(first) == fold(section):
            yield name, tuple(rest), env[name]


def lay(tree: dict[str, Any], name: str, section: type[Section], key: Key, text: str, unknown: list[Key]) -> Key | None:
    """Set in `tree[name]`, the arranged section, what `text` says for `key`. The canonical key; None where there is no such setting.

    What the text itself holds that is no setting is added to `unknown`."""
    canonical, found = field(section, key)
    place = (name, *canonical)
    if found is None:
        return _lay_in_map(tree, name, section, canonical, text, unknown)
    put(tree, place, fit(found, text, place, unknown))
    return place


def _lay_in_map(tree: dict[str, Any], name: str, section: type[Section], key: Key, text: str, unknown: list[Key]) -> Key | None:
    """As `lay`, for a key that leads into a map: its names are taken as they stand in the file, else in lower case."""
    for depth in range(1, len(key)):
        _, found = field(section, key[:depth])
        if found is None or getattr(found.annotation, "__origin__", None) is not dict:
            continue
        held = get(tree, (name, *key[:depth]))
        names = {fold(held_name): held_name for held_name in held} if isinstance(held, dict) else {}
        entry = names.get(fold(str(key[depth])), str(key[depth]).lower())
        return _lay_entry(tree, found, (name, *key[:depth], entry), key[depth + 1 :], text, unknown)
    return None


def _lay_entry(tree: dict[str, Any], found: FieldInfo, at: Key, rest: Key, text: str, unknown: list[Key]) -> Key | None:
    inner, _ = within(found.annotation)
    if not rest:
        put(tree, at, text if inner is None else arrange(_candidate(text), inner, at, unknown))
        return at
    canonical, leaf = field(inner, rest) if inner is not None else (rest, None)
    place = (*at, *canonical)
    if leaf is None:
        return None
    put(tree, place, fit(leaf, text, place, unknown))
    return place


def fit(found: FieldInfo, text: str, at: Key, unknown: list[Key]) -> Any:
    """What `text` means for the field at `at`: its JSON value where it is one and fits, else itself; a list of one where only that fits.

    A number or a word stays as it was written where the field wants text: 1.50 is no 1.5 then.
    Where nothing fits the most telling of them is returned, for validation to refuse."""
    value = arrange(_candidate(text), found.annotation, at, unknown)
    candidates: list[Any] = [value, text] if isinstance(value, str | dict | list) else [text, value]
    if getattr(found.annotation, "__origin__", None) is list:
        candidates += [[text], [value]]
    return next((candidate for candidate in candidates if fits(found, candidate)), [text] if len(candidates) > 2 and value == text else value)


def _candidate(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def fits(found: FieldInfo, value: Any) -> bool:
    """Is `value` valid for the field?"""
    try:
        adapter(found).validate_python(value)
    except ValidationError:
        return False
    return True


def adapter(found: FieldInfo) -> TypeAdapter[Any]:
    """What validates a value for the field alone."""
    annotation: Any = found.annotation
    return TypeAdapter(Annotated[(annotation, *found.metadata)] if found.metadata else annotation)


def get(tree: Any, key: Key) -> Any:
    """What stands at `key` in nested objects, None where nothing does."""
    for part in key:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def put(tree: Any, key: Key, value: Any) -> None:
    """Set `value` at `key`, making the objects on the way. Raises Misconfigured where something else is in the way: it is not thrown away."""
    *way, last = key
    for depth, part in enumerate(way, 1):
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            raise Misconfigured(f"{dotted(tuple(way[:depth]))} is not an object", remedy=f"make it one before setting {dotted(key)}")
    tree[last] = value
