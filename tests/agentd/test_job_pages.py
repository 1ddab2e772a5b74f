"""The output of a job by pages: nothing twice, nothing left out, no character in halves, and a page that fits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.agentd.pages import last, page
from bubbles.kernel.clean import clean
from bubbles.kernel.weight import tokens

SIGNS = st.characters(codec="utf-8", exclude_categories=["Cc"], include_characters="\n")
TEXTS = st.text(SIGNS, max_size=600) | st.text("你好，世界\n👩‍👩‍👧", max_size=600)


def walked(path: Path, most: int) -> list[str]:
    """All pages."""
    pages, offset = [], 0
    while (found := page(path, offset, most, grows=False)).end > offset:
        assert found.start == offset
        pages.append(found.text)
        offset = found.end
    assert offset == path.stat().st_size
    return pages


@settings(max_examples=150)
@given(TEXTS, st.integers(1, 120))
def test_pages_of_text_are_the_text(tmp_path_factory: pytest.TempPathFactory, text: str, most: int) -> None:
    path = tmp_path_factory.mktemp("out") / "j1.out"
    path.write_text(text, newline="")
    pages = walked(path, most)
    assert "".join(pages) == text
    assert all(tokens(clean(each)) <= most or len(each.encode()) <= 4 for each in pages)


@settings(max_examples=100)
@given(st.binary(max_size=3000), st.integers(1, 200), st.integers(-4000, 4000))
def test_any_bytes_are_walked_through_to_their_end(tmp_path_factory: pytest.TempPathFactory, data: bytes, most: int, offset: int) -> None:
    path = tmp_path_factory.mktemp("out") / "j1.out"
    path.write_bytes(data)
    walked(path, most)
    found = page(path, offset, most, grows=True)
    assert 0 <= found.start <= found.end <= found.size == len(data)


def test_what_is_no_text_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "j1.out"
    path.write_bytes(os.urandom(5000))
    assert page(path, 0, 8000, grows=False).text == "[binary output, 5000 bytes]"


def test_a_character_that_has_not_come_whole_is_left_to_the_next_page(tmp_path: Path) -> None:
    path = tmp_path / "j1.out"
    path.write_bytes("好你".encode()[:5])
    assert page(path, 0, 100, grows=True).text == "好"
    assert page(path, 3, 100, grows=True).end == 3
    path.write_bytes("好你".encode())
    assert page(path, 3, 100, grows=True).text == "你"


def test_before_the_end_and_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "j1.out"
    path.write_text("".join(f"line {n}\n" for n in range(1000)))
    assert page(path, -9, 100, grows=False).text == "line 999\n"
    assert page(path, 10**9, 100, grows=False).text == ""
    assert last(path, 30).text == "line 997\nline 998\nline 999\n"
    assert page(tmp_path / "none", 5, 100, grows=False).size == 0


def test_a_large_output_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "j1.out"
    with path.open("wb") as file:
        file.truncate(20 << 30)
    assert page(path, 1 << 30, 1000, grows=False).end <= (1 << 30) + 4000
