"""Whatever a session lives through, no vendor refuses the requests that are made of it.

In the ordinary suite 2 000 histories, in the soak (BUBBLES_TEST_SOAK=1) 100 000; how often each shape occurred is told at the end.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bubbles import config
from bubbles.agentd.request import Tools
from bubbles.agentd.session import Session
from bubbles.kernel import context
from bubbles.kernel.context import Shape
from bubbles.paths import Home
from bubbles.providers.provider import Capabilities
from bubbles.tools import load, schemas
from tests.disasters.soak import SOAK
from tests.kernel.histories import translate
from tests.kernel.histories.chat import BETWEEN, FOREIGN, TURNS, Chat

HISTORIES = int(os.environ.get("BUBBLES_TEST_HISTORIES", 100_000 if SOAK else 2000))
SHAPES = [
    Shape(tools=tools, reasoning=reasoning, after_tool=after)
    for tools, reasoning, after in product((True, True, False), ("drop", "keep", "require"), ("user_ok", "assistant_only"))
]
WINDOWS = (0, 512, 4096, 16_384, 200_000)
WHAT_HAPPENS = st.lists(st.tuples(st.sampled_from((*TURNS, *TURNS, *BETWEEN)), st.integers(0, 2**32 - 1)), min_size=1, max_size=8 if SOAK else 3)


class Judge:
    """Holds each request against the rules of the dialects, and some of them, as they are translated, against those of the vendors."""

    def __init__(self) -> None:
        self.told: Counter[str] = Counter()
        self.last: tuple[list[bytes], Shape, bytes] | None = None
        self.window = 0
        self.sees = False

    def __call__(self, lines: Sequence[bytes], shape: Shape, tools: bytes) -> None:
        messages = [json.loads(line) for line in lines]
        dialects = ["openai", "anthropic"] if shape.after_tool == "user_ok" else ["openai", "anthropic", "strict"]
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


def test_no_vendor_refuses_what_a_history_of_chance_becomes(session: Session, tools: Tools, record_property: Callable[[str, Any], None]) -> None:
    judge = Judge()

    @settings(max_examples=HISTORIES, database=None, suppress_health_check=list(HealthCheck))
    @given(WHAT_HAPPENS, st.sampled_from(SHAPES), st.sampled_from(WINDOWS), st.booleans(), st.sampled_from(sorted(translate.VENDORS)))
    def live(happens: list[tuple[str, int]], shape: Shape, window: int, sees: bool, vendor: str) -> None:
        judge.told["histories"] += 1
        judge.told[f"shape: tools {shape.tools}, reasoning {shape.reasoning}, after a result {shape.after_tool}"] += 1
        judge.told[f"window of {window or 'unknown'}"] += 1
        judge.window, judge.sees, judge.last = window, sees, None
        chat = Chat(session, tools if shape.tools else Tools(), shape, window, judge, judge.told, sees=sees)
        for kind, seed in happens:
            chat.happen(kind, seed)
        if judge.last:
            judge.translated(vendor)

    live()
    record_property("told", f"{judge.told['requests']} requests of {judge.told['histories']} histories, none refused:\n{_told(judge.told)}")
    assert not [name for name in _EXPECTED if not judge.told[name]]


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
    judge = Judge()
    built = context.build(messages, Shape(shape.tools, shape.reasoning, shape.after_tool, system))
    judge([context.encode(message) for message in built], shape, b"")
    judge.translated(vendor)
