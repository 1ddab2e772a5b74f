"""Machines on which no jail can be made, or on which one can: a real kernel that refuses, and a bubblewrap that fails as the real ones do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bubbles.config.tools import Sandbox
from bubbles.paths import Home
from bubbles.sandboxes import probe
from tests.programs.run import BIN


def needs_a_jail(home: Home) -> None:
    """Skip where this machine makes none. Nothing of that look stays in `home`."""
    found = probe.verdict(home, Sandbox())
    (home.run / probe.FILE).unlink(missing_ok=True)
    if not found.ok:
        pytest.skip(f"no jail can be made on this machine: {found.why}")


def apart(script: str, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a mount and user namespace of its own, as root there."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *argv]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **env})
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespaces here: {done.stderr.strip()}")
    return done


def without_namespaces(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`bubbles ARGV...` where the kernel makes no further user namespace, and so no jail."""
    return apart('echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', str(BIN / "bubbles"), *argv, **env)


def broken(place: Path, err: str, code: int = 1, *, version: str = "0.8.0", options: tuple[str, ...] = ()) -> Path:
    """A bubblewrap in the directory `place` that knows `options` and ends with `code` and `err` whenever it is to make a jail."""
    path = place / "bwrap"
    place.mkdir(exist_ok=True)
    known = "".join(f"    {option}\n" for option in options)
    death = f"kill -{-code} $$" if code < 0 else f"exit {code}"
    path.write_text(
        f"#!/bin/sh\ncase $1 in\n--version) echo 'bubblewrap {version}' ;;\n--help) cat <<'END'\n{known}END\n;;\n"
        f"*) cat >&2 <<'END'\n{err}\nEND\n{death} ;;\nesac\n"
    )
    path.chmod(0o755)
    return path
