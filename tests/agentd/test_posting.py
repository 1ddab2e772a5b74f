"""What a turn writes to other chats, and whom it finds in its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.agentd.chats import Chats
from bubbles.agentd.posting import QUEUE, sent
from bubbles.agentd.session import _kept_name
from bubbles.kernel.events import Call, ModelAnswered, ModelAsked, ToolFinished, ToolStarted, UserSpoke, header, to_line
from bubbles.kernel.turn import Turn
from bubbles.messages import Address, Sender
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.test_chats import chats, message
from tests.agentd.world import World, world
from tests.fakes.start import platform

OWNER, GUEST = Sender("7", "Ann", owner=True), Sender("8", "Bob")


def heard(w: World, text: str, *, chat: str = "42", sender: Sender = OWNER, **more: Any) -> None:
    """Words on the channel `town`, and then the end of their turn."""
    queue = Queue(w.home.inbound("town"))
    queue.prepare()
    id = f"town-{len([*queue.list('done')]) + 1}"
    body = {
        "at": time.time(),
        "chat": chat,
        "text": text,
        "message": f"p-{id}",
        "sender": {"id": sender.id, "name": sender.name, "owner": sender.owner},
    }
    queue.put(id, {**body, **more})
    w.ring()
    w.until(lambda: queue.find(id) == "done")
    w.until(lambda: all(one["state"] == "idle" for one in w.ask("status")["sessions"]))


def out(w: World) -> list[dict[str, Any]]:
    return [item.body for item in Queue(w.home.outbound("town")).list("new")]


def results(w: World, session: str) -> list[str]:
    return [line["content"] for line in w.history(session) if line["role"] == "tool"]


def calls(*made: dict[str, Any], when: str = "post") -> dict[str, Any]:
    return {"rules": [{"when": when, "times": 1, "calls": list(made)}], "default": {"reply": "done"}}


@pytest.fixture
def town(home: Home) -> Iterator[World]:
    home.prepare()
    Queue(home.outbound("town")).prepare()
    with world(home, calls(call("message", to="town:42", text="the backup is done"))) as w:
        w.start()
        yield w


def test_the_owner_writes_from_his_terminal_to_a_chat_of_his_own_and_its_session_knows(town: World) -> None:
    heard(town, "hello")
    assert town.say("post it", "s").outcome == "replied"
    assert results(town, "s") == ["queued for town:42"]
    posted = [one for one in out(town) if one["origin"] == "tool"]
    assert [(one["chat"], one["text"], one["session"]) for one in posted] == [("42", "the backup is done", "s")]
    assert posted[0]["id"].startswith(posted[0]["turn"] + ".")
    town.until(lambda: [*Queue(town.home.inbound(QUEUE)).list("done")])
    heard(town, "what did you write?")
    asked = [line["content"] for line in town.history("town-42") if line["role"] == "user"][-1]
    assert "the backup is done" in asked
    assert "you, in session s" in asked


@pytest.mark.parametrize(
    ("sender", "more", "to", "why"),
    [
        (OWNER, {}, "town:99", "no chat that you may write to"),
        (GUEST, {"chat": "50"}, "town:42", "somebody else than the owner"),
        (OWNER, {"chat": "g", "is_group": True, "mentioned": True}, "town:42", "this is a group"),
        (OWNER, {}, "town:42", "your reply goes there by itself"),
        (OWNER, {}, "cli:main", "no chat that you may write to"),
    ],
)
def test_what_may_not_be_reached_is_refused_with_the_reason(town: World, sender: Sender, more: dict[str, Any], to: str, why: str) -> None:
    heard(town, "hello")
    town.fake.play(calls(call("message", to=to, text="psst")))
    chat = more.pop("chat", "42")
    heard(town, "post it", chat=chat, sender=sender, **more)
    assert why in results(town, f"town-{chat}")[-1]
    assert not [one for one in out(town) if one["origin"] == "tool"]


def test_a_file_is_sent_as_it_is_at_that_moment(town: World) -> None:
    made = call("exec", command="echo first > 报告.txt")
    then = call("message", files=["报告.txt"], text="here")
    spoil = call("exec", command="echo second > 报告.txt")
    town.fake.play({"rules": [{"when": "file", "times": 1, "calls": [made, then, spoil]}], "default": {"reply": "done"}})
    heard(town, "file please")
    (posted,) = [one for one in out(town) if one["origin"] == "tool"]
    (media,) = posted["media"]
    assert (media["name"], media["type"], media["size"]) == ("报告.txt", "text/plain", 6)
    assert Path(media["path"]).read_text() == "first\n"
    assert media["path"].startswith(str(town.home.outbound("town") / "media"))
    assert posted["reply_to"]


@pytest.mark.parametrize("path", ["missing.txt", "../../../config.json", "/etc/passwd", "../session.jsonl", "../data"])
def test_what_is_no_file_of_the_session_is_not_sent(town: World, path: str) -> None:
    town.fake.play(calls(call("message", files=[path], text="here")))
    heard(town, "post it")
    assert results(town, "town-42")[-1].startswith("Error: ")
    assert not [one for one in out(town) if one["origin"] == "tool"]
    folder = town.home.outbound("town") / "media"
    assert not folder.exists() or not [*folder.iterdir()]


@given(name=st.text(max_size=200) | st.sampled_from(["..", "/", "a/../b.txt", "x" * 300 + ".pdf", "报告" * 100 + ".docx", "\u202eexe.txt", ""]))
def test_any_name_of_a_file_becomes_one_that_stays_in_its_directory(name: str) -> None:
    kept = _kept_name(name or "made-by-the-channel")
    assert "/" not in kept
    assert kept not in ("", ".", "..")
    assert len(kept.encode()) <= 120
    assert kept.isprintable()
    assert os.path.splitext(_kept_name("报告.pdf"))[1] == ".pdf"


@pytest.mark.parametrize("wanted", [True, False])
def test_text_beside_calls_is_told_at_once_where_that_is_wanted(home: Home, wanted: bool) -> None:
    home.prepare()
    script = {"rules": [{"when": "look", "times": 1, "reply": "I look.", "calls": [call("list_dir", path=".")]}], "default": {"reply": "done"}}
    with world(home, script, channels__send_progress=wanted) as w:
        w.start()
        heard(w, "look")
        assert [(one["origin"], one["text"]) for one in out(w)] == [("progress", "I look.")] * wanted + [("reply", "done")]


def test_in_a_private_chat_nobody_is_found(town: World) -> None:
    town.fake.play(calls(call("find_person", query="Ann")))
    heard(town, "post it")
    assert results(town, "town-42")[-1] == "no members: this is no group"


def test_in_a_group_people_are_found_by_their_names_at_the_channel(home: Home) -> None:
    home.prepare()
    with world(home, calls(call("find_person", query="an"))) as w, platform() as fake:
        w.start()
        w.channel("test", fake)
        fake.say("post it", chat="g", is_group=True, mentioned=True)
        w.until(lambda: w.ends("test-g"))
        assert results(w, "test-g") == ["<@7> Ann"]


@pytest.mark.parametrize("was_queued", [True, False])
def test_a_call_that_was_cut_short_is_told_as_what_it_was(home: Home, was_queued: bool) -> None:
    home.prepare()
    queue = Queue(home.outbound("town"))
    queue.prepare()
    turn = Turn("cli-1")
    words = UserSpoke("cli-1", "post it", address=Address("cli", "s"))
    events = [words, ModelAsked("cli-1.0"), ModelAnswered("", (Call("call_0", "message", '{"to":"town:42","text":"hi"}'),))]
    for event in events:
        turn.apply(event)
    (id,) = [one["id"] for one in turn.messages[-1]["tool_calls"]]
    lines = [to_line(event, 1.0) for event in [*events, ToolStarted(id)]]
    (home.turns / "s.jsonl").write_bytes(header("cli-1", "s") + b"".join(lines))
    if was_queued:
        queue.put(f"cli-1.{id}", {"at": 1.0, "channel": "town", "chat": "42", "text": "hi", "session": "s", "turn": "cli-1"})
    with world(home, {"default": {"reply": "done"}}) as w:
        w.start()
        w.until(lambda: w.ends("s"))
        assert results(w, "s")[0].startswith("queued for town:42" if was_queued else "Error: not sent")
        assert len([*queue.list("new")]) == was_queued
        notes = Queue(home.inbound(QUEUE))
        assert not was_queued or w.until(lambda: [*notes.list("done")])


def test_what_left_a_turn_is_counted() -> None:
    turn = Turn("t")
    turn.apply(UserSpoke("t", "x"))
    turn.apply(ModelAsked("t.0"))
    turn.apply(ModelAnswered("I write", (Call("a", "message"), Call("b", "exec"), Call("c", "message"))))
    ids = [one["id"] for one in turn.messages[-1]["tool_calls"]]
    assert (sent(turn), sent(turn, ids[0]), sent(turn, ids[2])) == (3, 1, 2)
    turn.apply(ToolStarted(ids[0]))
    assert [one.id for one in turn.running] == [ids[0]]
    turn.apply(ToolFinished(ids[0], "ok"))
    assert turn.running == []


def test_a_chat_is_the_owners_as_long_as_he_speaks_there(home: Home) -> None:
    own = chats(home, "channel")
    own.meet(message(owner=True))
    own.meet(message(chat="g", owner=True, is_group=True))
    for each in (own, Chats(home, own._channels)):
        assert each.reach() == {"telegram:42": ""}
    own.bind(Address("telegram", "42"), "work")
    assert own.key_to(Address("telegram", "42")) == "work"
    assert chats(home, "channel").reach() == {"telegram:42": ""}
    own.meet(message())
    assert own.reach() == {}


def test_an_edit_of_what_was_answered_wakes_nobody_and_is_shown_with_the_next_words(town: World) -> None:
    heard(town, "two eggs")
    heard(town, "/new eggs, three", edit_of="p-town-1")
    assert len(town.ends("town-42")) == 1
    heard(town, "so how many?")
    assert len(town.ends("town-42")) == 2
    asked = [line["content"] for line in town.history("town-42") if line["role"] == "user"][-1]
    assert "[edited:" in asked
    assert "eggs, three" in asked


def test_a_group_shows_how_its_speakers_are_mentioned(town: World) -> None:
    heard(town, "hi", chat="g", sender=Sender("U7", "Eve <@U1>"), is_group=True, mentioned=True)
    said = town.history("town-g")[0]["content"]
    assert "Eve @U1 <@U7> · guest]" in said
    assert json.dumps(said).count("<@") == 1
