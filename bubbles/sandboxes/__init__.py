"""The sandboxes there are, how a session gets its own, and how what a killed daemon left running is ended."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bubbles.errors import Misconfigured
from bubbles.sandboxes.leftovers import sweep
from bubbles.sandboxes.sandbox import Limits, Outcome, Sandbox
from bubbles.workspace import Grant

__all__ = ["REGISTRY", "Limits", "Outcome", "Sandbox", "open", "sweep"]

REGISTRY: dict[str, str] = {
    "local": "bubbles.sandboxes.local:Local",
    "local_isolated": "bubbles.sandboxes.local_isolated:LocalIsolated",
}


def open(
    name: str, session_dir: Path, session_home: Path, settings: Any, grants: Sequence[Grant] = (), *, path_append: str = "", timezone: str = ""
) -> Sandbox:
    """The sandbox `name` for one session; `settings` is the section tools.sandbox.

    `path_append` (tools.exec.path_append) is put behind the shell's PATH; `timezone` is an IANA name for its TZ ("": as the host).
    Raises Misconfigured for an unknown backend and for a name in pass_env that must not be passed.
    """
    dotted = REGISTRY.get(name)
    if dotted is None:
        raise Misconfigured(f"there is no sandbox backend {name!r}", remedy=f"set tools.sandbox.backend to one of: {', '.join(REGISTRY)}")
    module, _, attribute = dotted.partition(":")
    made: Sandbox = getattr(importlib.import_module(module), attribute)(
        session_dir, session_home, pass_env=tuple(settings.pass_env), grants=tuple(grants), path_append=path_append, timezone=timezone
    )
    return made
