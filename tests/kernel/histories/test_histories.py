"""Whatever a session lives through, no vendor refuses the requests that are made of it.

In the ordinary suite 1 000 histories, in the soak (BUBBLES_TEST_SOAK=1) 100 000, and more until each shape occurred; how often is told at the end.
A history is made of one number. The first of a run is drawn, and told if a history fails; BUBBLES_TEST_FIRST names it, for a part of a soak or again.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from random import Random, SystemRandom
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles import config
from bubbles.agentd.request import Tools
from bubbles.agentd.session import Session
from bubbles.kernel import context, weight
from bubbles.kernel.context import Shape
from bubbles.paths import Home
from bubbles.providers.provider import Capabilities
from bubbles.tools import load, schemas
from tests.disasters.soak import SOAK
from tests.kernel.histories import translate
from tests.kernel.histories.chat import BETWEEN, FOREIGN, TURNS, Chat

HISTORIES = int(os.environ.get("BUBBLES_TEST_HISTORIES", 100_000 if SOAK else 1000))
SHAPES = [
    Shape(tools=tools, reasoning=reasoning, after_tool=after)
    for tools, reasoning, after in product((True, True, False), ("drop", "keep", "require"), ("user_ok", "assistant_only"))
]
WINDOWS = (0, 512, 4096, 16_384, 200_000)
HAPPENS = (*TURNS, *TURNS, *BETWEEN)
MOST = 8 if SOAK else 4  # happenings of one history


@dataclass(frozen=True)
class Life:
    """What is to happen to a session, each with a seed of its own, and the model that it talks to."""

    happens: tuple[tuple[str, int], ...]
    shape: Shape
    window: int
    sees: bool
    vendor: str


def _life(seed: int) -> Life:
    random = Random(seed)
    happens = tuple((random.choice(HAPPENS), random.getrandbits(32)) for _ in range(random.randint(1, MOST)))
    return Life(happens, random.choice(SHAPES), random.choice(WINDOWS), random.random() < 0.5, random.choice(sorted(translate.VENDORS)))


class Judge:
    """Holds each request against the rules of the dialects, and some of them, as they are translated, against those of the vendors."""

    def __init__(self, told: Counter[str], window: int = 0, *, sees: bool = False) -> None:
        self.told, self.window, self.sees = told, window, sees
        self.last: tuple[list[bytes], Shape, bytes] | None = None

    def __call__(self, lines: Sequence[bytes], shape: Shape, tools: bytes) -> None:
        messages = [_loaded(line) for line in lines]
        dialects = ["anthropic"] if shape.after_tool == "user_ok" else ["anthropic", "strict"]  # either refuses all that "openai" does
        for dialect in dialects:
            assert not (faults := context.check(messages, dialect)), (dialect, faults)
        self.told["requests"] += 1
        self.told["longest request, messages"] = max(self.told["longest request, messages"], len(lines))
        self.last = list(lines), shape, tools
        self.translated("openai")
        if SOAK:
            for vendor in translate.VENDORS:
                self.translated(vendor)

    def translated(self, vendor: str) -> None:
        """Hold the last request against a vendor's rules."""
        assert self.last
        lines, shape, tools = self.last
        can = Capabilities(
            tools=shape.tools, vision=self.sees, cache=True, window_tokens=self.window, output_tokens=0, reasoning=shape.reasoning,
            after_tool=shape.after_tool,
        )  # fmt: skip
        assert not (faults := translate.VENDORS[vendor](lines, tools, can)), (vendor, faults)
        self.told[f"requests to {vendor}"] += 1


@lru_cache(2000)
def _loaded(line: bytes) -> Any:
    """A message, which is looked at and not altered: most lines of a request were in the one before."""
    return json.loads(line)


@pytest.fixture
def tools(home: Home) -> Tools:
    """The product's own."""
    return Tools.of(schemas(load(config.load(home).tools)))


@pytest.fixture
def session(home: Home) -> Iterator[Session]:
    made = Session(home, "s", config.load(home))
    yield made
    made.close()


def _told(counted: Counter[str]) -> str:
    return "\n".join(f"  {count:>8}  {name}" for name, count in sorted(counted.items(), key=lambda item: -item[1]))


def test_no_vendor_refuses_what_a_history_of_chance_becomes(
    session: Session, tools: Tools, record_property: Callable[[str, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weight, "_exact", lru_cache(2000)(weight._exact))  # half of what the test would take
    told: Counter[str] = Counter()
    first = seed = int(os.environ.get("BUBBLES_TEST_FIRST") or SystemRandom().getrandbits(48))
    while told["histories"] < HISTORIES or (_missing(told) and told["histories"] < 10 * HISTORIES):
        life, seed = _life(seed), seed + 1
        try:
            _live(session, tools, life, told)
        except Exception as fault:
            least = _shortest(session, tools, life)
            raise AssertionError(f"BUBBLES_TEST_FIRST={seed - 1}: {least}") from fault
    record_property("told", f"{told['requests']} requests of {told['histories']} histories from {first} on, none refused:\n{_told(told)}")
    assert not _missing(told)


def _missing(told: Counter[str]) -> list[str]:
    return [name for name in _EXPECTED if not told[name]]


def _live(session: Session, tools: Tools, life: Life, told: Counter[str]) -> None:
    """A history from the beginning on: any of its requests may fail, and the last also as a vendor gets it."""
    told["histories"] += 1
    told[f"shape: tools {life.shape.tools}, reasoning {life.shape.reasoning}, after a result {life.shape.after_tool}"] += 1
    told[f"window of {life.window or 'unknown'}"] += 1
    judge = Judge(told, life.window, sees=life.sees)
    chat = Chat(session, tools if life.shape.tools else Tools(), life.shape, life.window, judge, told, sees=life.sees)
    for kind, seed in life.happens:
        chat.happen(kind, seed)
    if judge.last:
        judge.translated(life.vendor)


def _shortest(session: Session, tools: Tools, life: Life) -> Life:
    """A life that fails, with nothing in it that could be left out."""
    for place in reversed(range(len(life.happens))):
        shorter = replace(life, happens=life.happens[:place] + life.happens[place + 1 :])
        try:
            _live(session, tools, shorter, Counter())
        except Exception:
            life = shorter
    return life


_EXPECTED = (
    "several calls at once", "two calls of one id at once", "equal calls at once", "ids that are odd or empty", "no words beside calls",
    "an empty answer", "pictures shown to a model that sees", "arguments that are no JSON object", "a process that died in a turn",
    "turns stopped by a person", "words in the middle of a turn", "a request that words cancelled", "a result that came late",
    "a result that came twice", "words that were only heard", "files beside words", "several people in one turn",
    "a stretch that became a summary", "a compaction within a turn", "reasoning beside an answer", "texts of more than 20 000 characters",
    "a result of more than 5 000 characters", "texts beyond the BMP, right to left, controls or lone surrogates", "blank texts",
    "a model that failed", "a model that found it too long", "a conversation begun anew", "a restart",
    "lines that are damaged, lost, doubled or of another program", "leave asked for a call",
    "a request that was made anew: fitted, or in another shape", "a note that was edited",
)  # fmt: skip


@settings(max_examples=300 if not SOAK else 20_000, database=None)
@given(st.lists(st.sampled_from(FOREIGN), max_size=12), st.sampled_from(SHAPES), st.booleans(), st.sampled_from(sorted(translate.VENDORS)))
def test_messages_of_another_program_become_a_request(messages: list[Any], shape: Shape, system: bool, vendor: str) -> None:
    """Content that is null, empty or in parts, results with images, calls in other forms: built straight from there."""
    judge = Judge(Counter())
    built = context.build(messages, Shape(shape.tools, shape.reasoning, shape.after_tool, system))
    judge([context.encode(message) for message in built], shape, b"")
    judge.translated(vendor)
