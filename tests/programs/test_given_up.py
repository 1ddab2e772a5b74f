"""Turns that were given up: shown, their words said again once, and nothing ever deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbles.ids import safe
from bubbles.kernel.events import ModelAsked, UserSpoke, header, to_line
from bubbles.messages import Address, Media
from bubbles.paths import Home
from bubbles.programs import given_up
from bubbles.spool import Queue
from tests.programs.conftest import Place
from tests.programs.run import bubbles


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def spoke(id: str, text: str, **more: Any) -> bytes:
    return to_line(UserSpoke(id, text, header="[then]", address=Address("cli", "s"), at=7.0, **more), 8.0)


def give_up(home: Home, id: str, *lines: bytes, session: str = "s") -> Path:
    path = home.turns / "held" / f"{safe(id)}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(header(id, session) + b"".join(lines))
    return path


def waiting(home: Home) -> list[dict[str, Any]]:
    return [item.body for item in Queue(home.inbound("cli")).list("new")]


def test_they_are_listed_with_their_first_words(home: Home) -> None:
    give_up(
        home, "cli-1", spoke("cli-1", "x" * 500), to_line(ModelAsked("cli-1.0"), 9.0), b'{"event":"FromTheFuture"}\n', spoke("cli-2", "y"), b'{"ev'
    )
    (line,) = objects(bubbles("queue", "list", "turns").stdout)
    assert line == {"id": "cli-1", "queue": "turns", "state": "held", "session": "s", "at": 7.0, "text": "x" * 200}
    assert objects(bubbles("queue", "list").stdout) == [line]
    assert objects(bubbles("queue", "list", "--state", "held").stdout) == [line]
    assert bubbles("queue", "list", "inbound").stdout == bubbles("queue", "list", "--state", "cur", "turns").stdout == ""
    assert objects(bubbles("queue", "show", "cli-1").stdout)[0]["text"] == f"{'x' * 500}\n\ny"
    assert "1970-01-01  turns" in bubbles("scan", stdin=json.dumps(line)).stdout


def test_released_its_words_are_one_new_message_and_its_file_is_kept(home: Home) -> None:
    path = give_up(
        home,
        "cli-1",
        spoke("cli-1", "look", media=(Media("../data/a.png"),)),
        spoke("cli-2", "", media=(Media("../data/b.png"),)),
        spoke("cli-3", "at it"),
    )
    whole = path.read_bytes()
    done = bubbles("queue", "release", "turns", stdin='{"id":"cli-1"}\nunknown\n')
    assert (done.returncode, done.stderr) == (1, "bubbles: unknown: not held\n")
    assert objects(done.stdout) == [{"id": "cli-1", "queue": "turns", "state": "released"}]
    (body,) = waiting(home)
    assert (body["text"], body["session"], body["chat"], body["channel"]) == ("look\n\nat it", "s", "s", "cli")
    assert [each["path"] for each in body["media"]] == ["../data/a.png", "../data/b.png"]
    assert body["id"] not in ("cli-1", "cli-2", "cli-3")
    assert not path.exists()
    assert (home.turns / "released" / path.name).read_bytes() == whole
    assert objects(bubbles("queue", "list", "--state", "done", "turns").stdout)[0]["state"] == "done"
    assert bubbles("queue", "release", "turns", "cli-1").returncode == 1
    assert len(waiting(home)) == 1


def test_killed_before_the_file_was_moved_it_is_said_once(home: Home) -> None:
    path = give_up(home, "cli-1", spoke("cli-1", "look"))
    whole = path.read_bytes()
    assert given_up.release(home, "cli-1") == ""
    path.write_bytes(whole)
    assert given_up.release(home, "cli-1") == ""
    assert len(waiting(home)) == 1
    assert len(list((home.turns / "released").iterdir())) == 2


def test_dropped_it_is_kept_and_not_said(home: Home) -> None:
    path = give_up(home, "a/b", spoke("a/b", "look"))
    done = bubbles("queue", "drop", "turns", "a/b")
    assert objects(done.stdout) == [{"id": "a/b", "queue": "turns", "state": "dropped"}]
    assert [each.name for each in (home.turns / "released").iterdir()] == [path.name]
    assert not waiting(home)


@pytest.mark.parametrize("lines", [(), (b"\xff\n",), (to_line(ModelAsked("t.0"), 9.0),)])
def test_one_without_words_is_not_released_and_stays(home: Home, lines: tuple[bytes, ...]) -> None:
    path = give_up(home, "cli-1", *lines)
    done = bubbles("queue", "release", "turns", "cli-1")
    assert (done.returncode, done.stderr) == (1, "bubbles: cli-1: no words can be read in it\n")
    assert path.exists()


@pytest.mark.parametrize("data", [b"", b"\x00", b"{}\n", header("cli-1", "s").replace(b'"version":1', b'"version":99')])
def test_one_that_cannot_be_read_is_shown_with_why_and_can_be_dropped(home: Home, data: bytes) -> None:
    path = give_up(home, "cli-1")
    path.write_bytes(data)
    (line,) = objects(bubbles("queue", "list", "turns").stdout)
    assert (line["id"], line["session"]) == ("cli-1", "")
    assert line["why"]
    assert bubbles("queue", "release", "turns", "cli-1").returncode == 1
    assert path.exists()
    assert bubbles("queue", "drop", "turns", "cli-1").returncode == 0
    assert (home.turns / "released" / path.name).read_bytes() == data


def test_agentd_answers_what_was_released(place: Place) -> None:
    place.model.play({"default": {"reply": "now it goes"}})
    assert place.run("ask", "first", "-s", "again").returncode == 0
    give_up(place.home, "cli-lost", spoke("cli-lost", "lost words"), session="again")
    assert place.run("queue", "release", "turns", "cli-lost").returncode == 0
    assert place.ask("turn.wait", message="released-cli-lost", session="again")["text"] == "now it goes"
    assert "lost words" in [m["text"] for m in place.history("again")]
