"""What every settings class is made of: how keys are matched, which texts are secret, and what is not built yet.

It does not know where a value came from: a file, the environment and a chat command all pass here.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from bubbles.errors import Misconfigured

Key = tuple[str | int, ...]  # a dotted key, taken apart: a name in it may itself hold dots


class Section(BaseModel):
    """A group of settings. Numbers are accepted where text is wanted (ids of chats are often written so), and nothing else is guessed."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, protected_namespaces=())

    def at_hand(self) -> tuple[Self, list[str]]:
        """What of it can be had now, and a sentence for each thing that cannot."""
        return self, []


class Promised(Section):
    """A section that is written down before its feature is built: until then, no value in it but the defaults is accepted.

    `not_built` says what is missing; the class of a feature that is there sets it to "". That one line is all that is to be lifted."""

    not_built: ClassVar[str]

    @field_validator("*")
    @classmethod
    def _nothing_is_ignored(cls, value: Any, info: ValidationInfo) -> Any:
        if cls.not_built and (found := _differing(value, cls.model_fields[str(info.field_name)].get_default(call_default_factory=True))):
            raise NotYet(cls.not_built, plain(found[1]), found[0])
        return value


def _differing(value: Any, default: Any) -> tuple[Key, Any] | None:
    """Where, below a value, the first thing stands that is not as in `default`, and what stands there in `default`."""
    if not isinstance(value, Section):
        return None if value == default else ((), default)
    for name in type(value).model_fields:
        if found := _differing(getattr(value, name), getattr(default, name)):
            return (name, *found[0]), found[1]
    return None


def dotted(key: Key) -> str:
    """`("tools", "workspaces", 0, "path")` as a person would write it: `tools.workspaces[0].path`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def fold(key: str) -> str:
    """What camelCase, snake_case and the environment's UPPER_CASE have in common.

    >>> fold("maxTokens") == fold("max_tokens") == fold("MAX_TOKENS")
    True
    """
    return key.replace("_", "").replace("-", "").lower()


def nearest(key: str, names: Mapping[str, str]) -> str:
    """Which of `names`, by their folded forms, was meant by `key`; "" where none is near."""
    from difflib import get_close_matches  # only for those who mistype

    match = get_close_matches(fold(key), names, 1, 0.7)
    return names[match[0]] if match else ""


def within(annotation: Any) -> tuple[type[Section] | None, type | None]:
    """The settings class inside an annotation, and the container (list, tuple or dict) that holds it, if any."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, None
    for argument in get_args(annotation):
        section, _ = within(argument)
        if section is not None:
            return section, annotation.__origin__
    return None, None


def arrange(raw: Any, annotation: Any, at: Key, unknown: list[Key]) -> Any:
    """`raw` with every known key in its canonical form and without the others, which are added to `unknown`.

    Whatever has not the expected shape is returned as it is: validation will name it. Raises Misconfigured for one setting given twice.
    """
    section, container = within(annotation)
    if section is None:
        return raw
    if container is dict:
        return {k: arrange(v, section, (*at, k), unknown) for k, v in raw.items()} if isinstance(raw, dict) else raw
    if container is not None:
        return [arrange(v, section, (*at, i), unknown) for i, v in enumerate(raw)] if isinstance(raw, list) else raw
    return _arrange_section(raw, section, at, unknown) if isinstance(raw, dict) else raw


def _arrange_section(raw: dict[str, Any], section: type[Section], at: Key, unknown: list[Key]) -> dict[str, Any]:
    names = {fold(name): name for name in section.model_fields}
    known: dict[str, Any] = {}
    for key, value in raw.items():
        name = names.get(fold(key))
        if name is None:
            unknown.append((*at, key))
        elif name in known:
            raise Misconfigured(f"{dotted((*at, name))} is given twice, once as {key!r}", remedy="leave one of the two")
        else:
            known[name] = arrange(value, section.model_fields[name].annotation, (*at, name), unknown)
    return known


def field(section: type[Section], key: Key) -> tuple[Key, FieldInfo | None]:
    """The canonical key and the field that `key` leads to below `section`. None where it leads nowhere, or into a map or a list."""
    names = {fold(name): name for name in section.model_fields}
    name = names.get(fold(str(key[0]))) if key else None
    if name is None:
        return key, None
    found = section.model_fields[name]
    if len(key) == 1:
        return (name,), found
    inner, container = within(found.annotation)
    if inner is None or container is not None:
        return (name, *key[1:]), None
    rest, found_below = field(inner, key[1:])
    return (name, *rest), found_below


def is_secret(annotation: Any) -> bool:
    """May a value of this annotation be shown to nobody?"""
    return annotation is SecretStr or any(is_secret(argument) for argument in get_args(annotation))


def secrets(value: Any) -> Iterator[str]:
    """Every secret text inside a section, a list or a map."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, Section):
        for name in type(value).model_fields:
            yield from secrets(getattr(value, name))
    elif isinstance(value, dict):
        for inner in value.values():
            yield from secrets(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from secrets(inner)


def plain(value: Any) -> Any:
    """`value` as JSON can hold it, secrets included: for the file, never for a log."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Section):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


class NotYet(ValueError):
    """The feature behind a setting is not built; `instead` is the value to go back to, and `built` what else there is; `below`: where in it."""

    def __init__(self, what: str, instead: Any, below: Key = (), *, built: Sequence[str] = ()) -> None:
        super().__init__(f"{what} is not built yet")
        self.instead, self.below, self.built = instead, below, built


def not_yet(what: str, *built: Any) -> AfterValidator:
    """A marker for a setting whose feature is not built: any value but the `built` ones (the first is the default) is refused, never ignored."""

    def refuse(value: Any) -> Any:
        if value not in built:
            raise NotYet(what, plain(built[0]))
        return value

    return AfterValidator(refuse)


def _key(value: SecretStr) -> SecretStr:
    text = value.get_secret_value().strip()  # a pasted key brings its line's end along
    if not re.fullmatch(r"[!-~]*", text):
        raise ValueError("a key of printable ASCII without spaces")
    return SecretStr(text)


def _header(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[ -~]*", value.get_secret_value()):
        raise ValueError("printable ASCII on one line")
    return value


def _headers(value: dict[str, SecretStr]) -> dict[str, SecretStr]:
    wrong = [name for name in value if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name)]
    if wrong:
        raise ValueError(f"names of HTTP headers; {wrong[0]!r} is none")
    return value


def url_of(value: str) -> str:
    """An address as the configuration holds it. Raises ValueError."""
    allowed = "an address such as http://127.0.0.1:8000/v1"
    try:
        parts = urllib.parse.urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError(allowed) from None
    if "@" in parts.netloc:
        raise ValueError(f"{allowed}, without a user or a password in it")
    whole = parts.scheme in ("http", "https") and parts.hostname and (port is None or port > 0)
    if value and (not whole or parts.query or parts.fragment or not re.fullmatch(r"[!-~]+", value)):
        raise ValueError(allowed)
    return value.rstrip("/")


def _absolute(value: str) -> str:
    path = Path(value).expanduser() if value else None
    if path and (not path.is_absolute() or "\0" in value):
        raise ValueError("an absolute path, or one that begins with ~/")
    return str(path or "")


def _expand(value: str) -> str:
    try:
        return _absolute(value)
    except RuntimeError:  # ~nobody
        raise ValueError("an absolute path, or one that begins with ~/") from None


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _name(value: str) -> str:
    if re.search(r"[\s\x00-\x1f\x7f]", value):
        raise ValueError("a name without spaces")
    return value


ApiKey = Annotated[SecretStr, AfterValidator(_key)]
Secret = SecretStr  # a password: any text
Headers = Annotated[dict[str, Annotated[SecretStr, AfterValidator(_header)]], AfterValidator(_headers)]
Url = Annotated[str, BeforeValidator(_strip), AfterValidator(url_of)]
PathText = Annotated[str, AfterValidator(_expand)]
Name = Annotated[str, BeforeValidator(_strip), AfterValidator(_name)]
