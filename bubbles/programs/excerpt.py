"""What a confined unit is shown in place of config.json: the sections that its program loads, and no key of anybody else's.

bubbles-home.service writes it before each start of such a unit, so nothing that takes long to load is loaded where the file is in order.
It does not know what the settings mean, and checks none.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

from bubbles import regular
from bubbles.errors import Misconfigured, TryAgain, Usage
from bubbles.paths import Home

Raw = dict[str, Any]
SECTIONS = {"modeld": ("agents", "providers")}  # what these programs load
CHANNEL = "channel-"  # and a channel: the section `channels`, of it what is said for all, and its own
FOR_ALL = ("sendprogress", "sendtoolhints", "sessionmode", "people")
AS_IT_IS = 1  # the version of config.json that needs no step to be this program's
_MOST = 1 << 20  # bytes; what is longer is looked at by what reads it for good


def write(home: Home, program: str, to: Path) -> None:
    """Put the excerpt for `program` (`modeld`, `channel-NAME`) in place, mode 0600, in one step. Raises TryAgain, and leaves none there."""
    temporary = to.with_name(f".{to.name}.tmp")
    try:
        with open(temporary, "w", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600)) as file:
            json.dump(excerpt(home, program), file, allow_nan=False)
        temporary.replace(to)
    except OSError as error:
        for path in (temporary, to):  # better none than an old one
            with contextlib.suppress(OSError):
                path.unlink()
        raise TryAgain(f"cannot write {to}: {error.strerror}", remedy=f"look at: ls -ld {to.parent}") from error


def excerpt(home: Home, program: str) -> Raw:
    """What `program` may see of the home's config.json; of one that cannot be used, the reason, which `config.load` then raises. Raises Usage."""
    if program not in SECTIONS and not program.startswith(CHANNEL):
        raise Usage(f"{program} is shown nothing", remedy=f"one of: {', '.join((*SECTIONS, f'{CHANNEL}NAME'))}")
    raw = _plain(home.config)
    if raw is None:
        from bubbles.config import file, version  # here, because it takes longer than all the rest

        try:
            raw = version.migrate(file.read(home.config), str(home.config))
        except Misconfigured as error:
            return {file.FAULT: {"text": error.text, "remedy": error.remedy}}
    return _cut(raw, program)


def _plain(path: Path) -> Raw | None:
    """The object in the file, {} where there is none; None where anything about it is to be looked at more closely."""
    try:
        text = regular.read(path, _MOST).decode("utf-8-sig")
        raw = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_refuse)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        return None
    known = isinstance(raw, dict) and type(version := raw.get("version", AS_IT_IS)) is int and version == AS_IT_IS
    return raw if known else None


def _once(pairs: list[tuple[str, Any]]) -> Raw:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _refuse("twice")


def _finite(text: str) -> float:
    value = float(text)
    return value if abs(value) != float("inf") else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _cut(raw: Raw, program: str) -> Raw:
    """Keys stay as they are spelled, and one that is given twice stays so: whoever loads it says that."""
    sections = SECTIONS.get(program, ("channels",))
    kept = {key: value for key, value in raw.items() if key == "version" or _folded(key) in sections}
    if program in SECTIONS:
        return kept
    own = (*FOR_ALL, _folded(program.removeprefix(CHANNEL)))
    return {key: value if key == "version" else _own(value, own) for key, value in kept.items()}


def _own(section: Any, names: tuple[str, ...]) -> Any:
    """Of the section what has one of these names; where it is none, nothing that is in it."""
    if not isinstance(section, dict):
        return type(section)()
    return {key: value for key, value in section.items() if _folded(key) in names}


def _folded(key: str) -> str:
    """As `config.section.fold`, which cannot be had without what it is made for."""
    return key.replace("_", "").replace("-", "").lower()
