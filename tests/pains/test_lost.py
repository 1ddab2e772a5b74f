"""Messages that others lose or double, through the whole chain: a platform, its channel, agentd, modeld, a model."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from bubbles.paths import Home
from tests.agentd.world import World, world
from tests.fakes.start import FakePlatform, platform

ECHO = {"default": {"reply": "to: ", "echo": True}}
HASTE = ("--pace", "0.02", "--poll-s", "1", "--timeout-s", "1")


@contextlib.contextmanager
def town(
    home: Home, script: dict[str, Any] | None = None, *options: str, keyed: bool = False, **changes: Any
) -> Iterator[tuple[World, FakePlatform]]:
    """A world beside a platform; the channel is called `town`. Nothing is started yet."""
    with platform(keyed=keyed) as outside, world(home, script or ECHO, **changes) as w:
        yield w, outside


def start(w: World, outside: FakePlatform, *options: str) -> None:
    w.start()
    w.channel("town", outside, *HASTE, *options)


def words(w: World, chat: str = "42") -> list[str]:
    """What a chat's session has heard."""
    return [m["text"] for end in w.ends(f"town-{chat}") for m in end["messages"]]


def shown(outside: FakePlatform, chat: str = "42") -> list[str]:
    return [one["text"] for one in outside.sent(chat)]


def test_what_was_said_while_all_was_down_is_answered(home: Home) -> None:
    with town(home) as (w, outside):
        for n in range(5):
            outside.say(f"word {n}", chat=str(n))
        start(w, outside)
        w.until(lambda: len(outside.sent()) == 5)
        assert sorted(one["chat"] for one in outside.sent()) == list("01234")
        assert all(words(w, str(n)) == [f"word {n}"] for n in range(5))


def test_an_update_that_comes_again_is_one_turn(home: Home) -> None:
    with town(home) as (w, outside):
        outside.faults(duplicate_updates=True)
        start(w, outside)
        outside.say("once")
        w.until(lambda: outside.sent())
        w.kill("channel-town")
        w.kill("agentd")
        w.start("agentd")
        w.channel("town", outside, *HASTE)
        outside.say("and more")
        w.until(lambda: len(words(w)) == 2)
        w.until(lambda: len(outside.sent()) == 2)
        assert words(w) == ["once", "and more"]
        assert w.fake.seen()["requests"] == 2


def test_an_answer_that_cannot_be_sent_for_long_arrives_once(home: Home) -> None:
    """As many refusals as ten minutes bring, at a fiftieth of the pace."""
    with town(home) as (w, outside):
        outside.faults(status={"code": 503, "times": 12})
        start(w, outside)
        outside.say("hello")
        w.until(lambda: outside.sent(), 60)
        outside.say("and now")
        w.until(lambda: len(outside.sent()) == 2)
        assert len(words(w)) == 2
        assert w.fake.seen()["requests"] == 2


def test_a_platform_with_keys_shows_what_it_had_stored_once(home: Home) -> None:
    with town(home, keyed=True) as (w, outside):
        outside.faults(store_then_silent=1)
        start(w, outside, "--keyed")
        outside.say("hello")
        w.until(lambda: list((home.outbound("town") / "done").glob("*.json")), 60)
        assert len(shown(outside)) == 1


def test_where_there_are_no_keys_the_doubt_is_in_the_receipt(home: Home) -> None:
    with town(home) as (w, outside):
        outside.faults(store_then_silent=1)
        start(w, outside)
        outside.say("hello")
        w.until(lambda: list((home.outbound("town") / "done").glob("*.json")), 60)
        (receipt,) = (home.outbound("town") / "receipts").glob("*.jsonl")
        assert any("uncertain" in json.loads(line) for line in receipt.read_text().splitlines())
        assert len(shown(outside)) <= 2


def test_of_several_quick_messages_the_model_sees_all(home: Home) -> None:
    with town(home, {"default": {"reply": "all of it", "delay_s": 0.2}}) as (w, outside):
        start(w, outside)
        for n in range(5):
            outside.say(f"word {n}")
        w.until(lambda: len(words(w)) == 5)
        seen = json.dumps(w.fake.seen()["bodies"][-1]["messages"])
        assert all(f"word {n}" in seen for n in range(5))
        assert words(w) == [f"word {n}" for n in range(5)]
        said = sum(len(end["says"]) for end in w.ends("town-42"))
        w.until(lambda: len(list((home.outbound("town") / "done").glob("*.json"))) == said)
        assert len(shown(outside)) == said


@pytest.mark.parametrize("name", ["agentd", "channel-town"])
def test_an_answer_goes_to_the_chat_that_asked_though_others_talk_and_a_program_dies(home: Home, name: str) -> None:
    with town(home, {"rules": [{"when": "slowly", "reply": "for A", "delay_s": 0.6}], "default": {"reply": "for B"}}) as (w, outside):
        start(w, outside)
        outside.say("slowly", chat="A")
        w.until(lambda: w.fake.seen()["open"])
        outside.say("hello", chat="B")
        w.kill(name)
        if name == "agentd":
            w.start("agentd")
        else:
            w.channel("town", outside, *HASTE)
        w.until(lambda: len(outside.sent()) == 2)
        assert shown(outside, "A") == ["for A"]
        assert shown(outside, "B") == ["for B"]
