"""Pieces of a text: all of it, each within its limit, and cut where a reader pauses."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from bubbles.channels.split import LEAST, characters, split, utf8, utf16

MEASURES = {"characters": characters, "utf16": utf16, "utf8": utf8}
BITS = [
    "word", "a", " ", "  ", "\n", "\n\n", "\t", ". ", "! ", "。", "，", "中文的句子", "长", "\r\n", "\u2028", "שלום", "\u202e", "😀",
    "👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "🇨", "❤\ufe0f", "e\u0301",
    "\u0301" * 40, "1\ufe0f\u20e3", "각", "\u1100\u1161\u11a8", "क्षि", "กำ",
    "| a | b |\n", "|---|---|\n", "x" * 70, "- item\n", "    indented\n", "<@ou_7>",
    "(see this.) ", "https://example.com/a?b=c",
]  # fmt: skip
FENCES = [
    "```\n",
    "```py\n",
    "~~~\n",
    "````js title\n",
    "  ```\n",
    "```" + "l" * 90 + "\n",
    "code = 1\n",
    "    deep()\n",
    "`" * 30 + "\n",
    "`inline`",
]

words = st.lists(st.one_of(st.sampled_from(BITS), st.text(max_size=8)), max_size=60).map("".join)
mixed = st.lists(st.one_of(st.sampled_from(BITS + FENCES)), max_size=80).map("".join)
limits = st.integers(LEAST, 200)


def bare(text: str) -> str:
    return "".join(text.split())


def has_fence(text: str) -> bool:
    return re.search(r"^[ \t]*(```|~~~)", text, re.M) is not None


@given(words.filter(lambda text: not has_fence(text)), limits, st.sampled_from(sorted(MEASURES)))
def test_all_the_words_and_nothing_else(text: str, most: int, measure: str) -> None:
    assert bare("".join(split(text, most, MEASURES[measure]))) == bare(text)


@given(mixed, limits, st.sampled_from(sorted(MEASURES)))
@example("```\n" + " " * 500 + "\n```", 64, "utf8")
def test_every_piece_is_within_its_limit_and_not_blank(text: str, most: int, measure: str) -> None:
    pieces = split(text, most, MEASURES[measure])
    assert all(MEASURES[measure](piece) <= most and piece.strip() for piece in pieces)
    assert pieces == split(text, most, MEASURES[measure])
    assert bool(pieces) == bool(text.strip())


@given(mixed, limits)
@example("x" * 70 + "\u2028" + "```" + "l" * 90 + "\n", 101)  # a cut before marks in the midst of a line
@example("https://example.com/a?b=c" + "```" + "l" * 90 + "\n\t  ```\n中文的句子", 70)
@example("- item\n  ```\n" + "x" * 80 + "<@ou_7>", 107)  # a fence with an indentation, kept whole for the next piece
@example("```" + "l" * 90 + "\ncode\n```\n", 100)  # more behind the marks than can be said again
def test_every_fence_is_closed_where_it_was_opened(text: str, most: int) -> None:
    for piece in split(text, most):
        opened = ""
        for line in piece.split("\n"):
            match = re.match(r"[ \t]*(`{3,}|~{3,})[ \t]*(.*)", line)
            if match and opened and match[1][0] == opened[0] and len(match[1]) >= len(opened) and not match[2].strip():
                opened = ""
            elif match and not opened and len(match[1]) <= most // 8 and not (match[1][0] == "`" and "`" in match[2]):
                opened = match[1]
        assert not opened, piece


@given(st.lists(st.text("abc xyz=()", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=40), limits)
def test_code_stays_as_it_was_line_by_line(lines: list[str], most: int) -> None:
    lines = [f"#{line.strip()}" for line in lines]
    pieces = split("Look:\n\n```py\n" + "\n".join(lines) + "\n```\n\nDone.", most)
    told = [line for piece in pieces for line in piece.split("\n") if line.startswith("#")]
    assert told == lines
    assert all(piece.count("```py\n") == piece.count("```") // 2 for piece in pieces)


@given(st.lists(st.sampled_from([bit for bit in BITS if not bit.isspace() and len(bit) < 30]), min_size=30, max_size=120).map("".join), limits)
def test_no_character_as_a_reader_sees_it_is_cut(text: str, most: int) -> None:
    whole = list(iter_graphemes(text))
    if any(len(one) > most // 2 for one in whole):
        return
    ends, place = {0}, 0
    for one in whole:
        place += len(one)
        ends.add(place)
    place = 0
    for piece in split(text, most):
        place = text.index(piece, place)
        assert {place, place + len(piece)} <= ends
        place += len(piece)


def test_what_is_larger_than_a_piece_by_itself_is_cut_all_the_same() -> None:
    assert bare("".join(split("e" + "\u0301" * 500, 64, utf8))) == "e" + "\u0301" * 500


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a" * 40 + "\n\n" + "b " * 40, "a" * 40),  # a paragraph before a line and a word
        ("a" * 40 + "\n" + "b " * 40, "a" * 40),
        (
            "One is here now, said he. Two is not far from it: and three words more " + "c" * 9,
            "One is here now, said he. Two is not far from it: and three",
        ),
        ("a" * 38 + ". " + "b " * 40, "a" * 38 + "."),
        ("这是第一句话。" * 20, "这是第一句话。" * 9),
        ("他说：「好。」" * 20, "他说：「好。」" * 9),
        ("中" * 60 + "<@ou_7> " + "中" * 60, "中" * 60),  # no mention is cut
        ("x" * 100, "x" * 64),
    ],
)
def test_it_is_cut_where_a_reader_pauses(text: str, first: str) -> None:
    assert split(text, 64)[0] == first


def test_a_fence_that_fits_is_kept_whole() -> None:
    code = "```py\n" + "x = 1\n" * 8 + "```"
    assert split("word " * 6 + "\n\n" + code + "\n\nDone.", 64) == [("word " * 6).strip(), code + "\n\nDone."]


def test_a_table_is_cut_between_its_rows() -> None:
    rows = [f"| {n} | {'cell ' * (n % 9)}|" for n in range(40)]
    pieces = split("\n".join(rows), 64)
    assert [row for piece in pieces for row in piece.split("\n")] == rows


def test_a_fence_within_a_fence_is_no_end_of_it() -> None:
    pieces = split("````md\n" + "```\ncode\n```\n" * 20 + "````", 64)
    assert all(piece.startswith("````md\n") and piece.endswith("\n````") and piece.count("````") == 2 for piece in pieces)


def test_a_fence_that_nobody_closes_is_closed() -> None:
    assert split("```sh\nls", 64) == ["```sh\nls\n```"]


def test_a_measure_of_ones_own_is_kept_though_it_is_smaller_for_more() -> None:
    def odd(text: str) -> int:
        return len(text) * (3 if len(text) % 7 else 1)

    assert all(odd(piece) <= 100 for piece in split("word " * 200, 100, odd))


@given(st.integers(0, 9), st.integers(0, 9))
def test_pieces_are_filled(n: int, size: int) -> None:
    pieces = split(("w" * (n + 1) + " ") * 500, 64 + size)
    assert all(len(one) + len(two) > 64 + size for one, two in pairwise(pieces))
    assert all(len(piece) >= 32 for piece in pieces[:-1])


def test_less_than_there_is_room_for_is_refused() -> None:
    with pytest.raises(ValueError, match="64 at least"):
        split("a", 63)
