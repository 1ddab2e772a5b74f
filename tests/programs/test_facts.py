"""`bubbles queue show` and `settle`: five facts, each from where it is known, and a person's word about a send that is uncertain."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bubbles.channels.receipts import Receipts
from bubbles.kernel.events import Heard, ModelAsked, Said, UserSpoke, header, to_line
from bubbles.messages import Address, Inbound, Outbound, to_dict
from bubbles.paths import Home
from bubbles.programs import facts, queue, traces
from bubbles.sessions.history import History
from bubbles.spool import Queue
from tests.agentd.world import world
from tests.fakes.start import platform
from tests.programs.conftest import Place, until
from tests.programs.run import BIN, bubbles


def shown(id: str) -> dict[str, Any]:
    done = bubbles("queue", "show", id)
    assert done.returncode == 0, done.stderr
    (line,) = [json.loads(line) for line in done.stdout.splitlines()]
    return line


def came_in(home: Home, id: str, state: str = "done", channel: str = "telegram", chat: str = "42", **more: Any) -> Queue:
    queue = Queue(home.inbound(channel))
    queue.put(id, to_dict(Inbound(id, 1.0, channel, chat, "hello", **more)), sync=False)
    if state in ("done", "cur"):
        queue.claim(id)
    if state == "done":
        queue.finish(id)
    return queue


def goes_out(home: Home, id: str, state: str = "held", chat: str = "42", channel: str = "telegram", turn: str = "telegram-1") -> Queue:
    queue = Queue(home.outbound(channel))
    queue.put(id, to_dict(Outbound(id, 1.0, channel, chat, "hi", session="telegram-42", turn=turn)), sync=False)
    if state != "new":
        queue.claim(id)
    if state == "held":
        queue.hold(id, "it is uncertain whether it was delivered")
    if state == "done":
        queue.finish(id)
    return queue


def closed(home: Home, session: str, *messages: str, turn: str = "telegram-1", says: int = 1, outcome: str = "replied", **more: Any) -> None:
    home.session(session).mkdir(parents=True, exist_ok=True)
    history = History(home.session(session) / "session.jsonl", session=session)
    end = {"turn": turn, "outcome": outcome, "messages": [{"id": id, "text": "hello"} for id in messages], "says": ["hi"] * says, "at": 9.0, **more}
    history.add_turn([b'{"role":"user","content":"hello"}'], end)
    history.close()


def journal(home: Home, *lines: bytes, session: str = "telegram-42") -> None:
    (home.turns / f"{session}.jsonl").write_bytes(b"".join(lines))


def spoke(id: str) -> bytes:
    return to_line(UserSpoke(id, "hello", address=Address("telegram", "42")), 5.0)


def test_of_a_message_that_waits_only_that_is_known(home: Home) -> None:
    queue = came_in(home, "telegram-1", "new")
    line = shown("telegram-1")
    assert line["accepted"] == {"at": next(queue.list("new")).at_ns / 1e9}
    assert [line[name] for name in facts.NAMES[1:]] == [None] * 4
    assert (line["state"], line["queue"], line["message"]["text"]) == ("new", "inbound/telegram", "hello")


def test_in_an_open_turn_it_is_shown_once_the_model_was_asked(home: Home) -> None:
    came_in(home, "telegram-1")
    journal(home, header("telegram-1", "telegram-42"), spoke("telegram-1"))
    assert shown("telegram-1")["shown"] is None
    journal(home, header("telegram-1", "telegram-42"), spoke("telegram-1"), to_line(ModelAsked("telegram-1.0"), 6.0), b'{"ev')
    line = shown("telegram-1")
    assert line["shown"] == {"turn": "telegram-1", "session": "telegram-42", "at": 6.0}
    assert line["answered"] is None


def test_words_that_came_after_the_question_are_not_shown_yet(home: Home) -> None:
    came_in(home, "telegram-2")
    asked = to_line(ModelAsked("telegram-1.0"), 6.0)
    journal(home, header("telegram-1", "telegram-42"), spoke("telegram-1"), asked, spoke("telegram-2"))
    assert shown("telegram-2")["shown"] is None
    journal(home, header("telegram-1", "telegram-42"), spoke("telegram-1"), asked, header("telegram-2", "telegram-42"), spoke("telegram-2"))
    assert shown("telegram-2")["shown"] is None


def test_of_one_that_was_answered_all_is_told(home: Home) -> None:
    came_in(home, "telegram-1")
    closed(home, "telegram-42", "telegram-1", "telegram-2", says=2)
    goes_out(home, "telegram-1.0.0", "done")
    goes_out(home, "telegram-1.0.1", "done", chat="43")
    queue = goes_out(home, "telegram-1.1.0", "held")
    receipts = Receipts(queue.path, now=lambda: 11.0)
    receipts.note("telegram-1.0.0", begun=0, key="k")
    receipts.note("telegram-1.0.0", delivered=0, id="900")
    receipts.note("telegram-1.1.0", begun=0, key="telegram-1.1.0.0")
    receipts.note("telegram-1.1.0", uncertain=0)
    line = shown("telegram-1")
    where = {"turn": "telegram-1", "session": "telegram-42"}
    assert line["shown"] == where
    assert line["answered"] == {**where, "outcome": "replied", "at": 9.0, "replies": ["telegram-1.0.0", "telegram-1.1.0"]}
    assert line["delivered"] == [{"message": "telegram-1.0.0", "part": 0, "id": "900", "at": 11.0}]
    assert line["uncertain"] == [{"message": "telegram-1.1.0", "part": 0, "key": "telegram-1.1.0.0", "at": 11.0}]
    out = shown("telegram-1.0.0")
    assert (out["answered"], out["shown"], out["delivered"]) == ({**where, "outcome": "replied", "at": 9.0}, None, line["delivered"])


def test_a_turn_that_failed_before_a_model_answered_has_shown_nothing_for_sure(home: Home) -> None:
    came_in(home, "telegram-1")
    closed(home, "telegram-42", "telegram-1", says=0, outcome="failed:model_down")
    line = shown("telegram-1")
    assert (line["shown"], line["answered"]["outcome"]) == (None, "failed:model_down")


def test_one_whose_chat_was_bound_elsewhere_is_found_and_then_one_that_is_in_no_queue(home: Home) -> None:
    came_in(home, "telegram-1")
    closed(home, "work", "telegram-1")
    closed(home, "play", "telegram-7")
    assert shown("telegram-1")["answered"]["session"] == "work"
    gone = shown("telegram-7")
    assert (gone["state"], gone["queue"], gone["accepted"], gone["answered"]["session"]) == ("gone", None, None, "play")
    assert bubbles("queue", "show", "telegram-8").returncode == 1


def test_the_session_that_a_message_tells_of_is_the_only_one_that_is_read(home: Home) -> None:
    closed(home, "telegram-42", "telegram-1")
    paths = traces.histories(home, traces.likely("telegram", {"chat": "42"}), everywhere=True)
    assert traces.in_histories(paths, "telegram-1")
    closed(home, "other", "telegram-9")
    assert home.session("other") / "session.jsonl" in paths, "which was not looked for"


@pytest.mark.parametrize(
    ("channel", "body", "key"),
    [
        ("telegram", {"chat": "42"}, "telegram-42"),
        ("cli", {"chat": "work", "session": ""}, "work"),
        ("cli", {"chat": "a", "session": "b"}, "b"),
        ("cron", {"chat": "j", "session": "daily"}, "daily"),
        ("cron", {"chat": "j"}, "cron-j"),
        ("cli", {}, "main"),
    ],
)
def test_where_a_message_is_likely_to_be(channel: str, body: dict[str, Any], key: str) -> None:
    assert traces.likely(channel, body)[0] == key


def test_a_job_that_stayed_silent_was_answered_all_the_same(home: Home) -> None:
    came_in(home, "cron-j-1", channel="cron", chat="j", session="daily")
    queue = Queue(home.outbound("cron"))
    queue.put("cron-j-1.outcome", to_dict(Outbound("cron-j-1.outcome", 4.0, "cron", "j", "silent", session="daily", turn="cron-j-1", origin="job")))
    answered = shown("cron-j-1")["answered"]
    assert answered == {"turn": "cron-j-1", "session": "daily", "outcome": "silent", "at": 4.0, "replies": []}


def test_overheard_words_are_shown_with_those_that_woke(home: Home) -> None:
    home.session("telegram-42").mkdir()
    history = History(home.session("telegram-42") / "session.jsonl", session="telegram-42")
    history.overhear("telegram-3", "psst", "[then]", 4.0, {"channel": "telegram", "chat": "42"})
    came_in(home, "telegram-3")
    assert shown("telegram-3")["shown"] is None
    journal(home, header("t", "telegram-42"), to_line(Heard("telegram-3", "psst"), 5.0), spoke("t"), to_line(ModelAsked("t.0"), 6.0))
    assert shown("telegram-3")["shown"]["at"] == 6.0
    journal(home)
    history.add_turn([b'{"role":"user","content":"x"}'], {"turn": "t", "outcome": "replied", "messages": [{"id": "t"}], "heard": ["telegram-3"]})
    assert shown("telegram-3")["shown"] == {"turn": "t", "session": "telegram-42"}
    assert shown("telegram-3")["answered"] is None


def test_a_reply_that_is_out_before_its_turn_noted_it_is_found(home: Home) -> None:
    came_in(home, "telegram-1")
    lines = [header("telegram-1", "telegram-42"), spoke("telegram-1"), to_line(ModelAsked("telegram-1.0"), 6.0), to_line(Said(0), 7.0)]
    journal(home, *lines)
    Receipts(goes_out(home, "telegram-1.1.0", "new").path).note("telegram-1.1.0", begun=0, key="k")
    assert [each["message"] for each in shown("telegram-1")["uncertain"]] == ["telegram-1.1.0"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff}\n", b"[1]\n"])
def test_what_cannot_be_read_is_shown_without_its_words(home: Home, content: bytes) -> None:
    queue = came_in(home, "telegram-1")
    (queue.path / "done" / "telegram-1.json").write_bytes(content)
    assert shown("telegram-1")["message"] == {}


LISTED: list[str] = []
sys.addaudithook(lambda event, args: LISTED.append(str(args[0])) if event in ("os.listdir", "os.scandir") and args else None)


def test_done_is_never_listed(home: Home) -> None:
    came_in(home, "telegram-1")
    closed(home, "elsewhere", "telegram-1")
    goes_out(home, "telegram-1.0.0", "done")
    LISTED.clear()
    for id in ("telegram-1", "telegram-1.0.0", "nowhere"):
        queue.main(["show", id])
    assert any(path.endswith("/sessions") for path in LISTED)
    assert [path for path in LISTED if path.endswith("/done")] == []


def test_on_a_terminal_it_is_told_for_a_person(home: Home) -> None:
    came_in(home, "telegram-1")
    closed(home, "telegram-42", "telegram-1")
    goes_out(home, "telegram-1.0.0", "done")
    Receipts(home.outbound("telegram")).note("telegram-1.0.0", delivered=0, id="9\x1b[2J00")
    ours, theirs = pty.openpty()
    with subprocess.Popen([BIN / "bubbles", "queue", "show", "telegram-1"], stdout=theirs, stdin=subprocess.DEVNULL) as process:
        assert process.wait(30) == 0
    os.close(theirs)
    text = b""
    while b"text" not in text or not text.endswith(b"\n"):
        text += os.read(ours, 4096)
    os.close(ours)
    lines = text.decode().replace("\r\n", "\n").splitlines()
    assert lines[0] == "telegram-1  inbound/telegram  done"
    assert [line.split()[0] for line in lines[1:]] == [*facts.NAMES, "text"]
    assert "replied, turn telegram-1 in telegram-42: telegram-1.0.0" in lines[3]
    assert "part 0 of telegram-1.0.0 as 900" in lines[4]
    assert lines[5].split() == ["uncertain", "-"]


# -- settle ----------------------------------------------------------------------------------------


def uncertain(home: Home, state: str = "held") -> Queue:
    queue = goes_out(home, "telegram-1.0.0", state)
    receipts = Receipts(queue.path)
    receipts.note("telegram-1.0.0", begun=0, key="k")
    receipts.note("telegram-1.0.0", uncertain=0)
    if state == "held":
        receipts.note("telegram-1.0.0", held="it is uncertain whether it was delivered")
    return queue


@pytest.mark.parametrize("how", ["delivered", "lost"])
@pytest.mark.parametrize("state", ["held", "new", "cur"])
def test_a_person_decides(home: Home, how: str, state: str) -> None:
    queue = uncertain(home, state)
    done = bubbles("queue", "settle", "telegram-1.0.0", how)
    after = "new" if state == "held" else state
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"id": "telegram-1.0.0", "queue": "outbound/telegram", "state": after, "settled": how}
    assert (queue.find("telegram-1.0.0"), Receipts(queue.path).of("telegram-1.0.0").settled) == (after, how)
    assert shown("telegram-1.0.0")["uncertain"] is None


def test_a_person_may_decide_otherwise_until_the_channel_has_acted(home: Home) -> None:
    queue = uncertain(home)
    assert bubbles("queue", "settle", "telegram-1.0.0", "lost").returncode == 0
    assert bubbles("queue", "settle", "telegram-1.0.0", "delivered").returncode == 0
    assert Receipts(queue.path).of("telegram-1.0.0").settled == "delivered"
    queue.claim("telegram-1.0.0")
    queue.finish("telegram-1.0.0")
    done = bubbles("queue", "settle", "telegram-1.0.0", "lost")
    assert (done.returncode, done.stdout) == (1, "")
    assert "telegram is done with it: it was settled as delivered" in done.stderr


@pytest.mark.parametrize(
    ("id", "said", "remedy"),
    [
        ("nowhere", "not found", "bubbles queue list outbound"),
        ("telegram-1", "it is in inbound/telegram, and only what goes out to a platform can be settled", "bubbles queue show telegram-1"),
        ("cron-1.outcome", "it is in outbound/cron", "bubbles queue show"),
        ("never.0.0", "nothing of it is uncertain: telegram has it surely not", "bubbles queue release outbound/telegram never.0.0, or"),
        ("refused.0.0", "nothing of it is uncertain", "bubbles queue drop outbound/telegram refused.0.0"),
        ("over.0.0", "telegram is done with it", "bubbles queue show over.0.0"),
    ],
)
def test_what_cannot_be_settled_is_told_with_what_can_be_done(home: Home, id: str, said: str, remedy: str) -> None:
    came_in(home, "telegram-1", "new")
    goes_out(home, "cron-1.outcome", "new", channel="cron")
    goes_out(home, "never.0.0")
    receipts = Receipts(goes_out(home, "refused.0.0").path)
    receipts.note("refused.0.0", begun=0, key="k")
    receipts.note("refused.0.0", refused=0, why="blocked", until=0)
    goes_out(home, "over.0.0", "done")
    done = bubbles("queue", "settle", id, "lost")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"bubbles: {id}: {said}")
    assert f"\n  try: {remedy}" in done.stderr or remedy in done.stderr.split("\n  try: ")[1]


def test_settle_wants_one_of_two_words(home: Home) -> None:
    assert bubbles("queue", "settle", "x", "maybe").returncode == 64
    assert bubbles("queue", "settle", "x").returncode == 64


def test_what_agentd_does_is_what_is_shown(place: Place) -> None:
    place.model.play({"default": {"reply": "here"}})
    assert place.run("ask", "first", "-s", "facts").returncode == 0
    queue = Queue(place.home.inbound("telegram"))
    queue.put("telegram-5", to_dict(Inbound("telegram-5", 1.0, "telegram", "42", "hello", message="m5")))
    place.run("queue", "list")  # rings nobody
    place.ask("turn.wait", message="telegram-5")
    line = json.loads(place.run("queue", "show", "telegram-5").stdout)
    until(lambda: queue.find("telegram-5") == "done")
    where = {"turn": "telegram-5", "session": "telegram-42"}
    assert line["shown"] == where
    assert (line["answered"]["outcome"], line["answered"]["replies"]) == ("replied", ["telegram-5.0.0"])
    assert line["delivered"] is line["uncertain"] is None
    out = json.loads(place.run("queue", "show", "telegram-5.0.0").stdout)
    assert (out["state"], out["message"]["reply_to"], out["answered"]["turn"]) == ("new", "m5", "telegram-5")


def test_a_file_that_stands_where_a_queue_should_be_is_no_message(home: Home, tmp_path: Path) -> None:
    home.inbound("telegram").parent.mkdir(parents=True)
    home.inbound("telegram").write_text("")
    assert facts.look(Queue(home.inbound("telegram")), "x") is None


@pytest.mark.parametrize(("how", "seen"), [("delivered", 1), ("lost", 2)])
def test_the_channel_does_as_the_person_said(home: Home, how: str, seen: int) -> None:
    with platform(store_then_cut=1) as there, world(home) as running:
        out = goes_out(home, "telegram-1.0.0", "new")
        running.channel("telegram", there, "--on-uncertain", "hold")
        until(lambda: out.find("telegram-1.0.0") == "held")
        assert shown("telegram-1.0.0")["uncertain"][0]["part"] == 0
        assert bubbles("queue", "settle", "telegram-1.0.0", how).returncode == 0
        until(lambda: out.find("telegram-1.0.0") == "done")
        assert [one["text"] for one in there.sent()] == ["hi"] * seen
        line = shown("telegram-1.0.0")
        assert (line["uncertain"], bool(line["delivered"])) == (None, how == "lost")
