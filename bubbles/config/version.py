"""Which form of config.json this program writes, the owner's and a session's, and the steps that lead to it from every older one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bubbles import messages
from bubbles.errors import DataError, Misconfigured, ProtocolError

Raw = dict[str, Any]
VERSION = 1
MIGRATIONS: Mapping[int, Callable[[Raw], Raw]] = {}  # n: what makes a file of version n one of n + 1
SESSION_VERSION = 1
SESSION_MIGRATIONS: Mapping[int, Callable[[Raw], Raw]] = {}


def migrate(raw: Raw, where: str, *, steps: Mapping[int, Callable[[Raw], Raw]] = MIGRATIONS, version: int = VERSION) -> Raw:
    """`raw` in the form of `version`; a file that says none is taken to be of this one. Raises Misconfigured for a newer one.

    >>> migrate({"version": 1, "old": 3}, "config.json", steps={1: lambda raw: {"new": raw["old"]}}, version=2)
    {'version': 2, 'new': 3}
    """
    try:
        raw = messages.migrate(raw, version, steps, where)
    except (DataError, ProtocolError) as error:
        raise Misconfigured(error.text, remedy=error.remedy or f"set version to {version} in {where}") from error
    return {"version": version, **{key: value for key, value in raw.items() if key != "version"}}
