"""Real processes: a platform with faults, the test channel, agentd, modeld, and a model that repeats what it hears."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bubbles.bus.dial import Dial
from bubbles.channels.receipts import Receipts
from bubbles.errors import Unavailable
from bubbles.messages import Outbound, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import World, world
from tests.fakes.start import FakePlatform, platform
from tests.logged import logged

ECHO = {"default": {"reply": "heard ", "echo": True}}
FAST = ("--pace", "0.02", "--timeout-s", "2")


class Chain:
    """A world with a platform; `run` starts the channel."""

    def __init__(self, world: World, fake: FakePlatform) -> None:
        self.world, self.fake = world, fake
        self.home = world.home
        self.out = Queue(self.home.outbound("test"))
        self.inbound = Queue(self.home.inbound("test"))
        self.options: tuple[str, ...] = FAST

    def run(self, *options: str) -> None:
        self.options = options or self.options
        self.world.channel("test", self.fake, *self.options)

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.world.kill("channel-test", number)

    def put(self, id: str, text: str = "hello", chat: str = "42") -> None:
        self.out.put(id, to_dict(Outbound(id=id, at=time.time(), channel="test", chat=chat, text=text)))
        with contextlib.suppress(Unavailable), Dial(self.home, "channel-test") as dial:
            dial.ring()

    def until_sent(self, count: int, timeout_s: float = 20.0) -> list[str]:
        self.world.until(lambda: len(self.fake.sent()) >= count, timeout_s)
        return [one["text"] for one in self.fake.sent()]

    def until_noted(self, count: int) -> None:
        """Until that many were sent, and the channel has heard so: killed between the two, it would rightly be in doubt."""
        self.until_sent(count)
        self.world.until(lambda: not [*self.out.list("new"), *self.out.list("cur")])

    def until_state(self, id: str, state: str) -> None:
        self.world.until(lambda: self.out.find(id) == state)

    def turns(self, chat: str = "42") -> list[dict[str, Any]]:
        return self.world.ends(f"test-{chat}")

    def receipts(self) -> Receipts:
        return Receipts(self.out.path)


@pytest.fixture
def chain(home: Home) -> Iterator[Chain]:
    with world(home, ECHO) as made, platform() as fake:
        yield Chain(made, fake)


@pytest.fixture
def keyed(home: Home) -> Iterator[Chain]:
    with world(home, ECHO) as made, platform(keyed=True) as fake:
        chain = Chain(made, fake)
        chain.options = (*FAST, "--keyed")
        yield chain


def test_what_was_said_while_the_channel_was_down_is_answered_each_in_its_chat(chain: Chain) -> None:
    chain.world.start()
    for n in range(5):
        chain.fake.say(f"word {n}", chat=f"c{n}")
    chain.run()
    replies = chain.until_sent(5)
    assert [sum(f"word {n}" in reply for reply in replies) for n in range(5)] == [1] * 5
    assert [len(chain.turns(f"c{n}")) for n in range(5)] == [1] * 5
    assert chain.fake.state()["pending"] == 0
    assert {one["chat"]: one["reply_to"] for one in chain.fake.sent()} == {f"c{n}": f"m{n + 1}" for n in range(5)}


def test_updates_that_come_twice_are_one_turn_before_and_after_a_restart(chain: Chain) -> None:
    chain.world.start()
    chain.fake.faults(duplicate_updates=True)
    chain.run()
    chain.fake.say("你好")
    chain.until_noted(1)
    chain.kill()
    chain.run()  # begins at offset 0 and gets again what was confirmed
    chain.fake.say("bye")
    chain.until_sent(2)
    chain.world.until(lambda: len(chain.turns()) == 2)
    assert [one["text"].count("heard") for one in chain.fake.sent()] == [1, 1]


def test_killed_at_any_moment_nothing_is_lost_or_said_twice(keyed: Chain) -> None:
    keyed.world.start()
    keyed.fake.faults(delay_s=0.02)
    chats = [f"c{n}" for n in range(8)]
    for n, chat in enumerate(chats):
        keyed.run()
        keyed.fake.say(f"word {n}", chat=chat)
        time.sleep(0.01 * n)
        keyed.kill()
    keyed.run()
    keyed.world.until(lambda: all(keyed.turns(chat) for chat in chats), 60)
    keyed.world.until(lambda: len(keyed.fake.sent()) >= 8, 60)
    assert [len(keyed.turns(chat)) for chat in chats] == [1] * 8
    assert sorted(one["chat"] for one in keyed.fake.sent()) == chats


def test_a_platform_that_refuses_for_a_while_gets_it_once(chain: Chain) -> None:
    chain.run()
    chain.fake.faults(status={"code": 503, "times": 8})
    chain.put("m")
    chain.until_state("m", "done")
    assert ([one["text"] for one in chain.fake.sent()], chain.fake.state()["sends"]) == (["hello"], 1)
    assert len([fact for fact in chain.receipts().facts("m") if "refused" in fact]) == 8


def test_a_platform_that_says_when_is_obeyed_though_the_process_is_another(chain: Chain) -> None:
    chain.run("--pace", "0.001", "--timeout-s", "2")
    chain.fake.faults(status={"code": 429, "retry_after": 2, "times": 1})
    chain.put("m")
    chain.world.until(lambda: chain.receipts().of("m").until)
    chain.kill()
    chain.run()
    chain.until_state("m", "done")
    until = next(fact["until"] for fact in chain.receipts().facts("m") if "refused" in fact)
    assert chain.fake.sent()[0]["at"] >= until - 0.01


def test_stored_and_cut_is_shown_once_where_it_is_keyed(keyed: Chain) -> None:
    keyed.run()
    keyed.fake.faults(store_then_cut=3)
    keyed.put("m")
    keyed.until_state("m", "done")
    assert (len(keyed.fake.sent()), keyed.receipts().of("m").uncertain) == (1, {})


@pytest.mark.parametrize("fault", ["store_then_cut", "drop_send", "store_then_silent"])
def test_cut_without_keys_it_comes_once_more_and_is_receipted(chain: Chain, fault: str) -> None:
    chain.run("--pace", "0.02", "--timeout-s", "0.3")
    chain.fake.faults(**{fault: 1})
    chain.put("m")
    chain.until_state("m", "done")
    assert (len(chain.fake.sent()), chain.receipts().of("m").uncertain) == (1 + (fault != "drop_send"), {0: 1})


def test_killed_in_mid_send_it_comes_once_more_and_is_receipted(chain: Chain) -> None:
    chain.run()
    chain.fake.faults(store_then_silent=1)
    chain.put("m", "hello")
    chain.put("n", "next")
    chain.until_sent(1)
    chain.kill()
    chain.run()
    chain.until_state("n", "done")
    assert [one["text"] for one in chain.fake.sent()] == ["hello", "hello", "next"]
    assert (chain.receipts().of("m").uncertain, chain.receipts().of("n").uncertain) == ({0: 1}, {})


def test_killed_in_mid_send_it_is_held_where_that_is_wanted(chain: Chain) -> None:
    chain.run(*FAST, "--on-uncertain", "hold")
    chain.fake.faults(store_then_silent=1)
    chain.put("m")
    chain.until_sent(1)
    chain.kill()
    chain.run()
    chain.until_state("m", "held")
    assert len(chain.fake.sent()) == 1
    chain.receipts().settle("m", "delivered")
    chain.out.release("m")
    chain.kill()
    chain.run()
    chain.until_state("m", "done")
    assert len(chain.fake.sent()) == 1


def test_parts_go_on_where_they_ended(chain: Chain) -> None:
    chain.run(*FAST, "--most", "4")
    chain.fake.faults(status={"code": 503, "times": 1})
    chain.put("m", "one two three")
    chain.until_state("m", "done")
    assert [one["text"] for one in chain.fake.sent()] == ["one ", "two ", "thre", "e"]


def test_a_chat_that_is_refused_delays_no_other(chain: Chain) -> None:
    chain.run("--pace", "100", "--timeout-s", "2")
    chain.fake.faults(status={"code": 503, "chat": "stuck"})
    for n in range(5):
        chain.put(f"s{n}", f"{n}", "stuck")
        chain.put(f"m{n}", f"{n}")
    chain.world.start()
    chain.until_state("m4", "done")
    assert [one["text"] for one in chain.fake.sent("42")] == list("01234")
    chain.kill()
    chain.fake.faults()
    chain.run()
    chain.until_state("s4", "done")
    assert [one["text"] for one in chain.fake.sent("stuck")] == list("01234")


@pytest.mark.parametrize("fault", [{"down": True}, {"silent": True}, {"status": {"code": 502, "path": ""}}])
def test_a_platform_that_goes_away_and_comes_back(chain: Chain, fault: dict[str, Any]) -> None:
    chain.world.start()
    chain.run("--pace", "0.02", "--timeout-s", "0.3", "--poll-s", "0.3")
    chain.fake.faults(**fault)
    chain.fake.say("are you there?")
    chain.world.until(lambda: "not connected" in logged(chain.home, "channel-test"))
    chain.fake.faults()
    chain.until_sent(1)
    assert len(chain.turns()) == 1


def test_a_platform_that_is_not_there_at_first(chain: Chain) -> None:
    chain.fake.faults(down=True)
    chain.run()
    assert chain.world.running["channel-test"].status.startswith("not connected, tried again: ")
    chain.put("m")
    chain.fake.faults()
    chain.until_state("m", "done")


def test_a_platform_that_was_killed_goes_on_where_it_was(chain: Chain) -> None:
    chain.world.start()
    chain.run()
    chain.fake.say("one")
    chain.until_noted(1)
    chain.fake.kill()
    chain.put("m", "meanwhile")
    chain.fake.start()
    chain.fake.say("two")
    chain.world.until(lambda: len(chain.turns()) == 2)
    assert len(chain.until_sent(3)) == 3


def test_one_that_hears_nothing_though_the_platform_is_there_ends_to_be_replaced(chain: Chain) -> None:
    chain.fake.faults(deaf=True)
    chain.run("--pace", "0.02", "--stale-s", "0.3", "--timeout-s", "2", "--poll-s", "20")
    assert chain.world.running["channel-test"].process.wait(20) == 75
    chain.world.running.pop("channel-test")
    assert chain.fake.state()["logins"] == 3


def test_a_group_knows_its_members_and_sees_that_somebody_is_at_work(chain: Chain) -> None:
    chain.world.start()
    chain.run(*FAST, "--shows")
    for sent in range(1, 20):  # what is shown on the way may be missed, above all right after a start
        chain.fake.say("hi", chat="g", is_group=True, mentioned=True, sender={"id": "8", "name": "小明"})
        chain.until_sent(sent)
        if chain.fake.shown():
            break
    assert {one["chat"] for one in chain.fake.shown()} == {"g"}
    body = Queue(chain.inbound.path).list("done")
    assert next(iter(body)).body["sender"] == {"id": "8", "name": "小明", "owner": False, "bot": False}
