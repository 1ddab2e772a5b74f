"""The fake platform itself: its faults do what they say, and what it knows outlives it."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.start import FakePlatform, platform

GONE = (http.client.RemoteDisconnected, ConnectionError, TimeoutError)


@pytest.fixture
def fake() -> Iterator[FakePlatform]:
    with platform() as made:
        yield made


def asked(fake: FakePlatform, path: str, *, patience_s: float = 5.0, **body: Any) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=patience_s)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def polled(fake: FakePlatform, offset: int, timeout_s: float = 0.0) -> list[str]:
    return [update["text"] for update in asked(fake, "/poll", offset=offset, timeout_s=timeout_s)[1]["updates"]]


def test_what_is_confirmed_is_not_given_again(fake: FakePlatform) -> None:
    assert [fake.say(text) for text in ("one", "two", "三")] == [1, 2, 3]
    assert polled(fake, 0) == polled(fake, 1) == ["one", "two", "三"]
    assert polled(fake, 3) == polled(fake, 0) == ["三"]
    assert (polled(fake, 4), polled(fake, 0), polled(fake, 99)) == ([], [], [])
    fake.say("four")
    assert polled(fake, 0) == ["four"]


def test_an_update_says_who_wrote_what_where(fake: FakePlatform) -> None:
    fake.say("hi @all", chat="g", is_group=True, sender={"name": "Bo", "bot": True}, edit_of="m0", at=7.5)
    _, found = asked(fake, "/poll", offset=0)
    told = {"id": 1, "chat": "g", "sender": {"id": "7", "name": "Bo", "bot": True}, "text": "hi @all", "is_group": True, "mentioned": False}
    assert found["updates"] == [{**told, "message": "m1", "edit_of": "m0", "at": 7.5, "all": True}]
    assert asked(fake, "/members", chat="g", query="b") == (200, {"members": [{"id": "7", "name": "Bo"}]})


def test_a_poll_waits_no_longer_than_for_the_first_update(fake: FakePlatform) -> None:
    connection = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=20)
    connection.request("POST", "/poll", json.dumps({"offset": 0, "timeout_s": 15}))
    fake.say("hi")
    assert json.loads(connection.getresponse().read())["updates"][0]["text"] == "hi"
    connection.close()


def test_what_is_sent_is_seen_and_a_key_counts_only_where_it_is_keyed(fake: FakePlatform) -> None:
    for _ in range(2):
        assert asked(fake, "/send", chat="1", text="x", key="k")[0] == 200
    fake.faults(keyed=True)
    assert asked(fake, "/send", chat="1", text="x", key="k") == (200, {"id": "1"})
    assert asked(fake, "/send", chat="2", text="x", key="k") == (200, {"id": "3"})
    assert [(one["chat"], one["id"], one["key"]) for one in fake.sent()] == [("1", "1", "k"), ("1", "2", "k"), ("2", "3", "k")]


@pytest.mark.parametrize(("fault", "stored"), [("drop_send", 0), ("store_then_cut", 1), ("store_then_silent", 1)])
def test_a_connection_that_ends_says_nothing(fake: FakePlatform, fault: str, stored: int) -> None:
    fake.faults(**{fault: 1})
    with pytest.raises(GONE):
        asked(fake, "/send", chat="1", text="x", patience_s=0.3)
    assert len(fake.sent()) == stored
    assert asked(fake, "/send", chat="1", text="x")[0] == 200


def test_a_chance_is_as_often_as_it_says(fake: FakePlatform) -> None:
    fake.faults(drop_send=0.5, seed=3)
    cut = 0
    for _ in range(60):
        try:
            asked(fake, "/send", chat="1", text="x")
        except GONE:
            cut += 1
    assert 15 < cut < 45
    assert len(fake.sent()) == 60 - cut


def test_statuses_are_answered_as_often_and_where_they_say(fake: FakePlatform) -> None:
    fake.faults(status=[{"code": 429, "retry_after": 3, "times": 1}, {"code": 403, "chat": "b"}, {"code": 401, "path": "/me"}])
    assert asked(fake, "/send", chat="a", text="x") == (429, {"error": "Too Many Requests", "retry_after": 3})
    assert [asked(fake, "/send", chat=chat, text="x")[0] for chat in "abb"] == [200, 403, 403]
    assert (asked(fake, "/me")[0], asked(fake, "/poll", offset=0)[0], len(fake.sent())) == (401, 200, 1)


def test_duplicates_come_twice_with_what_was_confirmed_before(fake: FakePlatform) -> None:
    fake.say("one")
    polled(fake, 2)
    fake.say("two")
    fake.faults(duplicate_updates=1)
    assert polled(fake, 2) == ["one", "two", "two"]
    assert polled(fake, 2) == ["two"]


def test_silence_swallows_what_is_sent_and_what_is_on_its_way(fake: FakePlatform) -> None:
    waiting = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=0.5)
    waiting.request("POST", "/poll", json.dumps({"offset": 0, "timeout_s": 30}))
    while fake.state()["polls"] == 0:
        time.sleep(0.01)
    fake.faults(silent=True)
    with pytest.raises(GONE):
        asked(fake, "/send", chat="1", text="x", patience_s=0.2)
    fake.faults()
    fake.say("hi")
    with pytest.raises(GONE):
        waiting.getresponse()
    waiting.close()
    assert (fake.sent(), polled(fake, 0)) == ([], ["hi"])


def test_a_deaf_platform_takes_what_is_sent(fake: FakePlatform) -> None:
    fake.faults(deaf=True)
    with pytest.raises(GONE):
        asked(fake, "/poll", offset=0, patience_s=0.2)
    assert asked(fake, "/send", chat="1", text="x")[0] == 200


def test_one_that_is_down_refuses_and_is_back_at_the_same_place(fake: FakePlatform) -> None:
    fake.faults(down=True)
    with pytest.raises(ConnectionRefusedError):
        asked(fake, "/me")
    fake.say("meanwhile")
    fake.faults()
    assert polled(fake, 0) == ["meanwhile"]


def test_what_is_no_request_is_refused(fake: FakePlatform) -> None:
    assert [asked(fake, path, **body)[0] for path, body in (("/send", {"chat": "1"}), ("/poll", {"offset": "x"}), ("/fly", {}))] == [400, 400, 404]


def test_killed_it_comes_back_with_all_it_knew(tmp_path: Path) -> None:
    with platform(state=tmp_path / "state", keyed=True) as fake:
        for text in ("one", "two"):
            fake.say(text)
        polled(fake, 2)
        asked(fake, "/send", chat="1", text="x", key="k")
        before = fake.url
        fake.kill()
        with open(tmp_path / "state", "ab") as state:
            state.write(b'{"sent": {"cha')  # as it would be where it was killed in mid-line
        fake.start()
        assert (fake.url, polled(fake, 0)) == (before, ["two"])
        assert asked(fake, "/send", chat="1", text="x", key="k") == (200, {"id": "1"})
        fake.restart()
        assert len(fake.sent()) == 1
