"""The fold: each rule as a transcript, each transcript crashed at every line, and turns of chance against what must always hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from bubbles.errors import ProtocolError
from bubbles.kernel.actions import Close
from bubbles.kernel.events import (
    Call,
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
from bubbles.messages import Address
from tests.kernel import transcript
from tests.kernel.driving import World, drive, sound, survive


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


@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_turns_of_chance(part: int) -> None:
    for seed in range(part * 1000, part * 1000 + 1000):
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
