"""The sandboxes there are, how a session gets its own, and how what a killed daemon left running is ended."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.sandboxes import cgroup, leftovers
from bubbles.sandboxes.sandbox import Limits, Outcome, Sandbox
from bubbles.workspace import Grant

__all__ = ["NETWORKS", "REGISTRY", "Limits", "Outcome", "Sandbox", "narrower", "open", "sweep"]

REGISTRY: dict[str, str] = {
    "local": "bubbles.sandboxes.local:Local",
    "local_isolated": "bubbles.sandboxes.local_isolated:LocalIsolated",
    "bwrap": "bubbles.sandboxes.bwrap:Bwrap",
}


def sweep(home: Home) -> int:
    """End what commands of `home` left behind under a daemon that is dead now; how many there were.

    For the one who holds the home's lock, before it starts a command. It blocks: milliseconds where there is nothing.
    """
    return leftovers.sweep(home) + cgroup.sweep()


NETWORKS = ("none", "public", "host")  # the narrowest first
_USUAL = {"bwrap": "public"}  # what a backend has where nothing is said; the others: all there is


def narrower(backend: str, network: str, most: str) -> str:
    """The network of a use that may have at most `most`, where a session has `network` ("": what its backend has).

    A backend that can keep nobody off the network keeps what it has: it promises nothing of the kind.

    >>> narrower("bwrap", "", "none"), narrower("bwrap", "none", "host"), narrower("local", "", "none")
    ('none', 'none', '')
    """
    if backend not in _USUAL:
        return network
    return min(network or _USUAL[backend], most, key=NETWORKS.index)


def open(
    name: str,
    session_dir: Path,
    session_home: Path,
    settings: Any,
    grants: Sequence[Grant] = (),
    *,
    path_append: str = "",
    timezone: str = "",
    network: str = "",
) -> Sandbox:
    """The sandbox `name` for one session; `settings` is the section tools.sandbox.

    `path_append` (tools.exec.path_append) is put behind the shell's PATH; `timezone` is an IANA name for its TZ ("": as the host);
    `network` is what a command may reach: "none", "public", "host", or "" for what the backend has anyway.
    Raises Misconfigured for an unknown backend and for a name in pass_env that must not be passed.
    """
    dotted = REGISTRY.get(name)
    if dotted is None:
        raise Misconfigured(f"there is no sandbox backend {name!r}", remedy=f"set tools.sandbox.backend to one of: {', '.join(REGISTRY)}")
    module, _, attribute = dotted.partition(":")
    made: Sandbox = getattr(importlib.import_module(module), attribute)(
        session_dir, session_home, settings, grants=tuple(grants), path_append=path_append, timezone=timezone, network=network
    )
    return made
