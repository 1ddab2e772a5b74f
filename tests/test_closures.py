"""What each program loads, in a fresh interpreter, against the table of bubbles/README.md: a program that got heavier does not pass."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bubbles import starter
from bubbles.bus import is_running
from bubbles.paths import Home
from bubbles.programs import PROGRAMS
from tests.fakes.start import model
from tests.test_layers import PACKAGE, table, ticked

DAEMONS = ("agentd", "modeld", "cron")
CALLS = [(ticked(call)[0], frozenset(ticked(loads))) for call, loads in table("call")]


@cache
def distribution(module: str) -> str:
    """The distribution that a top-level module belongs to; "" for what is Python's own."""
    names = packages_distributions().get(module, [""])
    return canonicalize_name(names[0])


@cache
def brought(name: str) -> frozenset[str]:
    """A distribution and all that it needs itself."""
    try:
        needed = [Requirement(text) for text in requires(name) or []]
    except PackageNotFoundError:  # for another platform
        return frozenset()
    here = [canonicalize_name(each.name) for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return frozenset({name}).union(*map(brought, here))


def loaded(argv: list[str], env: dict[str, str]) -> tuple[frozenset[str], subprocess.CompletedProcess[str]]:
    """The top-level modules, neither ours nor Python's own, that a call loads."""
    command = [sys.executable, "-P", "-X", "importtime", *argv]
    path = os.pathsep.join([str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={**os.environ, **env, "PYTHONPATH": path}, timeout=60)
    tops = _tops(done.stderr) - _tops(_nothing()) - set(sys.stdlib_module_names) - {"bubbles"}
    return frozenset(top for top in tops if distribution(top)), done


def _tops(importtime: str) -> set[str]:
    return {name.split(".")[0] for name in re.findall(r"^import time:[^|]*\|[^|]*\| *([\w.]+)", importtime, re.M)}


@cache
def _nothing() -> str:
    """What an interpreter of this environment loads to do nothing: hooks of installers."""
    return subprocess.run([sys.executable, "-P", "-X", "importtime", "-c", "pass"], capture_output=True, text=True, check=True).stderr


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """Two environments: one whose daemons run and can be asked, and one in which nothing does."""
    found = {}
    for name in ("asked", "still"):
        root = tmp_path_factory.mktemp(name)
        (root / "run").mkdir(mode=0o700)
        found[name] = {"BUBBLES_HOME": str(root / "home"), "XDG_RUNTIME_DIR": str(root / "run")}
    with model({"default": {"reply": "done"}}) as fake, pytest.MonkeyPatch.context() as patch:
        for key, value in found["asked"].items():
            patch.setenv(key, value)
        home = Home.find()
        home.prepare()
        home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": {"model": "fake"}}, "providers": {"custom": {"base_url": fake.url}}}))
        home.config.chmod(0o600)
        with starter.client(home):
            starter.ensure(home, DAEMONS, until_idle=5)
            subprocess.run([sys.executable, "-P", "-m", "bubbles.programs", "agent", "-s", "s", "-m", "hi"], check=True, capture_output=True)
            yield found
        for name in DAEMONS:
            if pid := is_running(home, name):
                os.kill(pid, signal.SIGTERM)


def test_every_program_has_a_line() -> None:
    assert {call.split()[0] for call, _ in CALLS} == set(PROGRAMS)


@pytest.mark.parametrize(("call", "listed"), CALLS, ids=[call for call, _ in CALLS])
def test_a_program_loads_what_its_line_says(places: dict[str, dict[str, str]], call: str, listed: frozenset[str]) -> None:
    place = places["still" if call.split()[0] in DAEMONS else "asked"]
    found, done = loaded(["-m", "bubbles.programs", *call.split()], place)
    assert done.returncode == 0, done.stderr[-2000:]
    brings = {name for library in listed for name in brought(distribution(library))}
    assert listed <= found
    assert {top for top in found if distribution(top) not in brings} == set()


def test_a_library_that_is_loaded_is_seen() -> None:
    found, _ = loaded(["-c", "import zmq, json"], {})
    assert "zmq" in found
    assert "json" not in found
