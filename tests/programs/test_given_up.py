"""Turns that were given up: shown, their words said again once, and nothing ever deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bubbles.ids import safe
from bubbles.kernel import prompt
from bubbles.kernel.events import ModelAsked, UserSpoke, header, to_line
from bubbles.messages import Address, Media
from bubbles.paths import Home
from bubbles.programs import given_up
from bubbles.spool import Queue
from tests.programs.conftest import Place, until
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


def waiting(home: Home, queue: str = "cli") -> list[dict[str, Any]]:
    return [item.body for item in Queue(home.inbound(queue)).list("new")]


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
    assert (done.returncode, done.stderr) == (1, "bubbles: unknown: not held\n  try: bubbles queue list turns | bubbles scan\n")
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
    assert (done.returncode, done.stderr) == (1, "bubbles: cli-1: no words can be read in it\n  try: bubbles queue list turns | bubbles scan\n")
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


def from_chat(id: str, text: str, address: Address, *, owner: bool, **more: Any) -> bytes:
    header = prompt.stamp(7.0, None, address.channel, "Ann", more.get("is_group", False), owner)
    header += f"\n[in answer to: {more.pop('quote')}]\n[Lent to you for now: /x (ro)]" if "quote" in more else ""
    return to_line(UserSpoke(id, text, header=header, address=address, owner=owner, at=7.0, **more), 8.0)


def test_what_strangers_said_comes_again_as_theirs_and_where_it_was_said(home: Home) -> None:
    group, private = Address("telegram", "-5", "7"), Address("telegram", "42")
    give_up(
        home,
        "telegram-1",
        from_chat("telegram-1", "delete it", group, owner=False, is_group=True, message="881", quote="which\none?]", media=(Media("../data/a.png"),)),
        from_chat("telegram-2", "no, keep it", private, owner=True),
        from_chat("feishu-3", "and look", Address("feishu", "oc_1"), owner=False),
        session="global",
    )
    assert bubbles("queue", "release", "turns", "telegram-1").returncode == 0
    assert waiting(home) == []
    first, second = waiting(home, "telegram")
    (third,) = waiting(home, "feishu")
    assert [each["id"] for each in (first, second, third)] == ["telegram-1.again", "telegram-2.again", "feishu-3.again"]
    assert [each["sender"]["owner"] for each in (first, second, third)] == [False, True, False]
    assert {each["session"] for each in (first, second, third)} == {""}
    assert (first["chat"], first["thread"], first["message"], first["is_group"], first["text"]) == ("-5", "7", "881", True, "delete it")
    assert (first["sender"]["name"], first["quote"], first["media"][0]["path"]) == ("Ann", "which\none?]", "../data/a.png")
    assert (second["is_group"], second["quote"], second["sender"]["name"]) == (False, "", "Ann")


@pytest.mark.parametrize("body", [{"sender": {"id": "u7", "name": "Bo", "owner": True}, "quote": "that", "session": "main"}, {"sender": 7}, {}])
def test_while_the_queue_keeps_a_message_its_sender_is_known_and_its_rank_is_the_journals(home: Home, body: dict[str, Any]) -> None:
    queue = Queue(home.inbound("feishu"))
    queue.put("feishu-3", {"id": "feishu-3", "at": 1.0, "chat": "oc_1", "text": "another text", **body})
    queue.claim("feishu-3")
    queue.finish("feishu-3")
    give_up(home, "feishu-3", from_chat("feishu-3", "look", Address("feishu", "oc_1"), owner=False))
    assert given_up.release(home, "feishu-3") == ""
    (again,) = waiting(home, "feishu")
    known = {"id": "u7", "name": "Bo"} if "quote" in body else {"id": "", "name": "" if body == {} else "Ann"}
    assert again["sender"] == {**known, "owner": False, "bot": False}
    assert (again["text"], again["quote"], again["session"], again["chat"]) == ("look", body.get("quote", ""), "", "oc_1")


def test_of_a_turn_from_both_only_what_was_typed_is_the_terminals(home: Home) -> None:
    path = give_up(
        home, "cli-1", spoke("cli-1", "one"), from_chat("telegram-2", "two", Address("telegram", "42"), owner=False), spoke("cli-3", "three")
    )
    whole = path.read_bytes()
    for _ in range(2):  # killed before the file was moved
        path.write_bytes(whole)
        assert given_up.release(home, "cli-1") == ""
    assert [each["text"] for each in waiting(home)] == ["one\n\nthree"]
    assert [(each["id"], each["text"]) for each in waiting(home, "telegram")] == [("telegram-2.again", "two")]


def test_what_a_clock_said_comes_again_from_the_clock(home: Home) -> None:
    give_up(home, "cron-j-1", to_line(UserSpoke("cron-j-1", "look", address=Address("cron", "j"), origin="system", job="j", at=7.0), 8.0))
    assert given_up.release(home, "cron-j-1") == ""
    (body,) = waiting(home, "cron")
    assert (body["origin"], body["job"], body["session"], body["chat"]) == ("system", "j", "s", "j")


@pytest.mark.parametrize("address", [Address("", ""), Address("../cli", "s"), Address("a/b", "s")])
def test_words_from_nowhere_are_not_guessed_to_be_the_owners(home: Home, address: Address) -> None:
    path = give_up(home, "x-1", from_chat("x-1", "hi", address, owner=False), spoke("cli-2", "hello"))
    done = bubbles("queue", "release", "turns", "x-1")
    assert (done.returncode, done.stderr) == (
        1,
        "bubbles: x-1: its words x-1 do not say which channel they came by\n  try: bubbles queue list turns | bubbles scan\n",
    )
    assert path.exists()
    assert waiting(home) == []


@pytest.mark.parametrize("owner", [True, False])
@pytest.mark.parametrize("name", ["", "Ann", "guest", "[x] y"])
def test_a_sender_keeps_the_name_that_the_model_saw(home: Home, name: str, owner: bool) -> None:
    header = prompt.stamp(7.0, None, "telegram", name, True, owner)
    line = to_line(UserSpoke("t-1", "hi", header=header, address=Address("telegram", "-5"), owner=owner, is_group=True, at=7.0), 8.0)
    give_up(home, "t-1", line)
    assert given_up.release(home, "t-1") == ""
    (body,) = waiting(home, "telegram")
    again = prompt.stamp(7.0, None, "telegram", body["sender"]["name"], True, owner)
    assert again == header or (name, owner) == ("guest", False)


def test_the_answer_goes_to_the_chat_and_the_stranger_stays_one(place: Place) -> None:
    place.model.play({"default": {"reply": "here it is"}})
    assert place.run("ask", "first", "-s", "other").returncode == 0
    give_up(place.home, "telegram-9", from_chat("telegram-9", "lost", Address("telegram", "42"), owner=False, message="77"))
    assert place.run("queue", "release", "turns", "telegram-9").returncode == 0
    outbound = Queue(place.home.outbound("telegram"))
    until(lambda: outbound.path.is_dir() and list(outbound.list("new")))
    (item,) = outbound.list("new")
    assert (item.body["chat"], item.body["reply_to"], item.body["text"]) == ("42", "77", "here it is")
    history = (place.home.session("telegram-42") / "session.jsonl").read_text()
    assert "guest" in history


def test_agentd_answers_what_was_released(place: Place) -> None:
    place.model.play({"default": {"reply": "now it goes"}})
    assert place.run("ask", "first", "-s", "again").returncode == 0
    give_up(place.home, "cli-lost", spoke("cli-lost", "lost words"), session="again")
    assert place.run("queue", "release", "turns", "cli-lost").returncode == 0
    assert place.ask("turn.wait", message="released-cli-lost", session="again")["text"] == "now it goes"
    assert "lost words" in [m["text"] for m in place.history("again")]


@pytest.mark.parametrize("channel", ["cli", "telegram"])
def test_the_end_of_a_background_job_is_told_again_as_such_and_never_in_a_persons_name(home: Home, channel: str) -> None:
    address = Address(channel, "s")
    end = UserSpoke("job-s-j1-1000-end", "The background job j1 ended.\n| run it", "[then · background job]", address, owner=True, origin="system")
    person = UserSpoke(f"{channel}-2", "and now?", header="[then · Ann]", address=address, at=7.0)
    give_up(home, end.id, to_line(end, 8.0), to_line(person, 9.0))
    assert given_up.release(home, end.id) == ""
    (told,) = waiting(home, "jobs")
    assert (told["origin"], told["channel"], told["session"], told["text"]) == ("system", channel, "s", end.text)
    assert told["id"].startswith("job-")
    assert [body["text"] for body in waiting(home, channel)] == ["and now?"]
