"""A whole chain for tests: real agentd and modeld in processes of their own, a scripted model behind them, and a terminal that talks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from bubbles import config, ids, starter
from bubbles.bus.dial import Dial
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.fakes.start import FakeModel, FakePlatform, model

Part = dict[str, Any]
_WAIT_S = 60.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Heard:
    """What a terminal got for one message."""

    parts: list[Part] = field(default_factory=list)
    outcome: str = ""
    text: str = ""

    def kinds(self) -> list[str]:
        return [next(iter(part)) for part in self.parts]

    def says(self) -> list[str]:
        return [part["say"]["text"] for part in self.parts if "say" in part]


class World:
    """One home with its daemons. `start` and `kill` may be called in any order."""

    def __init__(self, home: Home, fake: FakeModel) -> None:
        self.home = home
        self.fake = fake
        self.running: dict[str, starter.Started] = {}

    def configure(self, **changes: Any) -> None:
        config.save(self.home, {key.replace("__", "."): value for key, value in changes.items()})

    def start(self, *names: str) -> None:
        for name in names or ("modeld", "agentd"):
            self.running[name] = starter.start(self.home, name)

    def channel(self, name: str, platform: FakePlatform, *options: str, ready: bool = True, log: BinaryIO | None = None) -> starter.Started:
        """Start the test channel (tests/fakes/channel.py) as `channel-NAME`, which is what `kill` calls it. Its words go to `log`, else to a file."""
        argv = [sys.executable, "-m", "tests.fakes.channel", name, "--url", platform.url, *options]
        started = self.running[f"channel-{name}"] = starter.Started(self.home, f"channel-{name}", ["env", f"PYTHONPATH={_ROOT}", *argv], log)
        return started.wait() if ready else started

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        started = self.running.pop(name)
        os.kill(started.pid, number)
        started.process.wait()

    def put(self, text: str, session: str = "s", *, queue: str = "cli", id: str = "", **more: Any) -> str:
        """Leave a message in an inbound queue; its id."""
        found = Queue(self.home.inbound(queue))
        found.prepare()
        id = id or ids.fresh(queue)
        sender = Sender("me", "Me", owner=True)
        inbound = Inbound(id=id, at=time.time(), channel=queue, chat=session, text=text, sender=sender, session=ids.safe(session), **more)
        found.put(id, to_dict(inbound))
        return id

    def ring(self) -> None:
        with Dial(self.home, "agentd") as dial:
            dial.ring()

    def wait(self, id: str, session: str = "s", *, stream: bool = True, on_part: Callable[[Part], None] | None = None) -> Heard:
        """Wait for the end of the turn a message is in."""
        heard = Heard()
        deadline = time.monotonic() + _WAIT_S

        def take(part: Part) -> None:
            assert time.monotonic() < deadline, "the turn never ended"
            heard.parts.append(part)
            if on_part:
                on_part(part)

        with Dial(self.home, "agentd") as dial:
            body, _ = dial.call("turn.wait", {"message": id, "stream": stream, "session": session}, on_part=take)
        heard.outcome, heard.text = body["outcome"], body["text"]
        return heard

    def journal(self, session: str = "s") -> bytes:
        """The journal of the turn that runs, b"" where none does."""
        path = self.home.turns / f"{ids.safe(session)}.jsonl"
        return path.read_bytes() if path.exists() else b""

    def say(self, text: str, session: str = "s", **more: Any) -> Heard:
        id = self.put(text, session)
        self.ring()
        return self.wait(id, session, **more)

    def ask(self, op: str, **body: Any) -> dict[str, Any]:
        with Dial(self.home, "agentd") as dial:
            return dial.call(op, body)[0]

    def history(self, session: str = "s") -> list[dict[str, Any]]:
        """The messages in a session's file."""
        path = self.home.session(session) / "session.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if "role" in line]

    def ends(self, session: str = "s") -> list[dict[str, Any]]:
        path = self.home.session(session) / "session.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in lines if line.get("meta") == "turn"]

    def until(self, claim: Callable[[], Any], timeout_s: float = 20.0) -> Any:
        """Wait for something outside to become true."""
        deadline = time.monotonic() + timeout_s
        while not (found := claim()):
            assert time.monotonic() < deadline, "it never came to be"
            time.sleep(0.02)
        return found

    def close(self) -> None:
        for name in list(self.running):
            self.kill(name)


@contextlib.contextmanager
def world(home: Home, script: dict[str, Any] | None = None, **changes: Any) -> Iterator[World]:
    """A world whose model plays `script`; `changes` are settings (`agents__defaults__language="zh"`). Nothing is started yet."""
    with model(script) as fake:
        made = World(home, fake)
        usual = {"providers__custom__base_url": fake.url, "agents__defaults__model": "custom/fake-1", "agents__defaults__api_retries": 0}
        made.configure(**{**usual, **changes})
        try:
            yield made
        finally:
            made.close()
