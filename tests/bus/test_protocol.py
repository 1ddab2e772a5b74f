"""PROTOCOL.md against the code: its examples, its limits, its errors, the operations of running daemons and what they answer."""

from __future__ import annotations

import contextlib
import doctest
import json
import os
import re
import signal
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from bubbles import bus, errors, starter
from bubbles.bus import bound, caller, door, is_running, wire
from bubbles.bus.dial import Dial
from bubbles.bus.listener import Listener
from bubbles.errors import BubblesError, TryAgain
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.fakes.start import model as fake_model

PAGE = Path(bus.__file__).with_name("PROTOCOL.md")
DOORS = ("agentd", "modeld", "cron")
EPOCH = 4_000_000_000  # a job that is not due while this test runs

SCRIPT = {
    "rules": [
        {"when": "fail once", "times": 1, "status": 429, "headers": {"Retry-After": "0"}},
        {"when": "stumble", "times": 1, "status": 429, "headers": {"Retry-After": "0"}},
        {"when": "look", "times": 1, "reply": "let me see", "calls": [{"name": "list_dir", "arguments": {"path": "."}}]},
    ],
    "default": {"reply": "done"},
}


@cache
def page() -> str:
    return PAGE.read_text()


def section(title: str, level: int = 2) -> str:
    """What stands under the heading that begins with `title`, up to the next of its level."""
    marks = "#" * level
    found = re.search(rf"^{marks} (?:\d\. )?{re.escape(title)}.*?\n(.*?)(?=^#{{2,{level}}} |\Z)", page(), re.M | re.S)
    assert found, title
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all table rows in `text`, heads left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {n for n, line in enumerate(lines[1:]) if set(line) <= set("|- ")}
    return [[cell.strip() for cell in line.strip("|").split("|")] for n, line in enumerate(lines) if n not in heads and n - 1 not in heads]


def operations(door_name: str) -> dict[str, dict[str, set[str]]]:
    """Of each operation of a door: the fields by where they stand; `X` for one that must be there, `X?` for one that may be missing."""
    found: dict[str, dict[str, set[str]]] = {}
    for op, text in re.findall(r"^#### `([\w.]+)`\n(.*?)(?=^#### |\Z)", section(door_name, 3), re.M | re.S):
        fields: dict[str, set[str]] = {"body": set(), "part": set(), "reply": set(), "blob": set()}
        for where, name, *_ in rows(text):
            fields[where].add(name.strip("*`") + ("?" if name.startswith("*") else ""))
        found[op] = fields
    return found


def test_the_examples_are_true(home, monkeypatch):
    with contextlib.ExitStack() as stack:
        stack.callback(monkeypatch.setenv, "XDG_RUNTIME_DIR", os.environ["XDG_RUNTIME_DIR"])
        found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted > 10
    assert found.failed == 0


def test_the_version_and_the_limits_are_the_codes():
    assert f"**Version {wire.VERSION.decode()}.**" in page()
    limits = {row[0]: row[1] for row in rows(section("Limits"))}
    assert limits == {
        "head": f"{wire.HEAD_MOST >> 20} MiB",
        "head of a part or reply before it is sent as a large one": f"{wire.LARGE >> 10} KiB",
        "blobs of a message, together": f"{wire.BLOBS_MOST >> 20} MiB",
        "blobs of a message, count": str(wire.BLOBS_COUNT),
        "`id`": f"{wire.ID_MOST} characters",
    }


def test_the_times_are_the_codes():
    times = section("Time and loss")
    for text in (f"sent for {door.ALIVE_S:g} s", f"came for {caller.SILENCE_S:g} s", f"a daemon after {caller.PATIENCE_S:g} s"):
        assert text in times
    assert f"{bound.WAITING:,}".replace(",", " ") + " messages" in times


def test_the_errors_are_the_codes():
    table = [row for row in rows(section("Errors")) if len(row) == 3 and row[1] in ("yes", "no")]
    told = {row[0].strip("`"): (row[1] == "yes", tuple(re.findall(r"`(\w+)`", row[2]))) for row in table}
    assert told == {kind: (cls.temporary, cls.details) for kind, cls in errors._tree(BubblesError).items()}


def test_an_error_of_one_rooms_own_is_told_as_what_it_is_one_of():
    class Fuller(TryAgain):
        def __init__(self, disk: str) -> None:
            super().__init__(f"{disk} is full", remedy="delete something")

    back = errors.from_wire(errors.to_wire(Fuller("/srv")))
    assert (type(back), back.text, back.remedy) == (TryAgain, "/srv is full", "delete something")


class Answers:
    """What the doors of a running home answered: replies and parts, by door and operation."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.replies: dict[tuple[str, str], list[dict]] = {}
        self.parts: dict[tuple[str, str], list[dict]] = {}

    def ask(self, name: str, op: str, body: dict | None = None, blobs: tuple[bytes, ...] = ()) -> dict:
        with Dial(self.home, name) as dial:
            parts = self.parts.setdefault((name, op), [])
            reply, _ = dial.call(op, body or {}, blobs, on_part=parts.append)
        self.replies.setdefault((name, op), []).append(reply)
        return reply

    def speak(self, id: str, text: str) -> dict:
        queue = Queue(self.home.inbound("cli"))
        queue.prepare()
        message = Inbound(id=id, at=time.time(), channel="cli", chat="s", text=text, sender=Sender("owner", owner=True), session="s")
        queue.put(id, to_dict(message))
        return self.ask("agentd", "turn.wait", {"message": id, "session": "s", "stream": True})


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Every operation, asked at least once of real daemons and a scripted model."""
    root = tmp_path_factory.mktemp("protocol")
    with pytest.MonkeyPatch.context() as patch, fake_model(SCRIPT) as fake:
        (root / "run").mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(root / "run"))
        patch.setenv("BUBBLES_HOME", str(root / "home"))
        home = Home.find()
        home.prepare()
        home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": {"model": "fake"}}, "providers": {"custom": {"base_url": fake.url}}}))
        home.config.chmod(0o600)
        try:
            with starter.client(home):
                starter.ensure(home, DOORS, until_idle=5)
                found = Answers(home)
                ask_everything(found)
                yield found
        finally:
            for name in DOORS:
                if pid := is_running(home, name):
                    os.kill(pid, signal.SIGTERM)


def ask_everything(it: Answers) -> None:
    for name in DOORS:
        it.ask(name, "ping")
    it.ask("agentd", "session.show", {"session": "s"})
    for n, text in enumerate(("hello", "fail once", "look")):
        it.speak(f"cli-{n}", text)
    for op in ("status", "turn.stop", "session.show", "session.prompt", "session.compact", "session.history"):
        it.ask("agentd", op, {"session": "s"})
    it.ask("agentd", "session.set", {"session": "s", "key": "temperature", "value": 0.5})
    line = b'{"role":"user","content":"stumble"}'
    for ask in ("t.0", "t.0", "t.1"):
        it.ask("modeld", "model.ask", {"ask": ask, "base": "b", "keep": 0, "tools": "", "stream": True}, (line, b""))
    for op in ("model.keep", "model.cancel"):
        it.ask("modeld", op, {"ask": "t.0"})
    for op in ("model.list", "model.route", "status"):
        it.ask("modeld", op)
    job = {"name": "a job", "message": "look", "schedule": {"kind": "at", "at": EPOCH}, "session": "s", "deliver": ""}
    id = it.ask("cron", "job.add", job)["id"]
    asked = (("job.list", {}), ("job.enable", {"id": id, "enabled": False}), ("job.run", {"id": id, "force": True}), ("job.remove", {"id": id}))
    for op, body in asked:
        it.ask("cron", op, body)
    it.ask("cron", "status")


@pytest.mark.parametrize("name", DOORS)
def test_the_operations_are_those_of_the_running_daemon(answers, name):
    assert sorted(answers.replies[name, "ping"][0]["ops"]) == sorted({**operations("every door"), **operations(name)})


@pytest.mark.parametrize("name", DOORS)
def test_every_operation_was_asked(answers, name):
    assert {op for door_name, op in answers.replies if door_name == name} == {"ping", *operations(name)}


def named(value: dict, fields: set[str]) -> set[str]:
    """The documented paths of an object: a field that the page describes as a whole is not looked into."""
    found: set[str] = set()
    for key, inner in value.items():
        below = {field for field in fields if field.startswith((f"{key}.", f"{key}[]."))}
        if key in fields or not below:
            found.add(key)
        elif isinstance(inner, dict):
            found |= {f"{key}.{path}" for path in named(inner, {f.removeprefix(f"{key}.") for f in below})}
        else:
            for item in inner:
                found |= {f"{key}[].{path}" for path in named(item, {f.removeprefix(f"{key}[].") for f in below})}
    return found


@pytest.mark.parametrize("where", ["reply", "part"])
@pytest.mark.parametrize("name", DOORS)
def test_what_is_answered_is_what_the_tables_say(answers, name, where):
    said = answers.replies if where == "reply" else answers.parts
    for op, tables in {**operations("every door"), **operations(name)}.items():
        must = {field for field in tables[where] if not field.endswith("?")}
        may = {field.rstrip("?") for field in tables[where]}
        for body in said.get((name, op), []):
            assert named(body, may) <= may, op
            if where == "reply":
                lists_are_empty = {field for field in must if "[]." in field and not body.get(field.split("[]")[0])}
                assert must - lists_are_empty <= named(body, may), op


def test_the_parts_that_the_tables_tell_of_come(answers):
    told = {field.rstrip("?") for field in operations("agentd")["turn.wait"]["part"]}
    came = {path for part in answers.parts["agentd", "turn.wait"] for path in named(part, told)}
    assert {"text", "text_end", "tool.name", "tool.state", "tool.ok", "retry.category", "say.text", "say.n"} <= came
    came = {path for part in answers.parts["modeld", "model.ask"] for path in part}
    assert came == {"text", "retry"}


def test_events_of_the_feed_are_parts_of_the_wait(answers):
    events = iter(Listener(answers.home, "cli/s/"))
    seen: list[tuple[str, dict]] = []

    def hear() -> None:
        for event in events:
            seen.append(event)
            if event[0] == "cli/s/turn":
                return

    thread = threading.Thread(target=hear, daemon=True)
    thread.start()
    for n in range(100):
        if seen:
            break
        answers.speak(f"cli-feed-{n}", "hello")
    thread.join(30)
    parts = {field.rstrip("?").split(".")[0] for field in operations("agentd")["turn.wait"]["part"]}
    assert seen
    for topic, body in seen:
        kind = topic.removeprefix("cli/s/")
        assert kind in {*parts, "state"}
        assert body["kind"] == kind
        assert set(body) == {"turn", "kind", "thread", "message", kind}
