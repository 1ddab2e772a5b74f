"""How things stand, as lines: aligned in a pipe, with marks and colour at a terminal."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.programs.screen import Block, ago, plain
from tests.programs.conftest import PYTHON
from tests.programs.run import ROOT
from tests.programs.terminal_under_test import Terminal

WORDS = st.text("abc \x1b[\n\u202e中", max_size=12)
PROGRAM = """
from bubbles.programs.screen import Block, show
facts, daemons = Block(), Block(heads=("daemon", "state"))
facts.add("model", "a very long explanation " * 8)
daemons.add("agentd", "up", "pid 7", mark="ok")
daemons.add("modeld", "failed", "\\x1b[2Jgone", mark="bad")
facts.add_with_remedy("wrong", "it is broken", "mend it", mark="bad")
show([facts, Block(), daemons])
"""


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=6), st.booleans())
def test_in_a_pipe_columns_begin_below_each_other(rows: list[tuple[str, str, str]], headed: bool) -> None:
    block = Block(heads=("head", "a", "b", "c") if headed else ())
    for name, *cells in rows:
        block.add(name, "x" + cells[0], "y" + cells[1], "z")
    lines = list(plain([block]))[headed:]
    assert len(lines) == len(rows)
    assert not any(character in line for line in lines for character in "\x1b\n\u202e")
    assert len({(line.index("x"), line.index("y"), line.index("z")) for line in lines}) == 1


def test_one_column_of_names_for_all_blocks_and_no_empty_line() -> None:
    first, second = Block(), Block()
    first.add("model", "m")
    second.add("a-long-name", "n", mark="bad")
    second.add_with_remedy("wrong", "w", "do it", mark="bad")
    assert list(plain([first, second])) == ["model        m", "a-long-name  n", "wrong        w", "             try: do it"]


def drawn(**env: str) -> Terminal:
    command = ["env", f"PYTHONPATH={ROOT}", PYTHON, "-c", PROGRAM]
    terminal = Terminal([], {"TERM": "xterm-256color", "LANG": "C.UTF-8", **env}, command=command)
    assert terminal.end() == 0
    return terminal


def test_at_a_terminal_it_is_drawn_with_marks_and_colour_and_folded() -> None:
    terminal = drawn()
    assert "\x1b[32m●" in terminal.raw
    assert "✗" in terminal.raw
    assert "\x1b[2J" not in terminal.raw
    assert all(len(line.rstrip()) <= 100 for line in terminal.text.splitlines())
    assert "try: mend it" in terminal.text


@pytest.mark.parametrize(
    ("env", "holds"),
    [
        ({"NO_COLOR": "1"}, lambda raw: "●" in raw and "\x1b[3" not in raw),
        ({"TERM": "dumb"}, lambda raw: "●" not in raw and "\x1b" not in raw),
        ({"PYTHONIOENCODING": "ascii:replace"}, lambda raw: "\x1b[32m*" in raw and "?" not in raw),
    ],
)
def test_a_terminal_that_can_do_less_is_given_less(env: dict[str, str], holds: Callable[[str], bool]) -> None:
    assert holds(drawn(**env).raw)


def test_what_draws_is_not_loaded_for_a_pipe() -> None:
    program = f"{PROGRAM}\nimport sys; assert not [name for name in sys.modules if name.startswith('rich')]"
    assert subprocess.run([PYTHON, "-c", program], cwd=ROOT, capture_output=True).returncode == 0


@given(st.floats(-5, 1e9))
def test_a_time_that_has_passed_is_one_number_and_its_unit(seconds: float) -> None:
    number, unit = ago(seconds).split()
    sizes = {"s": (1, 60), "min": (60, 60), "h": (3600, 48), "d": (86_400, 1e9)}
    assert 0 <= int(number) < sizes[unit][1]
    assert int(number) * sizes[unit][0] <= max(seconds, 0)
