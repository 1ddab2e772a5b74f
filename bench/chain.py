"""A whole chain to be measured: agentd and modeld with the settings a newcomer has, the cheap model behind them, and whoever speaks with them.

Two can speak: a channel, whose inbound put is synced and which takes its replies out of a queue, as one for a platform does; and a terminal, which
asks for the end of its turn at agentd's door. Both are this process, so their CPU is counted with the daemons'.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import reading

from bubbles import config, ids, starter
from bubbles.bus import wire
from bubbles.bus.dial import Dial, connect
from bubbles.bus.listener import FEED, subscriptions
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue

ROOT = Path(__file__).resolve().parents[1]
BUBBLES = ROOT / "bin" / "bubbles"
CHANNEL = "bench"
_PATIENCE_S = 5.0  # after it, an event of the feed counts as missed, and the queue is looked into


@contextlib.contextmanager
def model(delay_ms: float = 0) -> Iterator[str]:
    """The cheap model; its base URL."""
    argv = [sys.executable, str(ROOT / "bench" / "model.py"), "--delay-ms", str(delay_ms)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdin
        assert process.stdout
        yield process.stdout.readline().strip()
        process.stdin.close()


def model_ms(url: str) -> float:
    """What the model has spent on an answer, on average."""
    told = model_said(url)
    return float(told["spent_s"]) * 1000 / max(1, told["count"])


def model_said(url: str) -> dict[str, Any]:
    """`spent_s` on answers, their `count`, the bytes of the `longest` request."""
    with urllib.request.urlopen(f"{url}/_said") as response:
        found: dict[str, Any] = json.load(response)
    return found


@dataclass
class Spent:
    """Of one stretch: wall ms, CPU ms by process, children's CPU ms, turns."""

    turns: int
    wall_ms: float
    cpu_ms: dict[str, float]
    children_ms: float

    @property
    def cpu(self) -> float:
        return sum(self.cpu_ms.values()) / self.turns

    @property
    def wall(self) -> float:
        return self.wall_ms / self.turns

    def told(self) -> str:
        """`CPU 2.10 ms (agentd 1.2 + modeld 0.5 + client 0.4)`"""
        parts = " + ".join(f"{name} {ms / self.turns:.2f}" for name, ms in self.cpu_ms.items())
        return f"CPU {self.cpu:.2f} ms ({parts})" + (f"; children {self.children_ms / self.turns:.1f}" if self.children_ms else "")


@dataclass
class Chain:
    """One home and its daemons."""

    home: Home
    running: dict[str, starter.Started] = field(default_factory=dict)

    def configure(self, url: str, settings: dict[str, Any] | None = None) -> None:
        self.home.prepare()
        config.save(self.home, {"providers.custom.base_url": url, "agents.defaults.model": "custom/bench", **(settings or {})})

    def start(self, *names: str) -> None:
        for name in names or ("modeld", "agentd"):
            self.running[name] = starter.start(self.home, name)

    def pids(self) -> dict[str, int]:
        return {name: started.pid for name, started in self.running.items()}

    def close(self) -> None:
        for started in self.running.values():
            os.kill(started.pid, signal.SIGTERM)
            started.process.wait()

    @contextlib.contextmanager
    def counted(self, turns: int) -> Iterator[list[Spent]]:
        """Count what a block of so many turns costs; the one Spent is in the list afterwards."""
        pids = {name: pid for name, pid in self.pids().items() if name in ("agentd", "modeld")} | {"client": os.getpid()}
        before = {name: reading.cpu_ms(pid) for name, pid in pids.items()}
        children, found = reading.children_ms(pids["agentd"]), []
        wall = time.perf_counter()
        yield found
        wall = (time.perf_counter() - wall) * 1000
        cpu = {name: reading.cpu_ms(pid) - before[name] for name, pid in pids.items()}
        found.append(Spent(turns, wall, cpu, reading.children_ms(pids["agentd"]) - children))


@contextlib.contextmanager
def chain(path: Path, url: str, *names: str, settings: dict[str, Any] | None = None) -> Iterator[Chain]:
    """A chain below `path` whose model is at `url`."""
    made = Chain(Home(path / "home"))
    made.configure(url, settings)
    try:
        made.start(*names)
        yield made
    finally:
        made.close()


class Terminal:
    """Speaks as `bubbles agent` does: an unsynced put, then one question that rings and waits for the turn's end."""

    def __init__(self, home: Home) -> None:
        self._queue = Queue(home.inbound("cli"))
        self._queue.prepare()
        self._dial = Dial(home, "agentd")

    def say(self, text: str, session: str) -> str:
        """One turn; the reply."""
        inbound = _inbound(text, session, "cli", session=session)
        self._queue.put(inbound.id, to_dict(inbound), sync=False)
        body, _ = self._dial.call("turn.wait", {"message": inbound.id, "session": session, "stream": False}, timeout_s=60)
        assert body["outcome"] == "replied", body
        return str(body["text"])


class Channel:
    """Speaks as a channel does: put, synced, then ring; the feed rings for a reply, which is claimed and finished."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._in, self._out = Queue(home.inbound(CHANNEL)), Queue(home.outbound(CHANNEL))
        self._in.prepare()
        self._out.prepare()
        self._dial = Dial(home, "agentd")
        self._plug, self._reader = connect(home.door(FEED).removeprefix("ipc://"), FEED, 5, socket_type="SUB")
        self._plug.sendall(subscriptions([f"out/{CHANNEL}"]))
        self._seen: set[str] = set()
        time.sleep(0.2)  # the subscription arrives

    def put(self, text: str, chat: str) -> None:
        inbound = _inbound(text, chat, CHANNEL)
        self._in.put(inbound.id, to_dict(inbound))
        self._dial.ring()

    def replies(self) -> Iterator[tuple[str, str]]:
        """(chat, text) of the replies as they come, for ever; each is finished when the next is asked for."""
        while True:
            for id in self._rung():
                try:
                    item = self._out.claim(id)
                except FileNotFoundError:
                    continue
                self._out.finish(id)
                yield str(item.body["chat"]), str(item.body["text"])

    def turns(self, chats: list[str], each: int, text: str = "hi") -> list[float]:
        """`each` turns in every one of `chats`, all chats at once, one turn after another in a chat; the wall ms of each turn."""
        left = dict.fromkeys(chats, each)
        began: dict[str, float] = {}
        took: list[float] = []
        for chat in chats:
            began[chat] = time.perf_counter()
            self.put(text, chat)
        replies = self.replies()
        while left:
            chat, _ = next(replies)
            now = time.perf_counter()
            took.append((now - began[chat]) * 1000)
            left[chat] -= 1
            if left[chat]:
                began[chat] = now
                self.put(text, chat)
            else:
                del left[chat]
        return took

    def _rung(self) -> list[str]:
        if not select.select([self._plug], [], [], _PATIENCE_S)[0]:
            return self._out.due(time.time())
        return [str(wire.decode(frames[1:])[0]["id"]) for frames in self._reader.feed(self._plug.recv(1 << 18))]


def _inbound(text: str, chat: str, channel: str, *, session: str = "") -> Inbound:
    id = ids.fresh(channel)
    return Inbound(id=id, at=time.time(), channel=channel, chat=chat, text=text, sender=Sender("1", "Ann", owner=True), message="7", session=session)


def alone(argv: list[str | Path], home: Home | None = None, *, env: dict[str, str] | None = None) -> tuple[float, float]:
    """(wall, CPU) ms of a whole process and the children it waits for. CPU is what wait4 says of it."""
    variables = {**os.environ, **({"BUBBLES_HOME": str(home.root)} if home else {}), **(env or {})}
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=variables, cwd="/")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, argv
    return (time.perf_counter() - began) * 1000, (used.ru_utime + used.ru_stime) * 1000


def passing() -> tuple[float, float]:
    """(wall, CPU) ms of `python -c pass` in the same environment."""
    return alone([sys.executable, "-c", "pass"])
