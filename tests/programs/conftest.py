"""What the tests of programs share: a home whose daemons really run, with a scripted model behind them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.paths import Home
from tests.fakes.start import FakeModel
from tests.fakes.start import model as fake_model
from tests.programs.run import bubbles
from tests.programs.terminal_under_test import Terminal

DAEMONS = ("agentd", "modeld", "cron")


@dataclass(frozen=True)
class Place:
    """One home, the model that its configuration names, and the environment in which programs find both."""

    home: Home
    model: FakeModel
    env: dict[str, str]

    def run(self, *argv: str, stdin: str | bytes = "", **env: str) -> subprocess.CompletedProcess[str]:
        """`bubbles ARGV...` in this home, to its end."""
        return bubbles(*argv, stdin=stdin, **self.env, **env)

    def terminal(self, *argv: str, cwd: Path | None = None, group: bool = False) -> Terminal:
        """`bubbles ARGV...` in this home, on a terminal of its own."""
        return Terminal(["agent", *argv], self.env, cwd=cwd, group=group)

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        """Ask agentd."""
        return Dial(self.home, "agentd").call(op, body)[0]

    def history(self, session: str) -> list[dict[str, Any]]:
        """What `bubbles history` prints."""
        return [json.loads(line) for line in self.run("history", session).stdout.splitlines()]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a daemon and wait until it is gone, and with it one that a client had started beside it."""
        sent: set[int] = set()

        def is_gone() -> bool:
            pid = is_running(self.home, name)
            if pid and pid not in sent:
                sent.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            return pid is None

        until(is_gone)


def until(claim: Any, timeout_s: float = 30) -> None:
    """Wait until a claim holds."""
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)


def configure(home: Home, url: str, **agents: Any) -> None:
    """Write a configuration that asks the model at `url`."""
    raw = {"version": 1, "agents": {"defaults": {"model": "fake", "api_retries": 0, **agents}}, "providers": {"custom": {"base_url": url}}}
    home.config.write_text(json.dumps(raw))
    home.config.chmod(0o600)


@contextlib.contextmanager
def a_place(root: Path) -> Iterator[Place]:
    """A prepared home below `root`. Whatever daemons it has at the end are ended."""
    runtime = root / "run"
    runtime.mkdir(mode=0o700)
    before = {name: os.environ.get(name) for name in ("BUBBLES_HOME", "XDG_RUNTIME_DIR")}
    env = {"BUBBLES_HOME": str(root / "home"), "XDG_RUNTIME_DIR": str(runtime), "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm-256color"}
    os.environ.update(env)
    with fake_model({}) as model:
        home = Home(root / "home")
        home.prepare()
        configure(home, model.url)
        place = Place(home, model, env)
        try:
            yield place
        finally:
            for name in DAEMONS:
                place.kill(name, signal.SIGTERM)
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One home for a file's tests; each uses sessions of its own."""
    with a_place(tmp_path_factory.mktemp("place")) as found:
        yield found


@pytest.fixture
def own_place(tmp_path: Path) -> Iterator[Place]:
    """A home for one test that breaks things."""
    with a_place(tmp_path) as found:
        yield found


PYTHON = sys.executable
