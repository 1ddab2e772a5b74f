"""A home with all its daemons, the people who write to it, and a model that listens.

People come by three ways: `cli` (they put into the queue themselves), `cron` (jobs with words), and the names of platforms. It does
not know which daemon dies when: that is the tests'. Nor does it judge.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from bubbles import config, ids
from bubbles.bus.dial import Dial
from bubbles.errors import BubblesError
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.crash import doom
from tests.crash.nursery import Daemon, Nursery
from tests.fakes.start import FakeModel, FakePlatform, platform

_ROOT = Path(__file__).resolve().parents[2]
_WAIT_S = 60.0
TERMINAL = ("ann", "bob", "cat", "dan")
JOB = "job"
KEYED = {"plain": False, "keyed": True}  # the platforms: whether one shows a key once
_CHANNEL = ("--pace", "0.05", "--poll-s", "2", "--timeout-s", "2")  # times that nobody has to wait for


@dataclass(frozen=True)
class Word:
    """What somebody wrote: one word that nobody else ever writes, in a message of this id. `session`: whose history it will stand in."""

    word: str
    person: str
    way: str
    id: str
    session: str
    at: float


class Town:
    """One home. The daemons are started by `start`, and by nobody else."""

    def __init__(
        self, home: Home, model: FakeModel, platforms: dict[str, FakePlatform], *, fault: str = "", seed: int = 1, nursery: Nursery | None = None
    ) -> None:
        self.home = home
        self.model = model
        self.platforms = platforms
        self.people = {**dict.fromkeys(TERMINAL, "cli"), **{f"{name}{letter}": name for name in platforms for letter in "ab"}}
        self.nursery = nursery or Nursery()
        self._has_own_nursery = nursery is None
        self.orders = home.root / "crash"
        self.orders.mkdir()
        self.daemons: dict[str, Daemon] = {}
        self.words: list[Word] = []
        self.kills: list[dict[str, Any]] = []  # those from outside, like deaths that were ordered
        self.random = random.Random(seed)
        self._fault = fault
        self._writing, self._looking = threading.Lock(), threading.Lock()
        self.broken: list[BaseException] = []  # what went wrong in our own threads
        self.eager: tuple[str, str] | None = None  # who ("": anybody) wishes what more often now
        self._counts: dict[str, int] = {}
        self._queue = Queue(home.inbound("cli"))
        self._queue.prepare()
        self._histories: dict[str, _Tail] = {}
        self._dial = Dial(home, "agentd")

    # -- daemons -----------------------------------------------------------------------------------

    @property
    def programs(self) -> list[str]:
        return ["modeld", "agentd", "cron", *(f"channel-{name}" for name in self.platforms)]

    def start(self, *names: str) -> None:
        """Start what does not run; the names' default is all."""
        for name in names or self.programs:
            if name not in self.daemons or self.daemons[name].ended():
                program, _, which = name.partition("-")
                args = [which, "--url", self.platforms[which].url, *_CHANNEL, *["--keyed"] * KEYED[which]] if which else []
                env = {"CRASH_DIR": str(self.orders), "CRASH_FAULT": self._fault, "BUBBLES_HOME": str(self.home.root)}
                self.daemons[name] = self.nursery.start(program, *args, log=self.home.log / f"{name}.log", **env)

    def kill(self, name: str) -> bool:
        """SIGKILL from outside. False where it had ended."""
        if name in self.platforms:
            self.platforms[name].kill()
        elif not self.daemons[name].kill():
            return False
        self.kills.append({"name": name, "hop": "", "side": "", "at": time.time()})
        return True

    def order(self, name: str, hop: str, side: str, n: int = 1) -> None:
        doom.order(self.orders, name, hop, side, n)

    def revoke(self) -> None:
        """Nobody dies any more by an order."""
        for name in self.programs:
            doom.revoke(self.orders, name)

    # -- people ------------------------------------------------------------------------------------

    def write(self, person: str, directives: str = "", *, twice: bool = False) -> Word:
        """A person writes a word nobody wrote before. `twice`: whoever brings it there tries again under the same id."""
        way = self.people.get(person, "cron")
        with self._writing:
            self._counts[person] = self._counts.get(person, 0) + 1
            word = f"{person}-{self._counts[person]:04d}"
            text = f"please {word} {directives}".strip()
            id, session = {"cli": self._type, "cron": self._schedule}.get(way, self._post)(person, text, twice)
            written = Word(word, person, way, id, session, time.time())
            self.words.append(written)
        return written

    def stop(self, person: str) -> None:
        """Whatever runs for this person is to stop."""
        with self._writing:
            {"cli": self._type}.get(self.people[person], self._post)(person, "/stop", False)

    def _type(self, person: str, text: str, twice: bool) -> tuple[str, str]:
        id = ids.fresh("cli")
        sender = Sender("me", "Me", owner=True)
        body = to_dict(Inbound(id=id, at=time.time(), channel="cli", chat=person, text=text, sender=sender, session=person))
        for _ in range(1 + twice):
            self._queue.put(id, body)
            with contextlib.suppress(BubblesError, OSError):
                self._dial.ring()
            if twice:
                time.sleep(0.05)
        return id, person

    def _schedule(self, person: str, text: str, twice: bool) -> tuple[str, str]:
        """A job for one moment, from now on. The answer may be lost with cron: the question is asked again under its id."""
        request = ids.fresh("test")
        at = time.time() + 0.02
        body = {"message": text, "session": person, "schedule": {"kind": "at", "at": at}}
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                with Dial(self.home, "cron") as dial:
                    job = dial.call("job.add", body, id=request, timeout_s=5.0)[0]
                return f"cron-{job['id']}-{int(at)}", person
            except BubblesError:
                assert time.monotonic() < deadline, "cron takes no job"
                time.sleep(0.02)

    def _post(self, person: str, text: str, twice: bool) -> tuple[str, str]:
        way = self.people[person]
        return f"{way}-{self._posted(self.platforms[way], person, text)}", ids.session_key(way, person)

    def _posted(self, fake: FakePlatform, chat: str, text: str) -> int:
        """The number of the update. A platform that dies meanwhile is asked afterwards whether it has it: nobody else posts there."""
        said = -1
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                now = int(fake.state()["said"])
                if said >= 0 and now > said:
                    return now
                said = now
                return fake.say(text, chat=chat)
            except (OSError, HTTPException, ValueError):
                assert time.monotonic() < deadline, "the platform does not come back"
                time.sleep(0.02)

    # -- what can be seen --------------------------------------------------------------------------

    def ended(self) -> set[str]:
        """The ids of the messages whose turns stand in histories by now."""
        with self._looking:
            for session in {word.session for word in list(self.words)}:
                self._histories.setdefault(session, _Tail(self.home.session(session) / "session.jsonl")).look()
            return set().union(*(tail.ids for tail in self._histories.values()))

    def open(self) -> list[Word]:
        """The words whose turn has not ended."""
        ended = self.ended()
        return [word for word in list(self.words) if word.id not in ended]

    def seen(self) -> dict[str, Any]:
        """What the model was shown; see tests/crash/model.py."""
        return self.model.seen()

    def until(self, claim: Callable[[], Any], within_s: float = _WAIT_S) -> bool:
        """Wait for something to become true; whether it did."""
        deadline = time.monotonic() + within_s
        while not claim():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def is_quiet(self) -> bool:
        """Nothing waits anywhere."""
        waiting = (path for state in ("new", "cur") for path in self.home.root.glob(f"spool/*/*/{state}/*.json"))
        return not any(waiting) and all(path.stat().st_size == 0 for path in self.home.turns.glob("*.jsonl")) and not self.open()

    def settle(self, within_s: float = _WAIT_S) -> None:
        """Nobody is killed any more, everybody says a last word, and all comes to its end, or does not."""
        self.revoke()
        for fake in self.platforms.values():
            fake.faults()
        self._revive()
        self.until(self._calm, within_s)
        for person in self.people:
            self.write(person)
        self.until(self._calm, within_s)

    def _calm(self) -> bool:
        self._revive()
        return self.is_quiet()

    def _revive(self) -> None:
        self.start()

    def close(self) -> None:
        self._dial.close()
        for daemon in self.daemons.values():
            daemon.kill()
        if self._has_own_nursery:
            self.nursery.close()


class _Tail:
    """The ids in a history that grows: lines count once an `end` line closes them, for what follows it may be cut off again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.ids: set[str] = set()

    def look(self) -> None:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._at)
                data = file.read()
        except FileNotFoundError:
            return
        offset = self._at
        for line in data.splitlines(keepends=True):
            offset += len(line)
            if line.startswith(b'{"meta":"turn"') and line.endswith(b"\n"):
                self.ids |= {message["id"] for message in json.loads(line)["messages"]}
                self._at = offset


@contextlib.contextmanager
def model() -> Iterator[FakeModel]:
    """The model of tests/crash/model.py, in a process of its own."""
    argv = [sys.executable, "-m", "tests.crash.model"]
    with subprocess.Popen(argv, cwd=_ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield FakeModel(process.stdout.readline().strip())
        finally:
            process.kill()


@contextlib.contextmanager
def town(home: Home, *, platforms: Iterable[str] = KEYED, fault: str = "", seed: int = 1) -> Iterator[Town]:
    """A town whose daemons are not started yet, with these of the platforms."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(model())
        fakes = {name: stack.enter_context(platform(state=home.root / f"platform-{name}", keyed=KEYED[name])) for name in platforms}
        settings = {"providers.custom.base_url": listening.url, "agents.defaults.model": "custom/fake-1", "agents.defaults.api_retries": 0}
        config.save(home, settings)
        os.makedirs(home.log, exist_ok=True)
        made = Town(home, listening, fakes, fault=fault, seed=seed)
        try:
            yield made
        finally:
            made.close()
