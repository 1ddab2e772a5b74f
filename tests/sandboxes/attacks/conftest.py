"""The results of the assaults: each is run once, whoever of the tests' processes asks first, as each user and in each arrangement."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
ORDINARY = 1000  # an ordinary user's number, where the suite is run by root
_MOST_S = 180
_SYSTEM = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
_SITE = sysconfig.get_path("purelib")  # so that it finds what the tests' own Python has

Results = Callable[[str, str], dict[str, Any]]


def users() -> list[str]:
    """Those as whom the attacks are run: whoever runs the suite, and where that is root, an ordinary user too."""
    return ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What the assault of an arrangement by a user told; run now, where no other process has."""
    kept = tmp_path_factory.getbasetemp()
    kept = kept.parent if os.environ.get("PYTEST_XDIST_WORKER") else kept

    def found(user: str, arrangement: str) -> dict[str, Any]:
        path = kept / f"assault-{user}-{arrangement}.json"
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                path.write_text(json.dumps(_assault(user, arrangement)))
        told: dict[str, Any] = json.loads(path.read_text())
        if "skip" in told:
            # Where the tests run unattended as root there is a jail, or something is broken.
            assert os.environ.get("CI") != "true" or os.geteuid() != 0 or user == "ordinary", told["skip"]
            pytest.skip(told["skip"])
        return told

    return found


def _assault(user: str, arrangement: str) -> dict[str, Any]:
    as_whom = _python(user)
    if isinstance(as_whom, str):
        return {"skip": as_whom}
    root = Path(tempfile.mkdtemp(prefix="ba-", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    try:
        if user == "ordinary" and os.geteuid() == 0:
            os.chown(root, ORDINARY, ORDINARY)
        environment = {"PATH": os.environ.get("PATH", os.defpath), "GATEWAY_API_KEY": f"canary-{secrets.token_hex(12)}", "PYTHONPATH": _SITE}
        done = subprocess.run(
            [*as_whom, "-m", "tests.sandboxes.attacks.assault", str(root), arrangement],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_MOST_S,
        )  # fmt: skip
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if done.returncode:
        return {"told": {}, "damage": [], "failed": done.stderr[-4000:]}
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _python(user: str) -> list[str] | str:
    """The words that start a Python as `user`; a text is why that cannot be."""
    if user == "root" or os.geteuid() != 0:
        return [sys.executable]
    if not shutil.which("setpriv"):
        return "there is no setpriv to become an ordinary user with"
    prefix = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--inh-caps=-all"]
    # An interpreter in root's home is shown in nobody else's jail: then the system's, if it is of the same kind.
    for python in (_SYSTEM, sys.executable):
        call = [*prefix, python, "-c", "import tests.sandboxes, bubbles.config.tools"]
        if os.access(python, os.X_OK) and subprocess.run(call, cwd=ROOT, env={"PYTHONPATH": _SITE}, capture_output=True).returncode == 0:
            return [*prefix, python]
    return "an ordinary user cannot read this tree"
