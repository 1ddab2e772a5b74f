"""Secrets that a service manager hands over as files: `$CREDENTIALS_DIRECTORY/providers.custom.api_key` stands over that setting.

systemd makes that directory for a unit with LoadCredential=; a container's secrets are files in a directory, too. Programs that a person runs
(`onboard`, `doctor`, …) look where the unit of modeld has its own, so that they ask as it does. It does not know who reads it:
starter.environment takes the variable away from the daemons that are to have no key.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from bubbles import regular
from bubbles.config import environment, faults
from bubbles.config.section import Key, Section, dotted, field, fold, is_secret
from bubbles.errors import Misconfigured

VARIABLE = "CREDENTIALS_DIRECTORY"
_MOST = 64 << 10  # bytes; no key is longer


def lay(tree: dict[str, Any], name: str, section: type[Section], env: Mapping[str, str], sources: dict[Key, str], warnings: list[str]) -> None:
    """Set in `tree[name]`, the arranged section, what the credentials of this section say; `sources` gets where each came from.

    One that names no setting, or a setting that is no secret, does nothing and is warned of. Raises Misconfigured for one that cannot be read.
    """
    for path, key in _named(env, name) if isinstance(tree[name], dict) else ():
        said = f"the credential {path.name}"
        canonical, found = _leads_to(section, key)
        if not is_secret(found):
            warnings.append(f"{said}: {dotted((name, *canonical))} is no setting that holds a secret; it does nothing")
            continue
        if field(section, canonical)[1] is not None:
            environment.put(tree, place := (name, *canonical), _text(path))  # as it is: a key that looks like JSON is none
        else:
            place = environment.lay(tree, name, section, canonical, _text(path), []) or (name, *canonical)
        sources[place] = said


def _named(env: Mapping[str, str], section: str) -> Iterator[tuple[Path, Key]]:
    """The credentials whose first part names `section`, each with its key below it. Others may be another program's."""
    directory = env.get(VARIABLE, "") or _of_modeld(env)
    try:
        names = sorted(os.listdir(directory)) if directory else []
    except OSError as error:
        if error.errno == errno.ENOENT:
            return
        raise Misconfigured(f"{VARIABLE}: cannot list {directory}: {error.strerror}", remedy=f"unset {VARIABLE}, or name a directory") from error
    for name in names:
        first, *rest = name.split(".")
        if rest and all(rest) and fold(first) == fold(section):
            yield Path(directory, name), tuple(rest)


def _of_modeld(env: Mapping[str, str]) -> str:
    """Where the user's service manager put what it hands to modeld; "" where it may not be looked into."""
    place = os.path.join(env.get("XDG_RUNTIME_DIR", ""), "credentials/bubbles-modeld.service")
    return place if os.path.isabs(place) and os.access(place, os.R_OK | os.X_OK) else ""


def _leads_to(section: type[Section], key: Key) -> tuple[Key, Any]:
    """The canonical key, and the annotation of what it leads to; None where that is nothing."""
    canonical, found = field(section, key)
    leaf = found or faults.field_at(section, canonical)
    return canonical, leaf.annotation if isinstance(leaf, FieldInfo) else leaf


def _text(path: Path) -> str:
    try:
        with open(path, "rb", opener=regular.opened) as file:
            data = file.read(_MOST + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Misconfigured(f"the credential {path}: cannot be read: {why}", remedy=f"ls -l {path}") from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text or len(data) > _MOST:
        raise Misconfigured(f"the credential {path} is {'larger than 64 KiB' if text else 'empty'}", remedy="put the key into it, and nothing else")
    return text
