"""The estimate against counts of real vocabularies, made once with their own tokenizers (o200k; DeepSeek's in brackets)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.kernel.weight import _ASCII, _WIDE, CALL_TOKENS, IMAGE_TOKENS, LONG, MESSAGE_TOKENS, MOST_CHARACTERS, MOST_TOKENS, tokens
from tests.kernel.weighing import weighing

WEIGHED = Path(__file__).parent / "weighed"
COUNTS = {  # o200k, DeepSeek
    "english": (218, 221),
    "chinese": (293, 220),
    "mixed": (141, 133),
    "code": (1108, 1158),
    "schemas": (299, 309),
    "shell": (354, 369),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_error_is_below_ten_percent(name: str) -> None:
    assert tokens((WEIGHED / f"{name}.txt").read_text()) == pytest.approx(COUNTS[name][0], rel=0.10)


def test_schemas_of_tools_are_counted() -> None:
    text = (WEIGHED / "schemas.txt").read_text()
    assert tokens(json.loads(text)) == pytest.approx(COUNTS["schemas"][0], rel=0.10)
    assert tokens(json.loads(text) * 20) == pytest.approx(20 * COUNTS["schemas"][0], rel=0.10)


def test_a_message_weighs_what_is_in_it() -> None:
    words, name, arguments = "How large is the directory?", "exec", '{"command":"du -sh work"}'
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    bare = tokens([{"role": "assistant", "content": ""}])
    assert bare == MESSAGE_TOKENS
    assert tokens([{"role": "user", "content": words}]) == bare + tokens(words)
    assert tokens([{"role": "assistant", "content": "", "tool_calls": [call]}]) == bare + CALL_TOKENS + tokens(f"{name} {arguments}")
    assert tokens([{"role": "assistant", "content": "", "reasoning_content": words}]) == bare + tokens(words)


def test_anything_has_a_weight() -> None:
    assert tokens([]) == tokens("") == 0
    assert tokens([{"role": None, "content": [1], "tool_calls": [None, {"function": 3}]}, 7, {"a": {1, 2}}]) > 0


@given(st.text(st.characters(exclude_categories=()), min_size=1))
def test_a_weight_stays_within_what_clipping_relies_on(text: str) -> None:
    assert tokens(text) <= len(text) * MOST_TOKENS
    assert len(text) <= (tokens(text) + 1) * MOST_CHARACTERS


@pytest.mark.parametrize(
    ("quick", "plain", "letters"),
    [
        (_ASCII[0][0], "[A-Z]?[a-z]{1,12}|[A-Z]{1,6}", "aaazAAAZ .7é"),
        (_ASCII[4][0], r"\s{2,16}|[\n\t]", " \n\t\r\x0b\x1c\u3000\x85x"),
        (
            _WIDE[0][0],
            r"[\u2e80-\u2fff\u3001-\u303f\u31c0-\u9fff\uf900-\ufaff\uff00-\uffef]|[\u2010-\u206f\u3000]{1,3}",
            "文，、\u3000…—\u200f\u2070x",
        ),
    ],
    ids=["words", "blanks", "Chinese"],
)
def test_what_is_found_quickly_is_what_the_plain_pattern_finds(quick: re.Pattern[str], plain: str, letters: str) -> None:
    random, slow = Random(7), re.compile(plain)
    for text in ("".join(random.choices(letters, k=random.randint(0, 60))) for _ in range(3000)):
        assert quick.findall(text) == slow.findall(text)


@given(st.text(), st.text())
def test_more_text_weighs_no_less(first: str, second: str) -> None:
    assert tokens(f"{first}\n{second}") + 2 >= max(tokens(first), tokens(second))


def pieces(text: str) -> list[str]:
    return [text[at : at + LONG] for at in range(0, len(text), LONG)]


@pytest.mark.parametrize("name", COUNTS)
def test_a_long_text_weighs_what_its_pieces_do(name: str) -> None:
    text = (WEIGHED / f"{name}.txt").read_text()
    long = text * (1_000_000 // len(text))
    assert tokens(long) == pytest.approx(sum(map(tokens, pieces(long))), rel=0.03)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(sorted(COUNTS)), st.integers(1_000, 60_000)), min_size=8, max_size=20))
def test_so_does_one_of_many_kinds(parts: list[tuple[str, int]]) -> None:
    texts = {name: (WEIGHED / f"{name}.txt").read_text() for name, _ in parts}
    long = "\n".join((texts[name] * (size // len(texts[name]) + 1))[:size] for name, size in parts)
    assert tokens(long) == pytest.approx(sum(map(tokens, pieces(long))), rel=0.25)


@pytest.mark.parametrize("size", [LONG + 1, 300_000, 5_000_000])
@pytest.mark.parametrize("text", ["word ", "文", "😀", "x", "\n", "\u0301"])
def test_a_text_costs_about_the_same_however_large_it_is(text: str, size: int) -> None:
    long = text * (size // len(text) + 1)
    with weighing() as count:
        assert tokens(long) > 0
    assert 20_000 < count.characters < 40_000
    assert tokens(long) <= len(long) * MOST_TOKENS
    assert len(long) <= (tokens(long) + 1) * MOST_CHARACTERS


def test_a_picture_weighs_what_it_is_and_not_its_bytes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400_000}}
    shown = {"role": "user", "content": [{"type": "text", "text": "look"}, picture, picture]}
    assert tokens([shown]) == pytest.approx(tokens([{"role": "user", "content": "look"}]) + 2 * IMAGE_TOKENS, abs=20)
