"""What is wrong with a value, said to the person who wrote it: the dotted key, what was found, what is allowed.

It never shows a secret, nor a group of settings that may hold one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from bubbles.config.section import Key, NotYet, Section, dotted, is_secret, within
from bubbles.errors import Misconfigured

_SHAPES = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


def misconfigured(error: ValidationError, at: Key, annotation: Any, where: str, sources: Mapping[Key, str]) -> Misconfigured:
    """The error to raise for `error`, found in a value of `annotation` that stands at `at` in the file `where`.

    `sources` names the environment variable, or the credential, that a key's value came from."""
    lines, remedy = sentences(error, at, annotation, sources)
    text = f"{where}: {lines[0]}" if len(lines) == 1 else "\n  ".join((f"{where}:", *lines))
    return Misconfigured(text, remedy=f"{remedy} in {where}" if remedy.startswith("set") else remedy)


def sentences(error: ValidationError, at: Key, annotation: Any, sources: Mapping[Key, str]) -> tuple[list[str], str]:
    """One sentence for each thing that is wrong, and what to do about the first ("" where the sentence says it)."""
    told = [_told(one, at, annotation, sources) for one in error.errors(include_url=False)]
    return [text for text, _ in told], told[0][1]


def _told(one: Any, at: Key, annotation: Any, sources: Mapping[Key, str]) -> tuple[str, str]:
    """(sentence, remedy) for one of pydantic's findings."""
    said = one["ctx"]["error"] if one["type"] == "value_error" else None
    below = said.below if isinstance(said, NotYet) else ()
    key = (*at, *(part for part in one["loc"] if part != "[key]"), *below)
    found = field_at(annotation, one["loc"])
    section, container = within(found.annotation if isinstance(found, FieldInfo) else found)
    of_a_group = section is not None and container is None and one["type"] == "value_error"  # settings that do not go together
    variable = next((name for place, name in sources.items() if place == key[: len(place)] or (of_a_group and place[: len(key)] == key)), "")
    name = f"{dotted(key)} (from {variable})" if variable else dotted(key)
    if isinstance(said, NotYet):
        others = f", or to one of: {', '.join(said.built)}" if said.built else ""
        return f"{name}: {said}", _without(variable) if variable else f"set {dotted(key)} to {json.dumps(said.instead)}{others}"
    if one["type"] == "missing":
        return f"{name} is missing", ""
    remedy = getattr(said, "remedy", "")
    if of_a_group:
        return f"{name}: {said}", remedy
    return f"{name}: found {shown(one['input'], found)}; allowed: {said or allowed(found)}", remedy


def _without(source: str) -> str:
    return f"take {source} away" if " " in source else f"unset {source}"


def field_at(annotation: Any, location: tuple[str | int, ...]) -> Any:
    """The FieldInfo, or the annotation, that a location leads to."""
    found: Any = annotation
    for part in location:
        section, container = within(found.annotation if isinstance(found, FieldInfo) else found)
        if section is not None and container is None and part in section.model_fields:
            found = section.model_fields[str(part)]
        elif section is not None and container is not None:
            found = section
        else:
            return _element(found)
    return found


def _element(found: Any) -> Any:
    arguments = get_args(found.annotation if isinstance(found, FieldInfo) else found)
    return arguments[-1] if arguments else found


def shown(value: Any, found: Any) -> str:
    """`value` as it may be shown: not at all where it is or may hold a secret, and never long.

    >>> shown("http://me:pw@host/", None)
    '"http://***@host/"'
    """
    annotation = found.annotation if isinstance(found, FieldInfo) else found
    if is_secret(annotation):
        return "(hidden)"
    if within(annotation)[0] is not None or isinstance(value, Section | dict | list):
        return _SHAPES.get(type(value), "something else")
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = re.sub(r"://[^/@\s]*@", "://***@", text)
    return text if len(text) <= 60 else f"{text[:57]}…"


def allowed(found: Any) -> str:
    """What a field's type and bounds allow, in words."""
    annotation: Any = found.annotation if isinstance(found, FieldInfo) else found
    metadata: tuple[Any, ...] = tuple(found.metadata) if isinstance(found, FieldInfo) else ()
    while hasattr(annotation, "__metadata__"):
        metadata, annotation = (*metadata, *annotation.__metadata__), get_args(annotation)[0]
    origin: Any = get_origin(annotation) or annotation
    if origin is Literal:
        return "one of " + ", ".join(json.dumps(choice) for choice in get_args(annotation))
    if origin in (int, float):
        return ("a whole number" if origin is int else "a number") + _bounds(metadata)
    if isinstance(origin, type) and issubclass(origin, Section):
        return "an object"
    if any(getattr(item, "min_length", None) for item in metadata):
        return "text that is not empty"
    return _SHAPES.get(origin, "text")


def _bounds(metadata: tuple[Any, ...]) -> str:
    flat = [inner for item in metadata for inner in (item, *getattr(item, "metadata", ()))]
    low = next((item.ge for item in flat if getattr(item, "ge", None) is not None), None)
    high = next((item.le for item in flat if getattr(item, "le", None) is not None), None)
    if low is None or high is None:
        return ""
    return f" from {low:g} to {high:g}" if isinstance(high, float) else f" from {low} to {high}"
