"""A command line taken apart: as the standard library does it."""

from __future__ import annotations

import shlex

from hypothesis import example, given
from hypothesis import strategies as st

from bubbles.sandboxes.words import MARKS, split

TEXTS = st.text(st.sampled_from("ab '\"\\\n\t\r;&|()<>`$#*=~-é\x0b\u2003")) | st.text()


def as_the_library(text: str) -> list[str] | None:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=MARKS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        return list(lexer)
    except ValueError:
        return None


@given(TEXTS)
@example("\"a\\\"b\\$c\\\\\" ''x'' \\\n")
@example("'' \"\" a''")
@example("a\\")
def test_it_gives_what_the_library_gives(text: str) -> None:
    try:
        found: list[str] | None = split(text)
    except ValueError:
        found = None
    assert found == as_the_library(text)
