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


def lay(tree: Any, section: type[Section], key: Key, text: str) -> Key | None:
    """Set in `tree`, an arranged section, what `text` says for `key`. The canonical key; None where there is no such setting."""
    canonical, found = field(section, key)
    if found is None:
        return _lay_in_map(tree, section, canonical, text)
    put(tree, canonical, fit(found, text))
    return canonical


def _lay_in_map(tree: Any, section: type[Section], key: Key, text: str) -> Key | None:
    """As `lay`, for a key that leads into a map: its names are taken as they stand in the file, else in lower case."""
    for depth in range(1, len(key)):
        _, found = field(section, key[:depth])
        if found is None or getattr(found.annotation, "__origin__", None) is not dict:
            continue
        held = get(tree, key[:depth])
        names = {fold(name): name for name in held} if isinstance(held, dict) else {}
        name = names.get(fold(str(key[depth])), str(key[depth]).lower())
        return _lay_below(tree, found, (*key[:depth], name), key[depth + 1 :], text)
    return None


def _lay_below(tree: Any, found: FieldInfo, at: Key, rest: Key, text: str) -> Key | None:
    inner, _ = within(found.annotation)
    if not rest:
        put(tree, at, _candidate(text) if inner is not None else text)
        return at
    canonical, leaf = field(inner, rest) if inner is not None else (rest, None)
    if leaf is None:
        return None
    put(tree, (*at, *canonical), fit(leaf, text))
    return (*at, *canonical)


def fit(found: FieldInfo, text: str) -> Any:
    """What `text` means for the field: its JSON value where it is one and fits, else itself; a list of one where only that fits.

    Where nothing fits the most telling of them is returned, for validation to refuse."""
    value = arrange(_candidate(text), found.annotation, (), [])
    candidates = (value, text, [value], [text]) if getattr(found.annotation, "__origin__", None) is list else (value, text)
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
