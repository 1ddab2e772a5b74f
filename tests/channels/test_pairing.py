"""The people of a channel and the codes of those who ask: on disk, few, and never somebody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.channels.gate import Gate
from bubbles.channels.pairing import ALPHABET, LENGTH, PENDING_MOST, TOLD_MOST, VALID_S, Book, Person, channels, path, shown, spelled
from bubbles.channels.policy import Rules
from bubbles.errors import Misconfigured, TryAgain
from bubbles.messages import Inbound, Sender
from bubbles.paths import Home
from bubbles.spool import Queue


class Hall:
    """A channel's book and gate, in a time of their own; `again` is a new process."""

    def __init__(self, root: Path, rules: Rules = Rules()) -> None:  # noqa: B008
        self.home, self.now, self.rings, self.rules = Home(root), 1_000_000.0, 0, rules
        self.queue = Queue(self.home.outbound("test"))
        self.again()

    def again(self) -> None:
        self.book = Book(self.home, "test", lambda: self.now)
        self.gate = Gate("test", self.rules, self.book, self.queue, self._ring, lambda: self.now)

    def _ring(self) -> None:
        self.rings += 1

    def say(self, text: str = "hello", id: str = "9", name: str = "Bo", **more: object) -> Inbound | None:
        return self.gate.admit(Inbound(f"test-{text}", self.now, "test", f"c{id}", text, sender=Sender(id, name, owner=True), **more))  # type: ignore[arg-type]

    def sent(self) -> list[str]:
        return [str(item.body["text"]) for item in self.queue.list("new")] if self.queue.path.exists() else []

    def code(self, id: str = "9") -> str:
        return next(one.code for one in self.book.pending.values() if one.id == id)


@pytest.fixture
def hall(tmp_path: Path) -> Hall:
    return Hall(tmp_path)


def test_a_stranger_is_told_one_code_however_often_he_writes_and_over_a_restart(hall: Hall) -> None:
    assert hall.say("hello") is None
    code = hall.code()
    assert len(code) == LENGTH
    assert set(code) <= set(ALPHABET)
    hall.say("are you there?")
    hall.again()
    hall.say("hello")
    assert (hall.code(), len(hall.sent())) == (code, 1)
    assert code in hall.sent()[0]
    assert "chat" in next(hall.queue.list("new")).body
    hall.now += VALID_S
    hall.say("hello?")
    assert (hall.code() != code, len(hall.sent())) == (True, 2)


def test_he_is_told_in_the_language_that_he_wrote(hall: Hall) -> None:
    hall.say("你好", id="8")
    hall.say("hello", id="9")
    assert ["配对码" in text for text in hall.sent()] == [True, False]


def test_killed_before_he_was_told_he_is_told_when_it_comes_again(hall: Hall) -> None:
    assert hall.book.asked(Inbound("test-1", 0.0, "test", "c9", "hi", sender=Sender("9", "Bo")), False)
    hall.again()
    hall.say("hi")
    assert len(hall.sent()) == 1


def test_strangers_have_bounds_together(hall: Hall) -> None:
    for n in range(3 * TOLD_MOST):
        hall.say(id=f"s{n}")
        if len(hall.book.pending) == PENDING_MOST:
            assert hall.gate.let_in(next(iter(hall.book.pending)), False)
            hall.gate.let_in(next(iter(hall.book.pending)), False)
    codes = [text for text in hall.sent() if "code" in text]
    assert len(codes) == TOLD_MOST
    assert len(hall.book.pending) <= PENDING_MOST
    hall.now += VALID_S
    hall.say(id="late")
    assert hall.code("late")


def test_a_crowd_does_not_grow_the_list_of_those_who_wait(hall: Hall) -> None:
    for n in range(100):
        hall.say(id=f"s{n}")
    assert (len(hall.book.pending), len(hall.sent())) == (PENDING_MOST, PENDING_MOST)


def test_who_was_let_in_is_heard_as_what_he_is_and_is_told(hall: Hall) -> None:
    hall.say()
    assert hall.gate.let_in("NOTACODE", None) is None
    person = hall.gate.let_in(f" {hall.code().lower()[:4]}-{hall.code().lower()[4:]} ", None)
    assert person == Person("9", "Bo", True, hall.now)  # the first is the owner
    assert hall.book.pending == {}
    hall.again()
    heard = hall.say("again")
    assert heard is not None
    assert heard.sender.owner
    hall.say("hi", id="10")
    assert hall.gate.let_in(hall.code("10"), None) == Person("10", "Bo", False, hall.now)
    guest = hall.say("me too", id="10")
    assert guest is not None
    assert not guest.sender.owner  # though the platform's file said so
    assert len(hall.sent()) == 4


def test_a_code_is_good_once_and_for_an_hour(hall: Hall) -> None:
    hall.say()
    code = hall.code()
    hall.now += VALID_S
    assert hall.gate.let_in(code, True) is None
    hall.say("again")
    code = hall.code()
    assert hall.gate.let_in(code, False)
    assert hall.gate.let_in(code, True) is None
    assert not hall.book.people["9"].owner


def test_where_the_settings_name_an_owner_the_first_to_be_let_in_is_a_guest(tmp_path: Path) -> None:
    hall = Hall(tmp_path, Rules(owners=frozenset({"1"})))
    hall.say()
    person = hall.gate.let_in(hall.code(), None)
    assert person is not None
    assert not person.owner


def test_who_was_put_out_is_a_stranger_and_gets_no_second_code_at_once(hall: Hall) -> None:
    hall.say()
    hall.gate.let_in(hall.code(), None)
    assert hall.book.put_out("9")
    assert hall.book.put_out("9") is None
    hall.again()
    assert hall.say("again") is None
    assert hall.book.pending == {}


def test_overheard_words_wake_nothing_and_only_where_somebody_known_has_spoken(tmp_path: Path) -> None:
    hall = Hall(tmp_path, Rules(owners=frozenset({"1"}), overhear=True))
    assert hall.say("hi", is_group=True) is None
    own = hall.say("look", id="1", is_group=True)
    assert own is not None
    assert (own.wakes, own.sender.owner) == (False, True)
    hall.again()
    elsewhere = hall.say("hi", id="1", is_group=True)
    assert elsewhere is not None
    assert list(hall.book.groups) == ["c1"]
    stranger = hall.gate.admit(Inbound("test-9", hall.now, "test", "c1", "hi", is_group=True, mentioned=True, sender=Sender("9", owner=True)))
    assert stranger is not None
    assert (stranger.wakes, stranger.mentioned, stranger.sender.owner) == (False, False, False)


def test_the_file_is_its_owners_alone(hall: Hall) -> None:
    hall.say()
    file = path(hall.home, "test")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert channels(hall.home) == ["test"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"version": 2}',
        b'{"people": []}',
        b'{"people": {"9": {"name": "Bo", "owner": 1, "at": 1}}}',
        b'{"people": {"": {"name": "Bo", "owner": true, "at": 1}}}',
        b'{"people": {"9": {"owner": true, "at": 1}}}',
        b'{"pending": {"X": {}}}',
        b'{"told": {"9": true}}',
        b'{"groups": 7}',
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_left_as_it_is(hall: Hall, content: bytes) -> None:
    file = path(hall.home, "test")
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(Misconfigured) as caught:
        hall.again()
    assert str(file) in caught.value.text
    assert file.read_bytes() == content


@pytest.mark.parametrize("how", ["link", "mode", "directory"])
def test_a_file_that_others_could_have_written_lets_nobody_in(hall: Hall, how: str) -> None:
    file = path(hall.home, "test")
    file.parent.mkdir(parents=True)
    body = json.dumps({"version": 1, "people": {"9": {"name": "Bo", "owner": True, "at": 1}}})
    if how == "directory":
        file.mkdir()
    else:
        (file.parent / "other").write_text(body)
        (file.parent / "other").chmod(0o666 if how == "mode" else 0o600)
        file.symlink_to("other") if how == "link" else os.rename(file.parent / "other", file)
    with pytest.raises(Misconfigured):
        hall.again()


def test_where_the_disk_refuses_nobody_was_told_and_nobody_let_in(hall: Hall) -> None:
    hall.say()
    code, file = hall.code(), path(hall.home, "test")
    before = file.read_bytes()
    (file.parent / "paired.json.tmp").mkdir()  # what is written has no place
    with pytest.raises(TryAgain):
        hall.gate.let_in(code, True)
    with pytest.raises(TryAgain):
        hall.say("hi", id="10")
    assert (file.read_bytes(), hall.book.people, len(hall.sent())) == (before, {}, 1)


@settings(max_examples=30)
@given(st.text(), st.text(max_size=80), st.text(max_size=30), st.booleans())
def test_any_stranger_is_on_the_disk_as_he_is_told(tmp_path_factory: pytest.TempPathFactory, id: str, name: str, text: str, owner: bool) -> None:
    id, name = (text.encode("utf-8", "replace").decode() for text in (id, name))
    hall = Hall(tmp_path_factory.mktemp("hall"))
    hall.say(text, id=id, name=name)
    hall.again()
    if not id or len(id) > 200:
        assert hall.book.pending == {}
        return
    person = hall.gate.let_in(hall.code(id), owner)
    hall.again()
    assert list(hall.book.people.values()) == [person]


@given(st.text())
def test_a_name_is_one_line_that_steers_no_terminal(name: str) -> None:
    found = shown(name)
    assert len(found) <= 60
    assert found.isprintable()
    assert shown(found) == found


@given(st.text())
def test_a_code_is_read_out_of_anything(text: str) -> None:
    assert set(spelled(text)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
