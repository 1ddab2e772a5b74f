"""One stretch of a text exchanged: exactly that stretch, or nothing and a hint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import ToolError
from bubbles.workspace.editing import exchange

texts = st.text(st.sampled_from("ab \n\té中"), max_size=60)


@given(texts, texts.filter(bool), texts)
def test_what_is_unique_is_exchanged_and_nothing_else_is(text: str, old: str, new: str) -> None:
    count = text.count(old)
    if count == 1 and old != new:
        changed, lines = exchange(text, old, new)
        assert changed == text.replace(old, new)
        assert lines == [text[: text.index(old)].count("\n") + 1]
    else:
        with pytest.raises(ToolError):
            exchange(text, old, new)


@given(texts, texts.filter(bool), texts)
def test_everywhere_means_everywhere(text: str, old: str, new: str) -> None:
    if old == new or old not in text:
        with pytest.raises(ToolError):
            exchange(text, old, new, everywhere=True)
        return
    changed, lines = exchange(text, old, new, everywhere=True)
    assert changed == text.replace(old, new)
    assert len(lines) == text.count(old)
    assert lines == sorted(lines)


@given(st.lists(st.text("abc ", max_size=8), min_size=1, max_size=6), st.text("xyz\n", min_size=1, max_size=8))
def test_an_edit_is_undone_by_its_reverse(lines: list[str], new: str) -> None:
    text = "\n".join([*lines, "MARK", *lines])
    changed, _ = exchange(text, "MARK", new + "!")
    assert exchange(changed, new + "!", "MARK")[0] == text


def test_crlf_files_take_bare_newlines_and_keep_their_own() -> None:
    assert exchange("one\r\ntwo\r\nthree\r\n", "one\ntwo\n", "1\n2\n") == ("1\r\n2\r\nthree\r\n", [1])


def test_text_that_differs_in_white_space_is_pointed_out() -> None:
    with pytest.raises(ToolError) as caught:
        exchange("def f():\n\tif x:\n\t\treturn 1\n", "    if x:\n        return 1", "pass")
    assert "lines 2-3 differ in white space alone" in caught.value.remedy
    assert "\tif x:\n\t\treturn 1" in caught.value.remedy


def test_text_that_is_nearly_there_is_shown() -> None:
    with pytest.raises(ToolError) as caught:
        exchange("alpha = 1\nbeta_value = compute(3)\ngamma = 2\n", "beta_value = compute(4)", "x")
    assert "line 2" in caught.value.remedy
    assert "beta_value = compute(3)" in caught.value.remedy


def test_text_that_stands_twice_is_counted_with_its_lines() -> None:
    with pytest.raises(ToolError, match=r"2 times \(lines 1, 3\)") as caught:
        exchange("x = 1\ny\nx = 1\n", "x = 1", "x = 2")
    assert "replace_all" in caught.value.remedy


def test_text_that_is_not_there_at_all_is_said_to_be_so_however_large_the_file() -> None:
    for text in ("", "\n", "nothing of the kind\n", "line\n" * 100_000):
        with pytest.raises(ToolError, match="not in the file") as caught:
            exchange(text, "qqqqqqqq\nzzzz", "x")
        assert "read the file" in caught.value.remedy
