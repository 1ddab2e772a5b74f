"""The summary that is made beside the turns: when it is begun, what becomes of failures, and that it never lands on another past than its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.agentd.compaction import COOLDOWN_S, TRIES, Compaction, NoSummary, Stretch
from bubbles.errors import ModelDown
from bubbles.kernel import context
from bubbles.kernel.context import encode
from bubbles.kernel.summary import HEAD
from bubbles.sessions.history import History, settled

KEEP, BUDGET = 300, 1000


def turn(n: int, words: int = 60) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"question {n} " + "word " * words}, {"role": "assistant", "content": f"answer {n}"}]


def add(history: History, messages: list[dict[str, Any]], n: int) -> None:
    history.add_turn([encode(m) for m in settled(messages)], {"turn": f"t{n}", "outcome": "replied", "messages": [{"id": f"m{n}"}], "at": 0.0})


class Office:
    """A history of some turns, a model that answers as it is told to, and a clock that stands."""

    def __init__(self, path: Path, turns: int = 20) -> None:
        self.history = History(path, session="s")
        for n in range(turns):
            add(self.history, turn(n), n)
        self.asked: list[Stretch] = []
        self.answers: list[Any] = []
        self.now = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.compaction = Compaction(self._ask, self._synced, clock=lambda: self.now, timeout_s=0.2)

    async def _synced(self, fd: int) -> None:
        pass

    async def _ask(self, stretch: Stretch, attempt: int) -> str:
        self.asked.append(stretch)
        answer = self.answers.pop(0) if self.answers else "They talked."
        await self.gate.wait()
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    def consider(self, weight: int = BUDGET) -> None:
        self.compaction.consider(self.history, weight, BUDGET, KEEP)

    async def settle(self) -> None:
        """Until nothing is under way."""
        while self.compaction.is_running:
            await asyncio.sleep(0.001)

    async def made(self) -> None:
        self.consider()
        await self.settle()


@pytest.fixture
def office(tmp_path: Path) -> Callable[[Callable[[Office], Awaitable[None]]], None]:
    """Runs a test in an office of its own."""

    def run(test: Callable[[Office], Awaitable[None]]) -> None:
        async def go() -> None:
            one = Office(tmp_path / "session.jsonl")
            await test(one)
            one.compaction.close()
            one.history.close()

        asyncio.run(go())

    return run


def test_below_the_threshold_nothing_is_asked(office: Any) -> None:
    async def test(o: Office) -> None:
        o.consider(int(BUDGET * 0.6))
        await o.settle()
        assert o.asked == []
        o.consider(int(BUDGET * 0.6) + 1)
        await o.settle()
        assert len(o.asked) == 1

    office(test)


def test_one_at_a_time_and_none_where_one_is_ready(office: Any) -> None:
    async def test(o: Office) -> None:
        o.gate.clear()
        for _ in range(5):
            o.consider()
            await asyncio.sleep(0.01)
        assert len(o.asked) == 1
        o.gate.set()
        await o.settle()
        o.consider()
        await o.settle()
        assert len(o.asked) == 1
        assert o.compaction.is_ready

    office(test)


def test_what_was_said_meanwhile_stays_word_for_word_behind_it(office: Any) -> None:
    async def test(o: Office) -> None:
        o.gate.clear()
        o.consider()
        while not o.asked:
            await asyncio.sleep(0.001)
        before = list(o.history.lines)
        for n in range(20, 25):
            add(o.history, turn(n), n)
        later = list(o.history.lines[len(before) :])
        assert o.history.lines[: len(before)] == before, "the old past goes on serving"
        o.gate.set()
        await o.settle()
        assert await o.compaction.adopt(o.history) == "model"
        assert o.history.lines[-len(later) :] == later
        head = json.loads(o.history.lines[0])["content"]
        assert head.startswith(f"{HEAD}They talked.")
        assert o.history.lines[1 : 1 - len(later) or None][0] == before[o.asked[0].count + 1]
        assert not context.check(context.build([*map(json.loads, o.history.lines), {"role": "user", "content": "next"}]))

    office(test)


def test_fifty_turns_pass_while_one_summary_is_made_and_nobody_ends_it(office: Any) -> None:
    async def test(o: Office) -> None:
        o.compaction._timeout_s = 3600.0
        o.gate.clear()
        o.consider()
        while not o.asked:
            await asyncio.sleep(0)
        for n in range(20, 70):
            assert await o.compaction.adopt(o.history) == "", "what is not ready is not waited for"
            add(o.history, turn(n), n)
            o.consider()
        assert len(o.asked) == 1
        assert o.compaction.is_running
        later = list(o.history.lines[-100:])
        o.gate.set()
        await o.settle()
        assert await o.compaction.adopt(o.history) == "model"
        assert o.history.lines[-100:] == later

    office(test)


def test_a_provider_that_ignores_the_end_of_its_time_keeps_the_next_from_being_asked(office: Any) -> None:
    async def test(o: Office) -> None:
        free = asyncio.Event()

        async def deaf(stretch: Stretch, attempt: int) -> str:
            o.asked.append(stretch)
            while not free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await free.wait()
            return "too late"

        o.compaction._ask, o.compaction._timeout_s = deaf, 0.02
        lines = list(o.history.lines)
        o.consider()
        while not o.asked:
            await asyncio.sleep(0)
        for _ in range(5):
            o.now += 10 * COOLDOWN_S
            o.consider()
            await asyncio.sleep(0.01)
        assert (len(o.asked), o.history.lines) == (1, lines)
        assert await o.compaction.now(o.history, KEEP) == "outline", "whoever waits is not asked to wait for ever"
        assert len(o.asked) == 1
        free.set()
        await o.settle()
        assert await o.compaction.adopt(o.history) == "", "what comes too late was made of another past"

    office(test)


def test_after_forty_compactions_every_fact_is_in_the_file_and_those_that_are_copied_are_in_view(
    office: Any, record_property: Callable[[str, Any], None]
) -> None:
    """Two hundred facts, and a summariser that keeps its last two lines. The control is the same chain without what is copied."""
    facts = {
        "rules": [f"Never restart db-{n:02d}." for n in range(50)],
        "files": [f"src/part{n:02d}.py" for n in range(50)],
        "names": [f"QX-{n:04d}" for n in range(50)],
        "decisions": [f"we went for plan {n} of the {n}th kind" for n in range(50)],
    }

    async def test(o: Office) -> None:
        control = ""

        async def lossy(stretch: Stretch, attempt: int) -> str:
            nonlocal control
            o.asked.append(stretch)
            said = [str(message["content"]) for message in stretch.messages if message["role"] != "tool"]
            control = "\n".join("\n".join([control, *said[1:]]).split("\n")[-8:])
            return "\n".join("\n".join(said).split("\n")[-2:])

        o.compaction._ask = lossy
        for n in range(20, 40):
            add(o.history, turn(n, 400), n)
        for n in range(50):
            rule, path, name, decision = (facts[kind][n] for kind in facts)
            edit = {"id": f"e{n}", "type": "function", "function": {"name": "edit_file", "arguments": json.dumps({"path": path})}}
            said: dict[str, Any] = {"role": "user", "content": f"[Sun 2025-11-30 11:00 UTC · cli · Ann]\n{rule} The case is {name}. {'word ' * 60}"}
            work: list[dict[str, Any]] = [
                {"role": "assistant", "content": "", "tool_calls": [edit]},
                {"role": "tool", "tool_call_id": f"e{n}", "content": "ok"},
            ]
            add(o.history, [said, *work, {"role": "assistant", "content": decision}], 100 + n)
            if n >= 10:
                assert await o.compaction.now(o.history, 0) == "model", n
        assert len(o.asked) == 40
        view, whole = b"\n".join(o.history.lines).decode(), o.history.path.read_text()
        found = {kind: sum(fact in view for fact in some) for kind, some in facts.items()}
        alone = {kind: sum(fact in control for fact in some) for kind, some in facts.items()}
        record_property("told", f"of 50 each after 40 compactions, in view: {found}; without what is copied: {alone}; in the file: all")
        assert [fact for some in facts.values() for fact in some if fact not in whole] == []
        assert {kind: found[kind] for kind in ("rules", "files", "names")} == {"rules": 50, "files": 50, "names": 50}
        assert sum(alone.values()) < sum(found.values()) / 2
        told = [json.loads(line) for line in o.history.file_lines()]
        assert sum(body.get("role") == "user" for body in told) == 50 + 40
        assert sum(body.get("meta") == "compaction" for body in told) == 40

    office(test)


def compacted(o: Office) -> None:
    o.history.compact("by hand", 4, 0.0)


def anew(o: Office) -> None:
    o.history.begin_anew(0.0)


def rewritten(o: Office) -> None:
    o.history.lines[0] = o.history.lines[0].replace(b"question 0", b"question X")


def opened_again(o: Office) -> None:
    path = o.history.path
    o.history.close()
    o.history = History(path, session="s")


@pytest.mark.parametrize("change", [compacted, anew, rewritten, opened_again])
def test_a_summary_of_another_past_is_refused(office: Any, change: Callable[[Office], None]) -> None:
    async def test(o: Office) -> None:
        await o.made()
        change(o)
        lines, generation = list(o.history.lines), o.history.generation
        assert await o.compaction.adopt(o.history) == ""
        assert (o.history.lines, o.history.generation) == (lines, generation)
        assert not o.compaction.is_ready

    office(test)


@pytest.mark.parametrize("failure", [ModelDown("down"), NoSummary("it is empty"), "never"])
def test_failures_leave_the_past_alone_and_are_tried_thrice_with_pauses(office: Any, failure: Any) -> None:
    async def test(o: Office) -> None:
        lines = list(o.history.lines)
        o.answers = [failure] * 9
        if failure == "never":
            o.gate.clear()
        for tries in range(1, TRIES + 3):
            await o.made()
            assert len(o.asked) == min(tries, TRIES)
            o.now += COOLDOWN_S - 1
            await o.made()
            assert len(o.asked) == min(tries, TRIES), "not before the pause is over"
            o.now += 1
        assert o.history.lines == lines
        assert await o.compaction.adopt(o.history) == ""
        assert await o.compaction.now(o.history, KEEP) == "outline", "whoever waits is not asked to wait for a fourth"
        assert len(o.asked) == TRIES
        assert b"this is what was said, in part" in o.history.lines[0]

    office(test)


def test_another_stretch_has_tries_of_its_own(office: Any) -> None:
    async def test(o: Office) -> None:
        o.answers = [ModelDown("down")] * TRIES
        for _ in range(TRIES + 1):
            await o.made()
            o.now += COOLDOWN_S
        assert not o.compaction.is_ready
        for n in range(20, 24):
            add(o.history, turn(n), n)
        await o.made()
        assert o.compaction.is_ready

    office(test)


def test_whoever_waits_shares_what_is_under_way_and_twice_is_once(office: Any) -> None:
    async def test(o: Office) -> None:
        o.gate.clear()
        o.consider()
        waiting = asyncio.create_task(o.compaction.now(o.history, 0))
        await asyncio.sleep(0.02)
        o.gate.set()
        assert await waiting == "model"
        assert await o.compaction.now(o.history, 0) == "nothing"
        assert len(o.asked) == 1

    office(test)


def test_what_is_ready_is_put_in_place_without_asking_again(office: Any) -> None:
    async def test(o: Office) -> None:
        await o.made()
        assert await o.compaction.now(o.history, 0) == "model"
        assert len(o.asked) == 1

    office(test)


def test_whoever_stops_waiting_drops_what_was_begun_for_them(office: Any) -> None:
    async def test(o: Office) -> None:
        o.gate.clear()
        lines = list(o.history.lines)
        waiting = asyncio.create_task(o.compaction.now(o.history, KEEP))
        while not o.asked:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait({waiting})
        await o.settle()
        assert waiting.cancelled()
        o.gate.set()
        assert o.history.lines == lines
        assert not o.compaction.is_ready

    office(test)


def test_what_is_light_is_not_worth_asking_and_nothing_is_nothing(office: Any) -> None:
    async def test(o: Office) -> None:
        o.compaction.consider(o.history, BUDGET, BUDGET, 10_000)
        await o.settle()
        o.history.begin_anew(0.0)
        await o.made()
        assert o.asked == []
        o.consider()
        assert not o.compaction.is_running, "the same history is not looked at again"
        assert await o.compaction.now(o.history, 0) == "nothing"

    office(test)


def test_a_disk_that_refuses_costs_the_summary_alone(office: Any) -> None:
    async def test(o: Office) -> None:
        await o.made()
        lines = list(o.history.lines)
        o.history.close()  # every write fails now
        assert await o.compaction.adopt(o.history) == ""
        assert o.history.lines == lines
        o.history = History(o.history.path, session="s")

    office(test)


def test_a_file_cut_within_the_mark_is_before_or_after(office: Any, tmp_path: Path) -> None:
    async def test(o: Office) -> None:
        before = list(o.history.lines)
        size = o.history.path.stat().st_size
        await o.made()
        await o.compaction.adopt(o.history)
        after = list(o.history.lines)
        whole = o.history.path.read_bytes()
        for cut in [*range(size, size + 40), *range(len(whole) - 40, len(whole) + 1)]:
            torn = tmp_path / "torn.jsonl"
            torn.write_bytes(whole[:cut])
            found = History(torn, session="s")
            assert found.lines == (after if cut == len(whole) else before)
            assert found.copied == (o.history.copied if cut == len(whole) else None)
            found.close()
            torn.unlink()

    office(test)


CALLED = {"id": "c", "type": "function", "function": {"name": "write_file", "arguments": '{"path":"notes.md"}'}}
TURNS = st.lists(
    st.one_of(
        st.integers(1, 200).map(lambda n: turn(0, n)),
        st.just([{"role": "user", "content": "no answer"}]),
        st.integers(1, 300).map(
            lambda n: [
                {"role": "user", "content": "look. Never forget it."},
                {"role": "assistant", "content": "", "tool_calls": [CALLED]},
                {"role": "tool", "tool_call_id": "c", "content": "line\n" * n},
                {"role": "assistant", "content": "seen"},
            ]
        ),
    ),
    min_size=1,
    max_size=12,
)


def _with_ids_of_their_own(messages: list[dict[str, Any]], n: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = json.loads(json.dumps(messages).replace('id": "c"', f'id": "c{n}"'))
    return made


@settings(max_examples=40)
@given(chain=st.lists(TURNS, min_size=1, max_size=8), keep=st.integers(0, 600))
def test_any_chain_of_compactions_leaves_requests_that_no_provider_refuses(
    tmp_path_factory: pytest.TempPathFactory, chain: list[list[list[dict[str, Any]]]], keep: int
) -> None:
    path = tmp_path_factory.mktemp("chain") / "session.jsonl"

    async def go() -> None:
        o = Office(path, turns=0)
        for n, turns in enumerate(chain):
            for k, messages in enumerate(turns):
                add(o.history, _with_ids_of_their_own(messages, n * 100 + k), n * 100 + k)
            last = o.history.lines[-1]
            await o.compaction.now(o.history, keep)
            assert o.history.lines[-1] == last or json.loads(o.history.lines[-1])["content"].endswith(json.loads(last)["content"])
            for dialect in context.Shape(), context.Shape(after_tool="assistant_only"):
                asked = context.build([*map(json.loads, o.history.lines), {"role": "user", "content": "next"}], dialect)
                assert not context.check(asked, "strict" if dialect.after_tool == "assistant_only" else "anthropic")
            again = History(path, session="s")
            assert (again.lines, again.copied) == (o.history.lines, o.history.copied)
            again.close()
        said = path.read_text().count('{"role":"user"')
        assert said == sum(message["role"] == "user" for turns in chain for messages in turns for message in messages), "all of it is in the file"
        o.history.close()

    asyncio.run(go())
