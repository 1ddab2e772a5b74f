"""Clipping keeps a head and a tail and never exceeds the cap; cleaning leaves what a screen would show."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.kernel.clean import clean
from bubbles.kernel.clip import LEAST_TOKENS, clip
from bubbles.kernel.weight import tokens

ANY = st.text(st.characters(exclude_categories=()))
LONG = st.builds(lambda text, times: text * times, ANY, st.integers(1, 400)) | st.lists(ANY, max_size=60).map("\n".join)
NOTICE = re.compile(r"\n?\[… ([\d ]+) characters left out …\]\n")


@given(LONG, st.integers(0, 300))
def test_never_over_the_cap(text: str, cap: int) -> None:
    assert tokens(clip(text, cap)) <= cap


@given(LONG, st.integers(LEAST_TOKENS, 300))
def test_head_and_tail_are_kept_and_the_cut_is_counted(text: str, cap: int) -> None:
    clipped = clip(text, cap)
    if tokens(text) <= cap:
        assert clipped == text
        return
    found = NOTICE.search(clipped)
    assert found
    head, tail = clipped[: found.start()], clipped[found.end() :]
    missing = int(found[1].replace(" ", ""))
    heads = [head, head + "\n"]  # the line break before the notice may be the head's own
    assert [kept for kept in heads if text.startswith(kept) and len(kept) + missing + len(tail) == len(text)]
    assert text.endswith(tail)
    assert clip(clipped, cap) == clipped


@pytest.mark.parametrize("text", ["word " * 50_000, "文" * 50_000, "😀" * 50_000, "line of output\n" * 50_000, " " * 500_000, "x" * 500_000])
def test_the_cap_is_used(text: str) -> None:
    clipped = clip(text, 8000)
    assert 7000 < tokens(clipped) <= 8000
    head = clipped.index("[…")
    assert 0.5 < head / (len(clipped) - 30) < 0.7


@pytest.mark.parametrize("whole", ["👩‍👩‍👧", "🇩🇪", "👍🏽", "é", "❤️", "नि", "\ud83d\ude00"])
def test_no_character_is_cut_in_two(whole: str) -> None:
    clipped = clip(whole * 3000, 100)
    found = NOTICE.search(clipped)
    assert found
    for side in (clipped[: found.start()], clipped[found.end() :]):
        assert side.replace(whole, "") == ""


def test_lines_stay_whole_where_that_costs_little() -> None:
    lines = clip("\n".join(f"{n}: some output of a tool" for n in range(1000)), 200).split("\n")
    assert all(re.fullmatch(r"\d+: some output of a tool|\[.*\]", line) for line in lines)


def test_the_notice_reads_well() -> None:
    assert re.search(r"\n\[… 12 \d\d\d characters left out …\]\n", clip("word " * 2500, 60))


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\x", "x"),
        ("\x9b31mred", "red"),
        ("\x1b(Btext\x1b=\x1b>", "text"),
        ("\x1b", ""),
        ("text\x1b[", "text"),
        ("10 %\r50 %\r100 %\r\n", "100 %\n"),
        ("a\r\nb", "a\nb"),
        ("N\x08NA\x08A", "NA"),
        ("\x07bell", "bell"),
        ("safe\u202eexe.txt\u2066", "safeexe.txt"),
        ("tag\U000e0041\U000e0042", "tag"),
        ("lone \ud83d end of the line", "lone \ufffd end of the line"),
        ("\0\1\2\3ELF\0\0", "[binary data: 9 characters]"),
        ("", ""),
    ],
)
def test_clean(text: str, seen: str) -> None:
    assert clean(text) == seen


@given(LONG)
def test_clean_text_is_clean(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", cleaned)
    assert clean(cleaned) == cleaned or "\ufffd" in cleaned
