"""Markdown on a terminal: what it looks like, and what can never come out."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.programs.terminal.markdown import WIDEST, columns_of, dim, render

SGR = re.compile(r"\x1b\[\d+m")
LINES = st.text(alphabet="ab *_`~#>|-1.[]()\\ \n中文🎉é", max_size=200)


def plain(text: str, width: int = 80) -> str:
    return render(text, width, colour=False)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("**bold** and *it* and `code`", "bold and it and code\n"),
        ("# Title", "Title\n"),
        ("- a\n* b\n  + c\n1. d", "• a\n• b\n  • c\n1. d\n"),
        ("> quoted **words**", "│ quoted words\n"),
        ("[text](http://x.org/a_b)", "text (http://x.org/a_b)\n"),
        ("[http://x](http://x)", "http://x\n"),
        ("snake_case_name and 2 * 3 * 4 and a*b*c", "snake_case_name and 2 * 3 * 4 and a*b*c\n"),
        (r"\*not\* \_it\_", "*not* _it_\n"),
        ("`**not bold**` and ``a ` b``", "**not bold** and a ` b\n"),
        ("```python\nif x:\n\n    y\n```", "  if x:\n\n      y\n"),
        ("```\nnever closed", "  never closed\n"),
        ("---", "─" * 40 + "\n"),
        ("a\nb", "a\nb\n"),
        ("| a | b |\n|---|---|\n| 中文 | x |", "a     b\n────  ─\n中文  x\n"),
        ("a | b\nno table", "a | b\nno table\n"),
        ("", "\n"),
    ],
)
def test_how_it_looks(text: str, wanted: str) -> None:
    assert plain(text) == wanted


def test_colours_are_put_on_and_taken_off() -> None:
    assert render("**b** *i* `c`", 80) == "\x1b[1mb\x1b[22m \x1b[3mi\x1b[23m \x1b[36mc\x1b[39m\n"


@given(LINES, st.integers(10, 120))
def test_only_our_own_escapes_come_out_and_each_is_ended(text: str, width: int) -> None:
    shown = render(text, width)
    assert "\x1b" not in SGR.sub("", shown)
    for on, off in ((1, 22), (3, 23), (4, 24), (9, 29), (36, 39)):
        last = max(shown.rfind(f"\x1b[{on}m"), shown.rfind("\x1b[2m") if off == 22 else -1)
        assert last < 0 or shown.find(f"\x1b[{off}m", last) > 0
    assert SGR.sub("", shown) == render(text, width, colour=False)


@given(st.text(alphabet="abc 中文", max_size=300), st.integers(8, 120))
def test_prose_is_wrapped_and_loses_no_letter(text: str, width: int) -> None:
    shown = plain(text, width)
    assert "".join(shown.split()) == "".join(text.split())
    for line in shown.splitlines():
        words = line.split()
        assert columns_of(line) <= min(width, WIDEST) or len(words) == 1


@given(st.text(max_size=100))
def test_nothing_from_outside_can_move_the_cursor(text: str) -> None:
    shown = SGR.sub("", render(text + "\x1b[2J\x1b]0;t\x07\x9bH", 80) + dim(text + "\x1b[5m"))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_list_items_hang() -> None:
    assert plain("- one two three four five six", 20) == "• one two three four\n  five six\n"
