"""A person's Bubbles under systemd: installed, configured for a scripted model outside, started, spoken with, and looked at.

It does not know what is wrong with a unit; tests do.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bubbles import ids
from tests.fakes.start import FakeModel, FakePlatform, model, platform
from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.person import Person

AGENTD, MODELD, CRON = "bubbles-agentd.service", "bubbles-modeld.service", "bubbles-cron.service"
CHANNEL = "bubbles-channel@test.service"
TARGET = "bubbles.target"
ALL = (AGENTD, MODELD, CRON, CHANNEL)
_PYTHON = CHECKOUT / ".venv/bin/python"
_CHANNEL = ("--pace", "0.05", "--poll-s", "2", "--timeout-s", "2")  # times that nobody has to wait for


class World:
    """`person`: whose it is; `model`: what answers; `platform`: where the test channel's chats are."""

    def __init__(self, person: Person, model: FakeModel, platform: FakePlatform) -> None:
        self.person, self.model, self.platform = person, model, platform

    @property
    def machine(self) -> Machine:
        return self.person.machine

    def install(self) -> None:
        """A configuration, and the units, the test channel's among them."""
        custom = {"base_url": self.model.url}
        defaults = {"model": "custom/fake-1", "api_retries": 0}
        config = {"version": 1, "providers": {"custom": custom}, "agents": {"defaults": defaults}}
        self.person.write(".bubbles/config.json", json.dumps(config))
        self._drop_in(CHANNEL, "test", self._serves())
        self.person.run(["bubbles", "units", "install"])
        self.person.systemctl("enable", CHANNEL)

    def _serves(self) -> str:
        """The test channel's unit runs tests/fakes/channel.py, and sees it."""
        words = [str(_PYTHON), "-m", "tests.fakes.channel", "test", "--url", self.platform.url, *_CHANNEL]
        lines = [f"Environment=PYTHONPATH={CHECKOUT}", f"BindReadOnlyPaths={CHECKOUT}/tests", "ExecStart=", f"ExecStart={' '.join(words)}"]
        return "\n".join(["[Service]", *lines, ""])

    def adjust(self, unit: str, name: str, text: str) -> None:
        """Give a unit a drop-in called `name`, taken up by its next start."""
        self._drop_in(unit, name, text)
        self.person.systemctl("daemon-reload")

    def _drop_in(self, unit: str, name: str, text: str) -> None:
        self.person.write(f".config/systemd/user/{unit}.d/{name}.conf", text)

    def start(self) -> None:
        """As the README says; returns when all are ready."""
        self.person.systemctl("enable", "--now", TARGET)

    def ask(self, text: str, session: str = "s") -> str:
        """What `bubbles ask` prints."""
        return self.person.run(["bubbles", "ask", "-s", session, text]).stdout.strip()

    def asking(self, text: str, session: str = "s") -> subprocess.Popen[str]:
        """`bubbles ask` beside the test."""
        command = self.machine.command(["bubbles", "ask", "-s", session, text], user=self.person.name)
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pid(self, unit: str) -> int:
        """Its main process, as its machine numbers it; 0 where it does not run."""
        return int(self.person.systemctl("show", "--property=MainPID", "--value", unit).stdout)

    def pids(self, *units: str) -> dict[str, int]:
        return {unit: self.pid(unit) for unit in units}

    def signal(self, name: str, pid: int) -> None:
        """Whoever has the person's rights could send it."""
        self.person.run(["kill", f"-{name}", str(pid)])

    def ran(self, session: str = "s") -> list[str]:
        """The lines that tools have left in `ran`, in the session's working directory."""
        path = self.machine.path(self.person.home / ".bubbles/sessions" / session / "work/ran")
        return path.read_text().split() if path.exists() else []

    def history(self, session: str = "s") -> list[dict[str, Any]]:
        """The lines of a session's history."""
        path = self.machine.path(self.person.home / ".bubbles/sessions" / session / "session.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def said(self, session: str = "s") -> list[str]:
        """The assistant's words in a history."""
        return [line["content"] for line in self.history(session) if line.get("role") == "assistant" and line.get("content")]

    def entries(self, *matches: str) -> list[dict[str, Any]]:
        """What `journalctl --user -o json` finds for these matches."""
        found = self.person.run(["journalctl", "--user", "-o", "json", "--all", *matches]).stdout
        return [json.loads(line) for line in found.splitlines()]


CHAT = "42"
CHATS_SESSION = ids.session_key("test", CHAT)


def command(token: str, seconds: float = 0) -> dict[str, Any]:
    """A call that leaves `token` in `ran`, and then takes so long."""
    return {"name": "exec", "arguments": {"command": f"echo {token} >> ran; sleep {seconds}"}}


@contextlib.contextmanager
def world(person: Person, state: Path, script: dict[str, Any] | None = None) -> Iterator[World]:
    """A person's Bubbles that is installed and not started. The fakes end with the block; the units, with the person's manager."""
    with model(script) as fake, platform(state=state) as chats:
        made = World(person, fake, chats)
        made.install()
        yield made
