"""The fold: each rule as a transcript, each transcript crashed at every line, and turns of chance against what must always hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from bubbles.errors import ProtocolError
from bubbles.kernel import context
from bubbles.kernel.actions import Action, AskModel, Close, Compact
from bubbles.kernel.events import (
    ApprovalAsked,
    ApprovalGiven,
    Call,
    Compacted,
    Event,
    Heard,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Resumed,
    Said,
    Stopped,
    ToolFinished,
    ToolStarted,
    UserSpoke,
)
from bubbles.kernel.turn import Rules, Turn
from bubbles.messages import Address, Media
from tests.disasters.soak import SOAK
from tests.kernel import transcript
from tests.kernel.driving import World, drive, sound, survive
from tests.kernel.weighing import weighing


@pytest.mark.parametrize("path", transcript.CASES, ids=lambda path: path.stem)
def test_a_case_goes_as_told(path: Path) -> None:
    case = transcript.load(path)
    turn = case.turn()
    transcript.play(case, turn)
    assert isinstance(turn.next(), Close)


class Rest(World):
    """The world of a case from one of its lines on: what its model answers, its tools return and its people say is what is still to come."""

    def __init__(self, before: list[Event], after: list[Event]) -> None:
        super().__init__(Random(len(before)))
        self.journal = before
        self.ran = [event.call for event in before if isinstance(event, ToolStarted)]
        self.replies = [event for event in after if isinstance(event, ModelAnswered | ModelFailed)]
        self.results = {event.call: event.text for event in after if isinstance(event, ToolFinished)}
        self.people = [event for event in after if isinstance(event, UserSpoke | Heard | Stopped)]

    def says(self) -> Iterable[Event]:
        return [self.people.pop(0)] if self.people else []

    def answers(self) -> ModelAnswered | ModelFailed:
        return self.replies.pop(0) if self.replies else ModelAnswered("done")

    def tool(self, call: Call) -> str:
        return self.results.get(call.id, "ok")


@pytest.mark.parametrize("path", transcript.CASES, ids=lambda path: path.stem)
def test_a_case_crashed_at_every_line_and_resumed(path: Path) -> None:
    case = transcript.load(path)
    journal = transcript.play(case, case.turn())
    for line in range(1, len(journal) + 1):
        turn = case.turn()
        world = Rest(journal[:line], journal[line:])
        for event in [*world.journal, Resumed()]:
            turn.apply(event)
        world.journal.append(Resumed())
        world.sent = {say.n: say for say in turn.says[: sum(isinstance(event, Said) for event in journal[:line])]}
        assert drive(turn, world) == turn.next().outcome  # type: ignore[union-attr]
        sound(turn, world)


class Chance(World):
    """A world that does everything it may, and some things it should not."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed))
        self.deaths = self.random.choice((0, 1, 1, 2, 4))
        self.spoken = 0

    def dies(self) -> bool:
        if self.deaths and self.random.random() < 0.08:
            self.deaths -= 1
            return True
        return False

    def says(self) -> Iterable[Event]:
        if self.random.random() > 0.12:
            return
        self.spoken += 1
        event = self.random.choices((self._spoke, self._heard, Stopped), (12, 2, 1))[0]()
        yield event
        if self.random.random() < 0.2:
            yield event if isinstance(event, UserSpoke) else self._spoke()

    def _spoke(self) -> UserSpoke:
        self.spoken += 1
        origin = self.random.choice(("user", "user", "system"))
        return UserSpoke(f"u{self.spoken}", f"words {self.spoken}", address=Address("cli", self.random.choice("ab")), origin=origin)

    def _heard(self) -> Heard:
        return Heard(f"h{self.spoken}", f"heard {self.spoken}")

    def answers(self) -> ModelAnswered | ModelFailed:
        kind = self.random.random()
        if kind < 0.1:
            return ModelFailed(self.random.choice(("model_down", "context_too_long", "context_too_long")), 1)
        text = self.random.choice(("", " \n", "text", "\ud83d", "x" * 300, "文字"))
        reasoning = self.random.choice(("", "thought"))
        calls = tuple(self._call() for _ in range(self.random.choice((0, 0, 1, 1, 2, 4))))
        return ModelAnswered(text, calls, reasoning, usage={"input": self.random.choice((0, 50, 500)), "output": 3})

    def _call(self) -> Call:
        name = self.random.choice(("exec", "read_file", "list_dir", "pay", "stay_silent", "no such tool", ""))
        id = self.random.choice(("", "c1", "call_0", "call_0", "a/b", "\0", "x" * 99))
        return Call(id, name, self.random.choice(("{}", "", "{", '["a"]', '{"a":"\\ud83d"}', '{"a":NaN}')))

    def tool(self, call: Call) -> str:
        return self.random.choice(("ok", "", "\ud83d\0", "line\n" * 200))

    def allows(self) -> bool:
        return self.random.random() < 0.5

    def base_tokens(self) -> int:
        return self.random.choice((10, 300, 5000))


def rules(random: Random) -> Rules:
    return Rules(
        max_iterations=random.choice((1, 3, 8, 12)),
        free=frozenset({"read_file", "list_dir"}),
        interjection=random.choice(("join", "preempt")),
        consent=random.choice((frozenset(), frozenset({"pay", "list_dir"}))),
        window_tokens=random.choice((0, 400, 2000)),
        base_tokens=random.choice((0, 100, 600)),
    )


TURNS = 1000 if SOAK else 400  # of each part


@pytest.mark.parametrize("part", range(10))
def test_turns_of_chance(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + TURNS):
        world = Chance(seed)
        origin = world.random.choice(("user", "user", "system"))
        turn = Turn(f"t.{origin}", origin, rules(world.random))
        first = UserSpoke("u0", "hello", address=Address("cli", "a"), origin=origin)
        turn.apply(first)
        world.journal.append(first)
        try:
            turn, outcome = survive(turn, world)
            sound(turn, world)
            assert outcome != "silent" or origin == "system"
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def after(*events: Event, **rules: object) -> Turn:
    turn = Turn("t", rules=Rules(**rules))  # type: ignore[arg-type]
    for event in events:
        turn.apply(event)
    return turn


HELLO, ASKED = UserSpoke("u1", "hello"), ModelAsked("t.0")
C1, C2, C3 = "call_1aB2c", "call_2aB2c", "call_3aB2c"
CALLED = ModelAnswered("", (Call(C1, "exec"), Call(C2, "exec")))


@pytest.mark.parametrize(
    "journal",
    [
        [ModelAnswered("hi")],
        [HELLO, ModelAnswered("hi")],
        [HELLO, ModelFailed("model_down")],
        [HELLO, ASKED, ModelFailed("preempted"), ModelAnswered("hi")],
        [HELLO, ASKED, Resumed(), ModelAnswered("hi")],
        [HELLO, ASKED, CALLED, CALLED],
        [HELLO, ASKED, CALLED, ModelAsked("t.1")],
        [HELLO, ToolStarted(C1)],
        [HELLO, ASKED, CALLED, ToolStarted(C3)],
        [HELLO, ASKED, CALLED, ToolFinished(C1, "ok")],
        [HELLO, ASKED, CALLED, ToolStarted(C1), ToolStarted(C1)],
        [HELLO, ASKED, CALLED, ToolStarted(C1), ToolFinished(C1, "ok"), ToolStarted(C1)],
        [HELLO, ASKED, CALLED, UserSpoke("u2", "no"), ToolStarted(C1)],
        [HELLO, ASKED, CALLED, ApprovalAsked(C3)],
        [HELLO, ASKED, CALLED, ApprovalGiven(C3, True)],
        [HELLO, Said(0)],
        [HELLO, ASKED, ModelAnswered("hi"), Said(1)],
    ],
)
def test_what_no_turn_could_have_met_is_refused_and_changes_nothing(journal: list[Event]) -> None:
    turn, same = after(*journal[:-1]), after(*journal[:-1])
    with pytest.raises(ProtocolError):
        turn.apply(journal[-1])
    assert vars(turn) == vars(same)


LATE = [
    ModelAsked("t.1"),
    ModelAnswered("hi", (Call("c9", "exec"),)),
    ModelFailed("model_down"),
    ToolStarted(C2),
    ToolFinished(C1, "ok"),
    Stopped(),
]


@pytest.mark.parametrize("late", LATE)
def test_what_comes_after_a_stop_is_ignored(late: Event) -> None:
    stopped = [HELLO, ASKED, CALLED, ToolStarted(C1), UserSpoke("u2", "and?"), Stopped()]
    turn, same = after(*stopped), after(*stopped)
    turn.apply(late)
    turn.resumed_in_a_row = 0
    assert vars(turn) == vars(same)


def test_next_changes_nothing() -> None:
    turn = after(HELLO, ASKED, CALLED)
    before = repr(vars(turn))
    turn.next(), turn.request(), turn.preempt, turn.to  # noqa: B018
    assert repr(vars(turn)) == before


def test_an_empty_journal_closes_and_keeps_nothing() -> None:
    assert after().next() == Close("silent")
    assert after(Heard("h1", "weather")).next() == Close("silent")


def test_a_said_line_written_twice_is_one() -> None:
    turn = after(HELLO, ASKED, ModelAnswered("hi"), Said(0), Said(0))
    assert turn.next() == Close("replied")


def test_a_failure_knows_whom_to_tell_and_how_often_it_was_tried() -> None:
    turn = after(HELLO, ASKED, ModelFailed("rate_limited", 3))
    assert turn.failure == ModelFailed("rate_limited", 3)
    assert turn.to == (HELLO,)


def test_usage_is_summed() -> None:
    answered = ModelAnswered("", (Call(C1, "exec"),), usage={"input": 10, "output": 2})
    turn = after(HELLO, ASKED, answered, ToolStarted(C1), ToolFinished(C1, "ok"), ModelAsked("t.1"), ModelAnswered("hi", usage={"input": 20}))
    assert turn.usage == {"input": 30, "output": 2}


def test_ids_are_told_apart_between_turns_as_well() -> None:
    """Some models call every first call call_0, and Anthropic refuses a request in which an id comes twice."""
    session = []
    for id in ("telegram-1", "telegram-2"):
        turn = Turn(id)
        calls = tuple(Call(name, "exec") for name in ("call_0", "call_0", "", "toolcall_12", "functions.exec:0"))
        for event in (HELLO, ModelAsked(f"{id}.0"), ModelAnswered("", calls), Stopped()):
            turn.apply(event)
        session += turn.messages
    session.append({"role": "user", "content": "well?"})
    assert context.check(session, "openai") == context.check(session, "anthropic") == []


def test_an_id_that_looks_random_is_kept() -> None:
    for id in ("call_9Xk2mQpLw0", "toolu_01A09q90qw90lq917835lq9", "D681PevKs", "chatcmpl-tool-0a1b2c3d4e5f"):
        turn = after(HELLO, ASKED, ModelAnswered("", (Call(id, "exec"),)))
        assert turn.messages[-1]["tool_calls"][0]["id"] == id


def test_files_are_told_with_the_words() -> None:
    word = UserSpoke("u1", "look", header="[Mon 2026-11-30 12:40 CET · telegram · Ann]", media=(Media("../data/a.png", type="image/png", size=12),))
    assert after(word).request() == [
        {"role": "user", "content": "[Mon 2026-11-30 12:40 CET · telegram · Ann]\nlook\n[file: ../data/a.png, image/png, 12 bytes]"}
    ]
    assert after(UserSpoke("u1", "")).request() == [{"role": "user", "content": "(empty)"}]


class Window(World):
    """A model with a window: it refuses what is longer, and asks for one big result after the other."""

    def __init__(self, turn: Turn, window: int, rounds: int, told: float = 1.0) -> None:
        super().__init__(Random(0))
        self.turn, self.window, self.rounds, self.told = turn, window, rounds, told
        self.journal = [HELLO]
        self.refused = 0

    def answers(self) -> ModelAnswered | ModelFailed:
        real = int((self.turn.base_tokens + context.tokens(context.build(self.turn.request()))) * self.told)
        if real > self.window:
            self.refused += 1
            return ModelFailed("context_too_long", 1)
        self.rounds -= 1
        usage = {"input": real, "output": 9}
        return ModelAnswered("done", usage=usage) if self.rounds < 0 else ModelAnswered("", (Call("", "exec"),), usage=usage)

    def tool(self, call: Call) -> str:
        return "line of output\n" * 2000

    def base_tokens(self) -> int:
        return min(self.turn.base_tokens, 6000)


def test_many_middling_results_never_overflow_a_known_window() -> None:
    turn = after(HELLO, window_tokens=128_000, base_tokens=90_000, max_iterations=60)
    world = Window(turn, 128_000, 40)
    assert drive(turn, world) == "replied"
    assert world.refused == 0
    assert 2 <= turn.compactions <= 8
    assert sum(len(message["content"]) for message in turn.messages) > 40 * 29_000, "history keeps every result whole"
    sound(turn, world)


def test_an_unknown_window_is_found_by_being_refused() -> None:
    turn = after(HELLO, base_tokens=20_000, max_iterations=60)
    world = Window(turn, 32_000, 20)
    assert drive(turn, world) == "replied"
    assert 0 < world.refused == turn.compactions <= 8


def test_a_vocabulary_of_its_own_is_learnt_from_what_the_model_reports() -> None:
    turn = after(HELLO, window_tokens=64_000, base_tokens=6000, max_iterations=60)
    world = Window(turn, 64_000, 20, told=2.0)
    assert drive(turn, world) == "replied"
    assert world.refused == 0
    assert turn.scale == pytest.approx(2.0, rel=0.01)


def test_without_a_known_base_nothing_is_learnt() -> None:
    assert after(HELLO, ASKED, ModelAnswered("hi", usage={"input": 5000})).scale == 1.0


def test_a_window_that_nothing_fits_ends_the_turn_after_few_tries() -> None:
    turn = after(HELLO, window_tokens=8000, base_tokens=30_000)
    world = Window(turn, 2000, 5)
    assert drive(turn, world) == "failed:context_too_long"
    assert world.refused == 2
    assert turn.messages == [{"role": "user", "content": "hello"}]


def test_compactions_of_a_turn_are_bounded() -> None:
    full = {"window_tokens": 1000, "base_tokens": 900, "max_compactions": 1}
    called = ModelAnswered("", (Call(C1, "exec"),))
    turn = after(HELLO, Compacted(900), ASKED, called, ToolStarted(C1), ToolFinished(C1, "ok"), **full)
    assert turn.next() == AskModel(1)
    turn.apply(ModelAsked("t.1"))
    turn.apply(ModelFailed("context_too_long", 1))
    assert turn.next() == Close("failed:context_too_long")


def test_a_request_that_can_be_joined_is_joined_and_not_compacted() -> None:
    assert after(HELLO, ASKED, Resumed(), window_tokens=1000, base_tokens=900).next() == AskModel(0)


@pytest.mark.parametrize(("reasoning", "action"), [("drop", AskModel(1)), ("keep", Compact("window"))])
def test_thoughts_weigh_only_where_they_are_sent_back(reasoning: str, action: Action) -> None:
    thought = ModelAnswered("", (Call(C1, "exec"),), reasoning="hm " * 2000)
    shape = context.Shape(reasoning=reasoning)
    turn = after(HELLO, ASKED, thought, ToolStarted(C1), ToolFinished(C1, "ok"), window_tokens=2000, base_tokens=100, shape=shape)
    assert turn.next() == action


def test_an_answer_never_takes_more_than_a_quarter_of_a_small_window() -> None:
    assert Rules(window_tokens=8192, answer_tokens=8192).budget_tokens == 6144
    assert Rules(window_tokens=128_000).budget_tokens == 128_000 - 8192
    assert Rules().budget_tokens == 0


@pytest.mark.parametrize("text", ["some words here\n" * 62_500, "文" * 333_333, "x" * 1_000_000], ids=["words", "chinese", "one"])
def test_a_large_message_is_weighed_once_however_often_one_asks_what_to_do(text: str) -> None:
    turn = Turn("t", rules=Rules(window_tokens=200_000, base_tokens=1000))
    with weighing() as count:
        turn.apply(UserSpoke("m1", text))
        turn.apply(Heard("m2", text))
    assert 0 < count.characters < 80_000
    with weighing() as count:
        for _ in range(100):
            assert turn.next() in (AskModel(0), Compact("window"))
            turn.request()
        turn.apply(ModelAsked("t.0"))
        turn.apply(UserSpoke("m3", "and"))
        for _ in range(100):
            turn.next()
            turn.request()
    assert count.characters < 100
    assert [message["content"] for message in turn.messages] == [text, text]


def test_what_a_word_weighs_does_not_depend_on_when_it_is_shown() -> None:
    turn, other = Turn("t"), Turn("t")
    turn.apply(UserSpoke("m1", "some words", media=(Media("data/a.png", "a.png", "image/png", 3),)))
    turn.apply(UserSpoke("m1", "some words"))
    turn.apply(ModelAsked("t.0"))
    other.apply(UserSpoke("m1", "some words", media=(Media("data/a.png", "a.png", "image/png", 3),)))
    other.apply(ModelAsked("t.0"))
    assert turn.messages == other.messages
    assert turn._weight == context.tokens(turn.messages)
    assert not turn._new


def test_an_aside_is_for_people_and_is_said_once_with_the_next_words() -> None:
    turn = Turn("t")
    turn.apply(UserSpoke("m1", "hello", address=Address("cli", "s")))
    for n, calls in enumerate([(Call("call_7Qd2x", "exec"),), ()]):
        turn.apply(ModelAsked(f"t.{n}"))
        turn.apply(ModelAnswered("" if calls else "Good day.", calls, aside="(By another.)"))
        for call in calls:
            turn.apply(ToolStarted(call.id))
            turn.apply(ToolFinished(call.id, "ok"))
    assert [say.text for say in turn.says] == ["Good day.\n\n(By another.)"]
    assert turn.messages[-1]["content"] == "Good day."
