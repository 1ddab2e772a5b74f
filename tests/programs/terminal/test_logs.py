"""`--logs` and `--debug`: a call is told line by line, clipped and said so, and nothing in it steers the terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log
from bubbles.paths import Home
from bubbles.programs.entries import Entry
from bubbles.programs.terminal.logs import followed, shown
from tests.programs.test_entries import WORDS, entry, nobody  # noqa: F401 -- a fixture

LEAF = st.none() | st.booleans() | WORDS
JSON = st.recursive(LEAF, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2), max_leaves=4)


def told(one: Entry) -> list[str]:
    """Its lines, without the time."""
    first, *others = shown(one)
    return [first.partition(" ")[2], *others]


def test_a_call_is_told_with_its_arguments_each_by_its_name() -> None:
    arguments = {"command": "cd src\nmake -j2", "timeout_s": 5}
    one = entry(time.time(), f"exec {json.dumps(arguments)}", event="tool.start", tool="exec")
    assert told(one) == ["tool.start exec", "  │ command: cd src", "  │   make -j2", "  │ timeout_s: 5"]
    broken = entry(time.time(), 'exec {"command": "ls', event="tool.start", tool="exec")
    assert told(broken) == ["tool.start exec", '  │ {"command": "ls']


def test_a_result_is_told_line_by_line_and_what_is_left_out_is_said() -> None:
    one = entry(time.time(), "exec failed: " + "\n".join(f"line {n}" for n in range(100)), event="tool.finish", tool="exec", ms="12")
    first, *others = told(one)
    assert first == "tool.finish exec failed (12 ms)"
    assert others[0] == "  │ line 0"
    assert others[-1] == f"  │ … ({100 - len(others) + 1} more lines in the log: bubbles audit --full)"
    assert 10 < len(others) < 40
    (_, wide) = told(entry(time.time(), "exec ok: " + "x" * 5000, event="tool.finish", tool="exec"))
    assert wide.endswith("x … (4600 more characters)")


def test_what_a_model_is_asked_and_answers_is_a_line() -> None:
    assert told(entry(1.0, "t.0", event="model.ask", ask="t.0", model="fake-1")) == ["model.ask t.0 fake-1"]
    (answer,) = told(entry(1.0, "so many words\n" * 100, event="model.answer", ms="812"))
    assert answer.startswith("model.answer so many words\\nso many")
    assert answer.endswith("more characters) (812 ms)")
    assert len(answer) < 200


@given(
    st.sampled_from(["tool.start", "tool.finish", "model.ask", "model.answer", "daemon.bug", "x"]),
    WORDS | st.builds("exec {}".format, JSON.map(json.dumps)),
    st.dictionaries(st.sampled_from(["session", "turn", "tool", "ms", "ask", "usage", "traceback", "model"]), WORDS),
    st.booleans(),
)
def test_nothing_in_an_entry_steers_the_terminal_or_passes_for_another(event: str, message: str, fields: dict[str, str], whose: bool) -> None:
    first, *others = shown(entry(1.0, message, event=event, **fields), whose=whose)
    assert all(log.escaped(line) == line for line in (first, *others))
    assert all(line.startswith("  │ ") for line in others)


@pytest.fixture
def logs(home: Home, nobody: None) -> Iterator[Home]:  # noqa: F811
    log.setup("agentd", home=home, journal="")
    yield home
    log.setup("test", journal="")


def test_a_conversation_is_told_what_concerns_it(logs: Home) -> None:
    def happen() -> None:
        log.event("turn.start", "ours", session="work", turn="t-1")
        log.event("turn.start", "theirs", session="main", turn="t-2")
        log.event("model.retry", "of our turn", turn="t-1")
        log.event("model.retry", "of their turn", turn="t-2")

    heard: dict[bool, list[str]] = {False: [], True: []}
    for everything in (False, True):
        with followed(logs, "work", heard[everything].append, everything=everything):
            happen()
    assert [line.partition(" ")[2] for line in heard[False]] == ["turn.start ours", "model.retry of our turn"]
    assert [line.partition(" ")[2] for line in heard[True]] == [
        "agentd [work] turn.start ours",
        "agentd [main] turn.start theirs",
        "agentd model.retry of our turn",
        "agentd model.retry of their turn",
    ]
