"""Strangers, guests, owners and groups, end to end: a platform, the test channel, agentd, and the programs that a person types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from bubbles.channels.pairing import ALPHABET, LENGTH
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import world
from tests.channels.test_chain import ECHO, FAST, Chain
from tests.fakes.start import platform
from tests.logged import logged
from tests.programs.run import bubbles

STRICT = (*FAST, "--poll-s", "1", "--strict", "--group-policy", "mention")


@pytest.fixture
def chain(home: Home) -> Iterator[Chain]:
    with world(home, ECHO) as made, platform() as fake:
        chain = Chain(made, fake)
        chain.options = STRICT
        yield chain


def code(chain: Chain, chat: str) -> str:
    """The code that was told in a chat."""
    told = chain.world.until(lambda: chain.fake.sent(chat))[-1]["text"]
    return re.findall(rf"\b[{ALPHABET}]{{{LENGTH}}}\b", told)[0]


def taken(chain: Chain) -> list[dict[str, Any]]:
    """What was ever taken, in order."""
    found = [item.body for state in ("new", "cur", "done") for item in Queue(chain.inbound.path).list(state)]
    return sorted(found, key=lambda body: int(body["id"].rpartition("-")[2]))


def test_a_stranger_is_let_in_and_answered_the_first_as_the_owner_the_next_by_him(chain: Chain) -> None:
    chain.world.start()
    chain.run()
    ann, bo = {"id": "7", "name": "Ann"}, {"id": "8", "name": "小明"}
    chain.fake.say("who are you?", chat="a", sender=ann)
    done = bubbles("channels", "pair", code(chain, "a").lower())
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Ann (id 7) may speak on test from now on, as the owner")
    chain.fake.say("good morning", chat="a", sender=ann)
    chain.world.until(lambda: any("good morning" in one["text"] for one in chain.fake.sent("a")))
    chain.kill()
    chain.run()
    chain.fake.say("你好", chat="b", sender=bo)
    assert "配对码" in chain.world.until(lambda: chain.fake.sent("b"))[0]["text"]
    chain.fake.say("/pair NOTACODE", chat="a", sender=ann)
    chain.world.until(lambda: any("No channel that runs knows" in one["text"] for one in chain.fake.sent("a")))
    chain.fake.say(f"/pair {code(chain, 'b')}", chat="a", sender=ann)
    chain.world.until(lambda: any("Let in as a guest: 小明 (test, id 8)" in one["text"] for one in chain.fake.sent("a")))
    chain.fake.say("早上好", chat="b", sender=bo)
    chain.world.until(lambda: any("早上好" in one["text"] for one in chain.fake.sent("b")))
    chain.fake.say("/pair ABCDEFGH owner", chat="b", sender=bo)
    chain.world.until(lambda: any("主人" in one["text"] for one in chain.fake.sent("b")[3:]))
    people = [json.loads(line) for line in bubbles("channels", "people", "test", "--json").stdout.splitlines()]
    assert [(one["id"], one["owner"], one["by"]) for one in people] == [("7", True, "paired"), ("8", False, "paired")]
    assert bubbles("channels", "unpair", "test", "8").returncode == 0
    chain.fake.say("still here?", chat="b", sender=bo)
    chain.fake.say("bye", chat="a", sender=ann)
    chain.world.until(lambda: any("bye" in one["text"] for one in chain.fake.sent("a")))
    assert all("still here" not in one["text"] for one in chain.fake.sent())
    assert [body["text"] for body in taken(chain)][-1] == "bye"
    assert {body["sender"]["id"]: body["sender"]["owner"] for body in taken(chain)} == {"7": True, "8": False}


def test_with_the_daemon_down_a_code_is_good_all_the_same(chain: Chain) -> None:
    chain.run()
    chain.fake.say("hi", chat="a")
    given = code(chain, "a")
    chain.kill()
    assert bubbles("channels", "pair", "AAAAAAAA").returncode == 1
    done = bubbles("channels", "pair", given, "--guest")
    assert (done.returncode, "as a guest" in done.stdout) == (0, True)
    assert bubbles("channels", "pair", given).returncode == 1
    assert "Ann" in bubbles("channels", "people").stdout
    chain.run()
    chain.world.until(lambda: any("You can write to me" in one["text"] for one in chain.fake.sent("a")))
    assert bubbles("channels", "unpair", "test", "nobody").returncode == 1


def test_in_a_group_only_a_mention_by_somebody_known_wakes_it_and_the_rest_is_kept_where_wanted(chain: Chain) -> None:
    chain.world.start()
    chain.run(*STRICT, "--owner", "7", "--overhear")
    group: dict[str, Any] = {"chat": "g", "is_group": True}
    stranger, bot = {"id": "9", "name": "Cy"}, {"id": "10", "name": "Robot", "bot": True}
    chain.fake.say("nobody of yours is here", chat="h", is_group=True, mentioned=True, sender=stranger)
    chain.fake.say("lunch @all", **group)
    chain.fake.say("do as I say", mentioned=True, sender=stranger, **group)
    chain.fake.say("beep", mentioned=True, sender=bot, **group)
    chain.fake.say("correct that", mentioned=True, edit_of="m1", at=1000.0, **group)
    chain.fake.say("what do they want?", mentioned=True, **group)
    chain.until_sent(1)
    found = {body["text"]: (body["wakes"], body["sender"]["owner"]) for body in taken(chain)}
    kept = ["lunch @all", "do as I say", "beep", "correct that"]
    owners = [True, False, False, True]
    assert found == dict(zip(kept, zip([False] * 4, owners, strict=True), strict=True)) | {"what do they want?": (True, True)}
    assert [one["chat"] for one in chain.fake.sent()] == ["g"]
    assert len(chain.turns("g")) == 1


def test_everybody_is_said_aloud_and_a_list_that_cannot_be_read_is_78(chain: Chain) -> None:
    chain.run(*FAST)
    assert "everybody may speak to test" in logged(chain.home, "channel-test")
    chain.kill()
    file = chain.home.root / "channels" / "test" / "paired.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{")
    file.chmod(0o600)
    started = chain.world.channel("test", chain.fake, *FAST, ready=False)
    assert started.process.wait(30) == 78
    chain.world.running.pop("channel-test")
    assert file.read_text() == "{"
