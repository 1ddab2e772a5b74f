"""Links to bubblewrap's old root, planted where a session may write: the next start touches nothing outside, by any bubblewrap that is here.

The layout of which that is not true is hit by those before 0.12 (CVE-2026-87766).
"""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from bubbles.sandboxes import binary
from tests.workspace.trees import SECRET

REPOSITORY = Path(__file__).parents[2]
ORDINARY = 1000
FIXED = (0, 12)
BINARIES = [one for one in binary.candidates() if not one.missing]
USERS = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
pytestmark = pytest.mark.skipif(not BINARIES, reason="no bubblewrap here that a jail can be made with")


def _as(user: str) -> list[str]:
    """What is put before a module's name to have it run by `user`."""
    if user == "root" or os.geteuid() != 0:
        return [sys.executable, "-m"]
    prefix = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--inh-caps=-all"]
    system = [f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}", "-m"]  # where ours is root's alone
    for command in ([*prefix, sys.executable, "-m"], [*prefix, "env", f"PYTHONPATH={':'.join(site.getsitepackages())}", *system]):
        try:
            done = subprocess.run([*command[:-1], "-c", "import tests.sandboxes, bubbles.sandboxes.bwrap"], cwd=REPOSITORY, capture_output=True)
        except OSError:
            continue
        if done.returncode == 0:
            return command
    pytest.skip("an ordinary user cannot read this tree")


@pytest.fixture(scope="module", params=[(user, one) for user in USERS for one in BINARIES], ids=lambda p: f"{p[0]}-{p[1].path}")
def planted(request: pytest.FixtureRequest) -> Any:
    user, one = request.param
    command = _as(user)
    root = Path(tempfile.mkdtemp(prefix="bo-", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    try:
        if user == "ordinary" and os.geteuid() == 0:
            os.chown(root, ORDINARY, ORDINARY)
        done = subprocess.run([*command, "tests.sandboxes.planting", root, one.path], cwd=REPOSITORY, capture_output=True, text=True)
        if done.returncode:
            pytest.fail(f"as {user} with {one.path}: {done.stderr[-3000:]}")
        yield one, json.loads(done.stdout)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def test_a_planted_link_touches_nothing_outside(planted: Any) -> None:
    _, told = planted
    assert len(told["told"]) > 20
    for word, one in told["told"].items():
        assert one["touched"] == [], word
        assert SECRET not in str(one["said"]), word
        assert all(("started" in said) != ("refused" in said) for said in one["said"]), (word, one["said"])
    refused = {word for word, one in told["told"].items() if "refused" in one["said"][0]}
    assert {"work itself", "data itself", "skills itself"} <= refused
    assert all(word.endswith("itself") or word.startswith("a project") for word in refused)


def test_nor_one_that_a_command_has_planted(planted: Any) -> None:
    _, told = planted
    assert told["by itself"]["planted"]
    assert not told["by itself"]["touched"]
    assert SECRET not in str(told["by itself"]["said"])
    assert "started" in told["by itself"]["said"][1]


def test_where_something_is_mounted_below_a_writable_place_the_old_ones_are_hit(planted: Any) -> None:
    one, told = planted
    assert told["weak"]["hit"] == (one.version < FIXED), told["weak"]
    assert ("started" in told["weak"]["said"]) == told["weak"]["hit"]
