"""Drafts: a message that grows and becomes the reply, and none that is left behind."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.channel import Channel, Part, Take, Unconfirmed
from bubbles.channels.delivery import Desk
from bubbles.channels.drafts import MARK, Drafts
from bubbles.channels.outbound import Outlet
from bubbles.channels.progress import Progress
from bubbles.channels.receipts import Receipts
from bubbles.channels.settings import Settings
from bubbles.channels.split import split
from bubbles.errors import NotEver, NotNow
from bubbles.messages import Address, Outbound, to_dict
from bubbles.spool import Queue
from tests.channels.clock import Clock, passing

PLACE = Address("memory", "a")


class Editable(Channel):
    """A platform in memory whose messages can be edited. `faults`: what the next calls of a kind raise."""

    name, keyed, drafts, draft_s, typing_s = "memory", False, True, 1.0, 4.0

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: dict[str, str] = {}  # id: what people read
        self.calls: list[tuple[str, str, float]] = []  # what, id, when
        self.faults: dict[str, list[Exception]] = {}
        self.typed: list[float] = []
        self.slow_s = 0.0
        self.last = 0

    def _call(self, what: str, id: str = "") -> None:
        self.calls.append((what, id, self.clock.passed))
        if faults := self.faults.get(what):
            raise faults.pop(0)

    async def open(self) -> None: ...

    async def listen(self, take: Take) -> None: ...

    def split(self, message: Outbound) -> list[str]:
        return split(message.text, 64)

    async def draft(self, address: Address, text: str, id: str = "", *, reply_to: str = "") -> str:
        self._call("edit" if id else "draft", id)
        assert len(text) <= 64
        await asyncio.sleep(self.slow_s)
        return self._put(id, text)

    async def undraft(self, address: Address, id: str) -> None:
        self._call("undraft", id)
        self.seen.pop(id, None)

    async def deliver(self, message: Outbound, part: Part) -> str:
        self._call("final" if part.draft else "send", part.draft)
        return self._put(part.draft, part.text)

    def _put(self, id: str, text: str) -> str:
        if id and id not in self.seen:
            raise NotEver("no such message")
        if not id:
            self.last += 1
        self.seen[id or f"m{self.last}"] = text
        return id or f"m{self.last}"

    async def typing(self, address: Address) -> None:
        self.typed.append(self.clock.passed)


class Hall:
    """One channel's way out, with its drafts. `again`: another process, of which nothing is left but its files."""

    def __init__(self, root: Path, **own: Any) -> None:
        self.root, self.own, self.clock = root, own, Clock()
        self.channel = Editable(self.clock)
        self.queue = Queue(root / "outbound", clock=lambda: int(self.clock.now * 1e9))
        self.queue.prepare()

    def start(self) -> None:
        self.desk = Desk(self.channel, self.queue, Receipts(self.queue.path, now=self.clock), Settings(), self.clock)
        self.drafts = Drafts(self.channel, self.root / "kept" / "drafts.json", self.desk.pace, lambda: self.clock.passed, **self.own)
        self.desk.drafts = self.drafts
        self.queue.recover()
        self.outlet = Outlet(self.desk)
        self.running = asyncio.ensure_future(self.outlet.run())
        self.progress = Progress(self.channel, self.drafts)

    async def die(self) -> None:
        for task in [self.running, *(lane.task for lane in self.outlet._lanes.values())]:
            task.cancel()
        await self.progress.close()

    def tell(self, kind: str, body: Any, turn: str = "t1", thread: str = "") -> None:
        self.progress.tell(f"memory/a/{kind}", {"turn": turn, "kind": kind, "thread": thread, "message": "q1", kind: body})

    def say(self, text: str, n: int = 0, turn: str = "t1", **more: Any) -> None:
        id = f"{turn}.{n}.0"
        self.queue.put(id, to_dict(Outbound(id, self.clock.now, "memory", "a", text, turn=turn, **more)))
        self.outlet.ring()
        if more.get("origin", "reply") == "reply":
            self.tell("say", {"n": n, "text": text}, turn)

    @property
    def texts(self) -> list[str]:
        return list(self.channel.seen.values())

    def kept(self) -> list[str]:
        try:
            return [one["id"] for one in json.loads((self.root / "kept" / "drafts.json").read_text())["drafts"]]
        except FileNotFoundError:
            return []


def told(root: Path, story: Callable[[Hall], Awaitable[Any]], **own: Any) -> Hall:
    hall = Hall(root, **own)

    async def whole() -> None:
        hall.start()
        await story(hall)
        await asyncio.sleep(30)
        await hall.die()

    passing(hall.clock, whole())
    return hall


async def stream(hall: Hall, *words: str, turn: str = "t1", gap_s: float = 0.1) -> None:
    for word in words:
        hall.tell("text", word, turn)
        await asyncio.sleep(gap_s)


def test_the_draft_and_the_reply_are_one_message(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, *["word "] * 100, gap_s=0.03)
        hall.say("word " * 8 + "end")

    hall = told(tmp_path, story)
    assert (hall.texts, hall.kept()) == (["word " * 8 + "end"], [])
    assert hall.desk.receipts.of("t1.0.0").delivered == {0: "m1"}
    assert hall.desk.receipts.of("t1.0.0").draft == "m1"


def test_no_more_than_an_edit_a_second_and_none_without_news(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, *["w "] * 20, gap_s=0.25)
        await asyncio.sleep(60)
        hall.say("done")

    hall = told(tmp_path, story)
    times = [at for what, _, at in hall.channel.calls if what in ("draft", "edit")]
    assert 4 <= len(times) <= 7
    assert all(later - earlier >= 1 - 1e-6 for earlier, later in zip(times, times[1:], strict=False))
    assert times[-1] < 10


def test_a_draft_stops_growing_at_the_length_of_a_message_and_the_rest_follows_the_reply(tmp_path: Path) -> None:
    shown = []

    async def story(hall: Hall) -> None:
        for _ in range(20):
            await stream(hall, "twelve chars ", gap_s=1.1)
            shown.extend(hall.texts)
        hall.say("twelve chars " * 20)

    hall = told(tmp_path, story)
    assert all(text.endswith(MARK.strip()) and len(text) <= 64 for text in shown)
    assert hall.texts == split("twelve chars " * 20, 64)
    assert list(hall.channel.seen)[0] == "m1"


def test_much_at_once_is_a_draft_too(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "word " * 1000, gap_s=2)
        assert len(hall.texts) == 1
        assert hall.texts[0].endswith(MARK.strip())
        hall.say("short")

    assert told(tmp_path, story).texts == ["short"]


def test_code_that_is_not_closed_yet_is_closed_in_a_draft(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "```py\nx = 1", gap_s=2)
        assert hall.texts == ["```py\nx = 1 …\n```"]

    told(tmp_path, story)


def test_words_beside_calls_stay_as_they_are_and_the_reply_comes_after(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "Let me look.")
        hall.tell("text_end", {})
        hall.say("Let me look.", 7, origin="progress")
        hall.tell("tool", {"name": "exec", "hint": 'exec("ls `x`")', "state": "start"})
        await asyncio.sleep(3)
        assert hall.texts == ["Let me look.", "▸ `exec(\"ls 'x'\")` …"]
        await stream(hall, "Two files", gap_s=2)
        hall.say("Two files.")

    assert told(tmp_path, story).texts == ["Let me look.", "Two files."]


def test_progress_that_is_longer_than_a_message_is_all_there(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "word " * 40)
        hall.tell("text_end", {})
        hall.say("word " * 40, 7, origin="progress")

    assert told(tmp_path, story).texts == split("word " * 40, 64)


def test_where_progress_is_not_wanted_the_reply_takes_its_place(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "Let me look.", gap_s=2)
        hall.tell("text_end", {})
        hall.tell("tool", {"name": "exec", "hint": "exec()", "state": "start"})
        await stream(hall, "Two", gap_s=2)
        assert hall.texts == ["Two …"]
        hall.say("Two files.")

    assert told(tmp_path, story, progress=False, hints=False).texts == ["Two files."]


def test_words_beside_calls_that_nobody_sends_go_with_the_turn(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "I look.", gap_s=2)
        hall.tell("text_end", {})
        await stream(hall, "Two", gap_s=2)
        assert hall.texts == ["I look. …", "Two …"]
        hall.say("Two files.")
        hall.tell("state", {"now": "end"})

    assert told(tmp_path, story).texts == ["Two files."]


def test_a_turn_that_ends_without_words_leaves_nothing(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        hall.tell("tool", {"name": "exec", "hint": "exec()", "state": "start"})
        await stream(hall, "I think", gap_s=2)
        hall.tell("state", {"now": "end"})

    hall = told(tmp_path, story)
    assert (hall.texts, hall.kept()) == ([], [])


def test_a_request_that_is_made_again_begins_anew(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "wrong", gap_s=2)
        hall.tell("retry", {"category": "model_down"})
        await stream(hall, "right", gap_s=2)
        assert hall.texts == ["right …"]

    told(tmp_path, story)


def test_a_turn_that_speaks_twice_has_two_messages_each_its_own(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "one", gap_s=2)
        hall.say("One.")
        await stream(hall, "two", gap_s=2)
        hall.say("Two.", n=1)

    assert told(tmp_path, story).texts == ["One.", "Two."]


def test_other_words_of_the_program_take_no_draft(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "one", gap_s=2)
        hall.say("Note", n=7, origin="notice")
        await asyncio.sleep(2)
        assert hall.texts == ["one …", "Note"]

    told(tmp_path, story)


@pytest.mark.parametrize("ends", ["says", "is silent", "begins anew"])
def test_what_a_killed_process_left_is_taken_up(tmp_path: Path, ends: str) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "hal", gap_s=2)
        await hall.die()
        assert hall.kept() == ["m1"]
        hall.start()
        if ends == "says":
            hall.say("Half and whole.")
        elif ends == "is silent":
            hall.tell("state", {"now": "end"})
        else:
            hall.tell("state", {"now": "begin"}, "t2")

    hall = told(tmp_path, story)
    assert (hall.texts, hall.kept()) == (["Half and whole."] if ends == "says" else [], [])


def test_killed_while_the_draft_becomes_the_reply_it_is_edited_again_and_no_doubt_is_noted(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "hal", gap_s=2)
        hall.channel.faults["final"] = [Unconfirmed("the connection ended"), NotNow("503")]
        hall.say("Half and whole.")
        await asyncio.sleep(0.5)
        await hall.die()
        hall.desk.receipts.note("t1.0.0", begun=0, key="t1.0.0.0")
        hall.start()

    hall = told(tmp_path, story)
    assert (hall.texts, hall.desk.receipts.of("t1.0.0").uncertain) == (["Half and whole."], {})


def test_the_second_reply_of_a_turn_never_overwrites_the_first(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "one", gap_s=2)
        kept = (hall.root / "kept" / "drafts.json").read_text()
        hall.channel.faults["final"] = [NotNow("503")]
        hall.say("One.")
        await asyncio.sleep(0.5)
        await hall.die()
        (hall.root / "kept" / "drafts.json").write_text(kept)  # as if killed before the line was gone
        hall.start()
        hall.say("Two.", n=1)

    assert told(tmp_path, story).texts == ["One.", "Two."]


def test_a_draft_that_somebody_deleted_costs_no_reply(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        await stream(hall, "one", gap_s=2)
        hall.channel.seen.clear()
        hall.say("One.")

    hall = told(tmp_path, story)
    assert (hall.texts, hall.queue.find("t1.0.0")) == (["One."], "done")


def test_the_reply_waits_for_an_edit_that_is_under_way(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        hall.channel.slow_s = 3
        await stream(hall, "one", gap_s=1)
        hall.say("One.")

    assert told(tmp_path, story).texts == ["One."]


def test_a_draft_that_may_be_there_is_not_made_twice(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        hall.channel.faults["draft"] = [Unconfirmed("the connection ended")]
        await stream(hall, "one", " two", " three", gap_s=2)
        hall.say("All.")

    hall = told(tmp_path, story)
    assert [what for what, _, _ in hall.channel.calls].count("send") <= 1
    assert hall.texts[-1] == "All."


def test_a_platform_that_says_when_is_not_asked_before(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        hall.channel.faults["draft"] = [NotNow("429", until=time.time() + 20)]
        await stream(hall, *["w "] * 30, gap_s=1)

    times = [at for what, _, at in told(tmp_path, story).channel.calls if what == "draft"]
    assert times[1] - times[0] >= 19


def test_a_file_of_drafts_that_cannot_be_read_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "drafts.json").write_bytes(b"{\xff")

    async def story(hall: Hall) -> None:
        await stream(hall, "one", gap_s=2)
        hall.say("One.")

    assert told(tmp_path, story).texts == ["One."]


def test_somebody_types_while_a_turn_goes_on_and_ten_minutes_at_most(tmp_path: Path) -> None:
    async def story(hall: Hall) -> None:
        hall.tell("state", {"now": "begin"})
        await asyncio.sleep(10)
        hall.tell("state", {"now": "end"})
        await asyncio.sleep(100)
        hall.tell("state", {"now": "begin"}, "t2")
        await asyncio.sleep(3600)

    typed = told(tmp_path, story).channel.typed
    assert [at for at in typed if at < 100] == [0, 4, 8]
    assert max(typed) <= 110 + 600


EVENTS = ["text", "tool", "text_end", "retry", "say", "end", "begin", "sleep", "die", "refuse", "lose", "doubt"]


@given(st.lists(st.sampled_from(EVENTS), max_size=25))
def test_every_reply_is_there_once_and_in_order_whatever_the_drafts_go_through(events: list[str]) -> None:
    replies: list[str] = []

    async def story(hall: Hall) -> None:
        turn = 0
        for n, event in enumerate(events):
            match event:
                case "text":
                    hall.tell("text", f"w{n} ", f"t{turn}")
                case "tool":
                    hall.tell("tool", {"name": "x", "hint": f"x({n})", "state": "start"}, f"t{turn}")
                case "text_end" | "retry":
                    hall.tell(event, {}, f"t{turn}")
                case "say":
                    replies.append(f"reply {n}")
                    hall.say(replies[-1], n, f"t{turn}")
                case "end" | "begin":
                    hall.tell("state", {"now": event}, f"t{turn}")
                    turn += event == "end"
                case "sleep":
                    await asyncio.sleep(2.5)
                case "die":
                    await hall.die()
                    hall.start()
                case "refuse":
                    hall.channel.faults.setdefault("edit", []).append(NotNow("429"))
                case "lose":
                    hall.channel.faults.setdefault("final", []).append(NotEver("gone"))
                case "doubt":
                    hall.channel.faults.setdefault("final", []).append(Unconfirmed("ended"))
        await asyncio.sleep(200)
        hall.tell("state", {"now": "end"}, f"t{turn}")
        hall.tell("state", {"now": "begin"}, "another")  # which takes along what a killed process did not

    with tempfile.TemporaryDirectory() as root:
        hall = told(Path(root), story)
        assert sorted(text for text in hall.texts if text.startswith("reply")) == sorted(replies)
        assert hall.kept() == []
