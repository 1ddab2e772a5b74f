"""What an actor does with a turn, in a world of chance: a model, tools and people who may say anything at any time, and a process that may die.

`drive` is written as agentd's actor has to be: an action's first event follows `next()` with nothing between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from bubbles.kernel.actions import AskApproval, AskModel, Close, Compact, RunTools, Say
from bubbles.kernel.context import Shape, build, check
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
    ToolFinished,
    ToolStarted,
    UserSpoke,
    from_line,
    to_line,
)
from bubbles.kernel.turn import Turn, words

SHAPES = {"openai": Shape(), "anthropic": Shape(reasoning="keep"), "strict": Shape(after_tool="assistant_only")}
MOST_STEPS = 400


class Died(Exception):
    """The process was killed; the journal has what it has."""


class World:
    """Everything outside the fold. `dies()` is asked after each line of the journal, `says()` what people do at a moment they may do it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.journal: list[Event] = []
        self.ran: list[str] = []
        self.sent: dict[int, Say] = {}
        self.requests: dict[int, list[dict[str, Any]]] = {}
        self.built: dict[str, tuple[int, list[dict[str, Any]]]] = {}

    def dies(self) -> bool:
        return False

    def says(self) -> Iterable[Event]:
        return ()

    def answers(self) -> ModelAnswered | ModelFailed:
        return ModelAnswered("done")

    def tool(self, call: Call) -> str:
        return f"result of {call.id}"

    def allows(self) -> bool:
        return True

    def base_tokens(self) -> int:
        return 10


def drive(turn: Turn, world: World) -> str:
    """Do what the turn wants until it closes; its outcome. Raises Died where the world says so."""
    log = _log(turn, world)
    for _ in range(MOST_STEPS):
        people(turn, world, log)
        match turn.next():
            case AskModel(n):
                seen(turn, world, n)
                log(ModelAsked(f"t.{n}"))
                people(turn, world, log)
                log(ModelFailed("preempted") if turn.preempt else world.answers())
            case RunTools(calls):
                for call in calls:
                    log(ToolStarted(call.id))
                for call in world.random.sample(calls, len(calls)):
                    world.ran.append(call.id)
                    people(turn, world, log)
                    log(ToolFinished(call.id, world.tool(call)))
            case Say() as say:
                assert world.sent.setdefault(say.n, say) == say, "one id, two texts"
                log(Said(say.n))
            case Compact():
                log(Compacted(world.base_tokens()))
            case AskApproval(call):
                log(ApprovalAsked(call.id))
                people(turn, world, log)
                log(ApprovalGiven(call.id, world.allows()))
            case Close(outcome):
                return outcome
    raise AssertionError("the turn does not end")


def _log(turn: Turn, world: World) -> Callable[[Event], None]:
    def log(event: Event) -> None:
        turn.apply(event)
        world.journal.append(event)
        if world.dies():
            raise Died

    return log


def people(turn: Turn, world: World, log: Callable[[Event], None]) -> None:
    for event in world.says():
        log(event)


def seen(turn: Turn, world: World, n: int) -> None:
    """Each request is well-formed for every dialect; one number stands for one request; and it begins as the one before did, for the prompt cache."""
    request = turn.request()
    assert world.requests.setdefault(n, request) == request, "one ask, two requests"
    for dialect, shape in SHAPES.items():
        built = build(request, shape)
        assert not (faults := check(built, dialect)), (dialect, faults, request)
        compactions, before = world.built.get(dialect, (0, []))
        stable = before[: -2 if dialect == "strict" else -1]  # a reminder to answer is seen once, there with a bridge before it
        assert compactions != turn.compactions or built[: len(stable)] == stable, "the request's beginning changed"
        world.built[dialect] = turn.compactions, built


def refold(turn: Turn, journal: Iterable[Event]) -> Turn:
    """The turn that a new process makes of the journal's bytes: the same."""
    again = Turn(turn.id, "system" if turn.id.endswith("system") else "user", turn.rules)
    for event in journal:
        again.apply(from_line(to_line(event, 0.0)))
    assert vars(again) == vars(turn)
    return again


def survive(turn: Turn, world: World) -> tuple[Turn, str]:
    """Drive a turn to its end through as many deaths as the world wants."""
    while True:
        try:
            return turn, drive(turn, world)
        except Died:
            turn = refold(turn, world.journal)
            world.journal.append(Resumed())
            turn.apply(Resumed())


def sound(turn: Turn, world: World) -> None:
    """What holds of every turn that has closed."""
    assert not [fault for fault in check([*turn.messages, {"role": "user", "content": "next"}]) if fault], check(turn.messages)
    assert len(world.ran) == len(set(world.ran)), "a tool ran twice"
    assert set(world.ran) <= {call["id"] for message in turn.messages for call in message.get("tool_calls", ())}
    heard = [*dict.fromkeys(words(event)["content"] for event in world.journal if isinstance(event, Heard))]
    spoken = [*dict.fromkeys(words(event)["content"] for event in world.journal if isinstance(event, UserSpoke))]
    contents = [message["content"] for message in turn.messages if message["role"] == "user"]
    assert [content for content in contents if content not in heard] + [words(word)["content"] for word in turn.waiting] == spoken
    assert sorted([content for content in contents if content in heard] + [words(word)["content"] for word in turn.heard]) == sorted(heard)
    assert [say.text for say in turn.says] == [say.text for say in world.sent.values()]
    assert [m["content"] for m in turn.messages if m["role"] == "assistant" and "tool_calls" not in m] == [say.text for say in turn.says]
    assert turn.iterations <= turn.rules.max_iterations
