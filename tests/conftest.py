"""What every test shares: hypothesis's profile, and homes that never meet the owner's."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bubbles.paths import Home

# Whoever starts the tests in the background of a script has Ctrl-C ignored, and so would every program they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.load_profile("suite")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A prepared home of its own, also for the programs that a test starts."""
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("BUBBLES_HOME", str(tmp_path / "home"))
    found = Home.find()
    found.prepare()
    sockets = found.sockets
    yield found
    if sockets.parent != runtime:  # its name was too long for a socket
        shutil.rmtree(sockets, ignore_errors=True)
