"""What every test shares: hypothesis's profile, and homes that never meet the owner's."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from bubbles.paths import Home
from bubbles.sessions.history import History
from bubbles.sessions.journal import Journal

# Whoever starts the tests in the background of a script, or by nohup, has these ignored, and so would every program they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
settings.load_profile("suite")


_OPEN_MOST = 200  # descriptors that may come to a process of tests before its cycles are collected
_opened: list[History | Journal] = []
_after_collection = 0


def pytest_configure() -> None:
    """Whatever a test opens of a session is noted, for a program that is killed in mid-step closes nothing."""
    for kind in (History, Journal):
        kind.__init__ = _noting(kind.__init__)  # type: ignore[method-assign]


def _noting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def noted(self: History | Journal, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        _opened.append(self)

    return noted


@pytest.fixture(autouse=True)
def _what_was_killed_is_gone() -> Iterator[None]:
    """Files of sessions that a test left open are closed; what else holds files in cycles is left to the collector, called when they are many."""
    global _after_collection
    yield
    for each in _opened:
        if each.fd != -1:
            each.close()
    _opened.clear()
    if os.path.isdir("/proc/self/fd") and len(os.listdir("/proc/self/fd")) > _after_collection + _OPEN_MOST:
        gc.collect()
        _after_collection = len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def _no_mask_is_left_behind() -> Iterator[None]:
    """A program that is run in the tests' own process sets its mask there: the next test begins with the one that most machines have."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests have to tell besides whether they passed: their property `told`."""
    reports = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome) if report.when == "call"]
    for report in reports:
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.write_line(str(text))


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
