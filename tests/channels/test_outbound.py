"""The way out: order, nothing lost, nothing shown twice unnoticed, whatever the platform, the disk and death do."""

from __future__ import annotations

import asyncio
import errno
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.channels.settings import Settings
from bubbles.errors import BubblesError
from bubbles.messages import to_line
from tests.channels.clock import START, Clock, passing
from tests.channels.memory import FATES, SURE, Memory
from tests.channels.office import Office
from tests.spool.disks import Dying, Killed, Refusing, Unsynced

HOUR = 3600.0


def told(tmp_path: Path, story: Callable[[Office], Awaitable[Any]], *plan: str, keyed: bool = False, most: int = 100, **own: Any) -> Office:
    """The office after a story in which the sends meet the fates of `plan`, in their order."""
    clock = Clock()
    office = Office(tmp_path, Memory(clock, plan, keyed=keyed, most=most), clock, Settings(**own))

    async def whole() -> None:
        await story(office)
        await office.die()

    passing(clock, whole())
    return office


async def one(office: Office) -> None:
    office.put("m", "hello")
    office.start()
    await office.until_done()


def seen(office: Office, chat: str = "a") -> list[str]:
    return [shown.text for shown in office.channel.shown if shown.chat == chat]


def test_a_message_is_sent_in_its_parts_and_finished(tmp_path: Path) -> None:
    office = told(tmp_path, one, most=2)
    assert (seen(office), office.queue.find("m")) == (["he", "ll", "o"], "done")
    assert office.receipts.of("m").delivered == {0: "id-m.0", 1: "id-m.1", 2: "id-m.2"}


def test_what_is_empty_is_not_sent(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m", "")
        office.put("n", " \n  ok", "a")
        office.start()
        await office.until_done()

    assert seen(told(tmp_path, story, most=2)) == ["  ", "ok"][1:]


def test_ten_minutes_of_refusals_and_then_it_arrives_once(tmp_path: Path) -> None:
    office = told(tmp_path, one, *["refuse"] * 13)
    times = [at for _, _, at in office.channel.tries]
    assert times[-1] - times[0] > 600
    assert all(later - earlier < 110 for earlier, later in zip(times, times[1:], strict=False))
    assert (seen(office), office.receipts.of("m").uncertain) == (["hello"], {})


def test_a_platform_that_says_when_is_not_asked_before_even_by_a_new_process(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m", "hello")
        office.start()
        for _ in range(5):  # the memory platform fails what comes too early
            await asyncio.sleep(30)
            await office.die()
            office.start()
            office.outlet.retry()
        await office.until_done()

    office = told(tmp_path, story, "wait")
    assert [round(at - office.channel.tries[0][2]) for _, _, at in office.channel.tries] == [0, 300]


def test_a_word_of_a_clock_that_was_wrong_does_not_bind(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m", "hello")
        office.receipts.note("m", refused=0, until=office.clock.now + 86_400, why="429")
        office.start()
        await office.until_done()

    office = told(tmp_path, story)
    assert office.channel.tries[0][2] < START + 60


def test_what_is_refused_for_good_is_held_and_holds_nobody_back(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m", "hello")
        office.put("n", "next")
        office.start()
        await office.until_done()

    office = told(tmp_path, story, "never")
    assert (seen(office), office.queue.find("m"), office.why("m")) == (["next"], "held", "refused: blocked by the user")


def test_after_a_day_of_failures_it_is_held(tmp_path: Path) -> None:
    office = told(tmp_path, one, *["refuse"] * 1000)
    assert (office.queue.find("m"), office.why("m")) == ("held", "not delivered within 24 hours: 503")
    assert 100 < len(office.channel.tries) < 200


def test_what_is_older_than_a_day_is_tried_once(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("old", "late", at=office.clock.now - 50 * HOUR)
        office.put("older", "too late", "b", at=office.clock.now - 60 * HOUR)
        office.channel.for_chat["b"] = "refuse"
        office.start()
        await office.until_done()

    office = told(tmp_path, story)
    assert (seen(office), seen(office, "b"), office.queue.find("older"), len(office.channel.tries)) == (["late"], [], "held", 2)


@pytest.mark.parametrize("fate", [fate for fate in FATES if fate not in SURE])
def test_what_nobody_can_tell_is_sent_again_once_and_receipted(tmp_path: Path, fate: str) -> None:
    office = told(tmp_path, one, fate)
    assert seen(office) == ["hello"] * (1 + fate.endswith("kept"))
    assert (office.receipts.of("m").uncertain, office.queue.find("m")) == ({0: 1}, "done")


@pytest.mark.parametrize(("own", "copies"), [("resend", 2), ("hold", 1)])
def test_what_nobody_can_tell_is_held_where_that_is_wanted_or_comes_again(tmp_path: Path, own: str, copies: int) -> None:
    office = told(tmp_path, one, "kept", "die_kept", on_uncertain=own)
    assert (len(seen(office)), office.queue.find("m"), office.receipts.of("m").uncertain) == (copies, "held", {0: copies})
    assert "uncertain" in office.why("m")


def test_how_often_it_was_uncertain_outlives_the_process(tmp_path: Path) -> None:
    office = told(tmp_path, one, "die_lost", "die_lost", "ok")
    assert (len(office.channel.tries), office.queue.find("m")) == (2, "held")


@pytest.mark.parametrize("fate", [fate for fate in FATES if fate not in SURE])
def test_a_platform_with_keys_shows_it_once(tmp_path: Path, fate: str) -> None:
    office = told(tmp_path, one, fate, fate, fate, keyed=True)
    assert (seen(office), office.queue.find("m"), office.receipts.of("m").uncertain) == (["hello"], "done", {})


def test_a_resend_begins_at_the_first_part_that_is_not_delivered(tmp_path: Path) -> None:
    office = told(tmp_path, one, "ok", "refuse", "die_lost", "ok", "ok", most=2)
    assert seen(office) == ["he", "ll", "o"]


async def held_then(office: Office, act: Callable[[Office], object]) -> None:
    office.put("m", "hello")
    office.put("n", "next")
    office.start()
    await office.until_done()
    assert office.queue.find("m") == "held"
    act(office)
    office.outlet.retry()
    await office.until_done()


def test_one_that_a_person_releases_is_sent_and_may_be_doubtful_once_more(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        await held_then(office, lambda office: office.queue.release("m"))

    assert seen(told(tmp_path, story, "lost", "lost", "ok", "lost")) == ["next", "hello"]


@pytest.mark.parametrize(("how", "copies"), [("delivered", 1), ("lost", 2)])
def test_a_person_settles_what_was_uncertain(tmp_path: Path, how: str, copies: int) -> None:
    def settle(office: Office) -> None:
        office.receipts.settle("m", how)
        office.queue.release("m")

    async def story(office: Office) -> None:
        await held_then(office, settle)

    office = told(tmp_path, story, "kept", on_uncertain="hold")
    assert (seen(office).count("hello"), office.queue.find("m")) == (copies, "done")


def test_a_word_of_a_persons_counts_at_once_though_it_waits(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m", "hello")
        office.start()
        await asyncio.sleep(1)
        office.receipts.settle("m", "delivered")
        office.outlet.retry()
        await asyncio.sleep(1)
        assert office.queue.find("m") == "done"

    assert seen(told(tmp_path, story, "refuse")) == []


def test_a_platform_that_is_back_gets_at_once_what_waits(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.channel.for_chat["a"] = "refuse"
        office.put("m", "hello")
        office.start()
        await asyncio.sleep(HOUR)
        office.channel.for_chat.clear()
        office.outlet.retry()
        await asyncio.sleep(1)
        assert office.queue.find("m") == "done"

    assert seen(told(tmp_path, story)) == ["hello"]


def test_a_chat_that_is_stuck_delays_no_other(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.channel.stuck, office.channel.for_chat = {"a", "b"}, {"c": "refuse"}
        for n in range(20):
            for chat in "abcde":
                office.put(f"{chat}{n:02}", str(n), chat)
        office.start()
        await asyncio.sleep(5)

    office = told(tmp_path, story)
    assert seen(office, "d") == seen(office, "e") == [str(n) for n in range(20)]
    assert {id for id, _, _ in office.channel.tries if id[0] in "abc"} == {"a00", "b00", "c00"}


def test_many_chats_at_once_and_no_more_than_may_be(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for n in range(100):
            office.put(f"m{n:03}", "hi", f"chat{n}")
        office.start()
        await asyncio.sleep(0.02)
        assert office.outlet._desk.sending == 8
        await office.until_done()

    assert len(told(tmp_path, story, at_once=8).channel.shown) == 100


def test_what_comes_late_takes_its_place_at_the_end(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.put("m1", "1")
        office.start()
        for n in range(2, 9):
            await asyncio.sleep(0.03)
            office.put(f"m{n}", str(n))
            office.outlet.ring()
        await office.until_done()

    assert seen(told(tmp_path, story, "refuse")) == list("12345678")


def test_the_order_holds_over_restarts_and_a_clock_that_steps(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.channel.for_chat["a"] = "refuse"
        for n in range(6):
            office.put(f"x{9 - n}", str(n))
            office.clock.now -= 7
        for _ in range(4):
            office.start()
            await asyncio.sleep(40)
            await office.die()
        office.channel.for_chat.clear()
        office.start()
        await office.until_done()

    assert seen(told(tmp_path, story)) == list("012345")


def test_an_end_lets_what_is_under_way_be_confirmed_and_leaves_the_rest_as_it_was(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.channel.stuck, office.channel.for_chat = {"b"}, {"c": "refuse"}
        for id in ("a1", "a2", "b1", "c1"):
            office.put(id, f"{id} in two parts", id[0])
        office.start()
        await asyncio.sleep(0.02)
        await office.outlet.close()

    office = told(tmp_path, story, most=8)
    assert {id: office.queue.find(id) for id in office.put_at} == dict.fromkeys(("a1", "a2", "b1", "c1"), "new")
    assert (office.receipts.of("a1").delivered, office.receipts.of("a2").begun, office.receipts.of("b1").begun) == ({0: "id-a1.0"}, None, 0)


def test_once_sends_what_can_be_sent(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        office.channel.for_chat["b"] = "refuse"
        for id in ("a1", "b1", "a2", "b2"):
            office.put(id, id, id[0])
        outlet = office.start(once=True)
        await outlet.drain()
        await outlet.close()
        office.running = None

    office = told(tmp_path, story)
    assert (seen(office), office.queue.find("b1"), office.queue.find("b2"), len(office.channel.tries)) == (["a1", "a2"], "new", "new", 3)


@pytest.mark.parametrize(
    "body",
    [b"no json at all}\n", *map(to_line, ({"chat": 7}, {"chat": "a", "text": ["x"]}, {"chat": "a", "text": "x", "version": 99}))],
)
def test_what_is_no_message_is_held_and_stops_nobody(tmp_path: Path, body: bytes) -> None:
    async def story(office: Office) -> None:
        (office.path / "new" / "odd.json").write_bytes(body)
        office.put("m", "hello")
        office.start()
        await office.until_done()

    office = told(tmp_path, story)
    assert (seen(office), office.queue.find("odd")) == (["hello"], "held")


def test_a_message_that_a_person_drops_while_it_waits_its_turn(tmp_path: Path) -> None:
    async def story(office: Office) -> None:
        for id in ("m1", "m2", "m3"):
            office.put(id, id)
        office.start()
        await asyncio.sleep(1)
        office.queue.drop("m2")
        await office.until_done()

    assert seen(told(tmp_path, story, "refuse")) == ["m1", "m3"]


def test_text_of_any_kind_arrives_as_it_is(tmp_path: Path) -> None:
    hostile = "你好 \x1b[31m🫧 \u202e </b> ' \" \\ \x00 " + "长" * 200_000

    async def story(office: Office) -> None:
        office.put("聊天/../1", hostile, "群 <组>")
        office.start()
        await office.until_done()

    office = told(tmp_path, story, most=4096)
    assert "".join(seen(office, "群 <组>")) == hostile.replace("\x00", "\ufffd")


# Anything may happen in any order.

POSTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=8)  # chat, characters
PLAN = st.lists(st.sampled_from([*FATES, "ok", "never"]), max_size=30)


@settings(max_examples=100)
@given(posts=POSTS, plan=PLAN, keyed=st.booleans(), own=st.sampled_from(["resend", "hold"]))
def test_whatever_happens_each_chat_reads_all_in_order(posts: list[tuple[str, int]], plan: list[str], keyed: bool, own: str) -> None:
    async def story(office: Office) -> None:
        for n, (chat, length) in enumerate(posts):
            office.put(f"m{n:02}", "xyz"[n % 3] * length, chat)
        office.start()
        await office.until_done()

    with tempfile.TemporaryDirectory() as root:
        office = told(Path(root), story, *plan, keyed=keyed, most=4, on_uncertain=own)
        judge(office, posts, keyed=keyed, most=1 if own == "hold" else 2)


def judge(office: Office, posts: list[tuple[str, int]], *, keyed: bool, most: int, receipts: bool = True) -> None:
    shown = office.channel.shown
    for chat in "abc":
        order = [(office.put_at[one.message], one.n) for one in shown if one.chat == chat]
        assert order == sorted(order), "a chat reads in order"
    copies = Counter((one.message, one.n) for one in shown)
    for n, (_, length) in enumerate(posts):
        id, parts, receipt = f"m{n:02}", (length + 3) // 4, office.receipts.of(f"m{n:02}")
        state = office.queue.find(id)
        assert state == "done" or (state == "held" and office.why(id)), "it is out, or somebody was told why not"
        for k in range(parts):
            assert state == "held" or copies[id, k] >= 1, "nothing is lost"
            assert copies[id, k] <= (1 if keyed else min(most, 1 + receipt.uncertain.get(k, 0))), "what is shown twice is receipted as uncertain"
        assert state == "held" or set(receipt.delivered) == set(range(parts)) or not receipts


@pytest.mark.parametrize("keyed", [True, False])
def test_killed_at_every_call_to_the_disk(tmp_path: Path, keyed: bool) -> None:
    """Three messages; the n-th call of a process is its last, for every n; the next process finds a good disk."""
    posts = [("a", 6), ("a", 3), ("b", 3)]
    n, disk = 0, Dying(0)

    async def story(office: Office) -> None:
        for number, (chat, length) in enumerate(posts):
            office.put(f"m{number:02}", "x" * length, chat)
        try:
            office.start(disk)
        except Killed:
            office.start()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # of tasks that were killed
        for _ in range(100):
            await asyncio.sleep(0.1)
        await office.die()
        disk.release()
        office.start()
        await office.until_done()

    while n == 0 or len(disk.calls) >= n:
        n += 1
        disk = Dying(n)
        office = told(tmp_path / str(n), story, keyed=keyed, most=4)
        judge(office, posts, keyed=keyed, most=2)
        assert {office.queue.find(id) for id in office.put_at} == {"done"}
    assert n > 60


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_refused_by_the_disk_at_every_call(tmp_path: Path, number: int) -> None:
    """The n-th call of a process that can fail does, for every n; the process goes on."""
    posts = [("a", 6), ("b", 3)]
    n, disk = 0, Refusing(0, number)

    async def story(office: Office) -> None:
        for place, (chat, length) in enumerate(posts):
            office.put(f"m{place:02}", "x" * length, chat)
        try:
            office.start(disk)
        except BubblesError:
            office.start()
        await office.until_done()

    while n == 0 or disk.refused:
        n += 1
        disk = Refusing(n, number)
        office = told(tmp_path / str(n), story, "ok", "refuse", most=4)
        judge(office, posts, keyed=False, most=1, receipts=False)
        assert all(office.queue.find(id) == "done" or "cannot be read" in office.why(id) for id in office.put_at)  # that is the queue's own rule
    assert n > 30


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), moment=st.integers(0, 30), keyed=st.booleans())
def test_a_power_cut_takes_nothing_and_doubles_nothing_unnoticed(seed: int, moment: int, keyed: bool) -> None:
    posts = [("a", 9), ("a", 3), ("b", 9)]

    async def story(office: Office) -> None:
        for number, (chat, length) in enumerate(posts):
            office.put(f"m{number:02}", "x" * length, chat)
        disk = Unsynced()
        office.start(disk)
        await asyncio.sleep(moment * 0.011)
        await office.die()
        disk.cut(random.Random(seed))
        office.start()
        await office.until_done()

    with tempfile.TemporaryDirectory() as root:
        judge(told(Path(root), story, keyed=keyed, most=4), posts, keyed=keyed, most=2)
