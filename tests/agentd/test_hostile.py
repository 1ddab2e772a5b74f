"""What a person, a model or a worm may leave in the files: it costs a line, a message or a session, and never the daemon."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from bubbles.paths import Home
from tests.agentd.test_chain import call
from tests.agentd.world import World, world


@pytest.mark.parametrize("name", ["MEMORY.md", "SOUL.md", "skills/x/SKILL.md"])
def test_a_directory_in_the_place_of_a_note(home: Home, name: str) -> None:
    spoil = call("exec", command=f"rm -rf ../{name}; mkdir -p ../{name}")
    with world(home, {"rules": [{"when": "go", "times": 1, "calls": [spoil]}]}) as w:
        w.start()
        assert w.say("go").outcome == "replied"
        assert w.say("again").outcome == "replied"
        before = _descriptors(w)
        w.kill("agentd")
        w.start("agentd")
        for n in range(5):
            assert w.say(f"and {n}").outcome == "replied"
        assert _descriptors(w) <= before + 1


def _descriptors(w: World) -> int:
    if os.geteuid() != 0:
        return 0  # a daemon lets nobody but root look into it
    return len(os.listdir(f"/proc/{w.running['agentd'].pid}/fd"))


@pytest.mark.parametrize("name", ["my note", "\u00e9", "-x", "a%b"])
def test_a_file_that_a_person_put_into_a_queue(home: Home, name: str) -> None:
    with world(home) as w:
        w.start()
        w.say("hello")
        new = home.inbound("cli") / "new"
        (new / f".{name}").write_text(json.dumps({"chat": "s", "text": "by hand"}) + "\n")
        (new / f".{name}").rename(new / f"{name}.json")
        w.ring()
        w.until(lambda: len(w.ends()) == 2)
        assert w.ends()[1]["messages"][0]["text"] == "by hand"
        assert list(new.iterdir()) == []


def test_one_odd_queue_stops_no_other(home: Home) -> None:
    odd = home.inbound("odd")
    odd.mkdir(parents=True)
    (odd / "new").write_text("not a directory")
    with world(home) as w:
        w.start()
        assert w.say("hello").outcome == "replied"


def test_a_session_that_is_moved_away_or_put_back_while_agentd_runs(home: Home, tmp_path: Path) -> None:
    with world(home) as w:
        w.start()
        w.say("one")
        shutil.copytree(home.session("s"), tmp_path / "copy")
        w.say("two")
        shutil.rmtree(home.session("s"))
        shutil.copytree(tmp_path / "copy", home.session("s"))
        assert w.say("three").outcome == "replied"
        w.kill("agentd")
        w.start("agentd")
        w.say("four")
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["one", "three", "four"]
        shutil.rmtree(home.session("s"))
        assert w.say("five").outcome == "replied"
        assert [m["text"] for end in w.ends() for m in end["messages"]] == ["five"]


LINES = [
    {"role": 5},
    {"role": "user"},
    {"role": "assistant", "content": None},
    {"role": "user", "content": "\ud83d"},
    {"role": "tool", "content": "no call"},
    {"meta": "turn", "end": True, "turn": "x", "messages": 7},
    {"meta": "turn", "end": True, "turn": "x", "messages": [7]},
    {"meta": "compaction", "summary": "x", "kept": "x"},
    {
        "meta": "turn",
        "turn": "x",
        "origin": "user",
        "outcome": "failed:bug",
        "notice": "sorry",
        "messages": [{"id": "one"}],
        "says": [],
        "at": "today",
    },
    {"meta": "turn", "turn": "x", "origin": "user", "outcome": "replied", "messages": [{"id": "one", "said": 7}], "says": 7, "at": 1.0},
    {"meta": "turn", "turn": "x", "origin": "user", "outcome": 7, "messages": [{"id": ["one"]}], "says": [7]},
    [],
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_a_wrong_shape_poisons_no_session(home: Home, line: object) -> None:
    with world(home) as w:
        w.start()
        w.say("one")
        w.kill("agentd")
        path = home.session("s") / "session.jsonl"
        end = {"meta": "turn", "turn": "t", "end": True, "messages": [], "outcome": "replied", "says": [], "at": 1.0}
        path.write_text(path.read_text() + json.dumps(line) + "\n" + json.dumps(end) + "\n")
        w.start("agentd")
        heard = w.say("two")
        assert heard.outcome == "replied"
        assert w.say("three").outcome == "replied"


def test_arguments_as_deep_as_no_parser_goes(home: Home) -> None:
    deep = {"name": "exec", "arguments": "[" * 50_000 + "]" * 50_000}
    with world(home, {"rules": [{"when": "go", "times": 1, "calls": [deep]}], "default": {"reply": "fine"}}) as w:
        w.start()
        assert w.say("go").text == "fine"
