"""A turn's parts, whole, torn, missed and repeated: what is printed adds up to what was said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.programs.terminal.stream import Piece, Stream, split

WORDS = st.text(alphabet="ab \n`~*-|#中", max_size=60)


def printed(parts: list[dict[str, Any]], end: dict[str, Any]) -> list[Piece]:
    stream = Stream()
    pieces = [piece for part in parts for piece in stream.take(part)]
    return [*pieces, *stream.end(end)]


def squeezed(text: str) -> str:
    return "".join(text.split())


def replied(text: str) -> dict[str, Any]:
    return {"outcome": "replied", "text": text, "turn": "t"}


@pytest.mark.parametrize("text", ["", "No answer."])
def test_what_can_be_done_is_told_whether_or_not_the_notice_is(text: str) -> None:
    (piece,) = printed([], {"outcome": "failed:not_set_up", "text": text, "remedy": "bubbles onboard"})
    assert piece.text.endswith("\n  try: bubbles onboard")
    assert piece.text.startswith(text or "no answer (not set up)")


def test_a_command_is_answered_as_it_stands_or_not_at_all() -> None:
    assert printed([], {"outcome": "command", "text": "*model*: x", "turn": ""}) == [Piece("answer", "*model*: x")]
    assert printed([], {"outcome": "command", "text": "", "turn": ""}) == []


def test_words_that_wait_for_room_are_told_so() -> None:
    (piece,) = Stream().take({"waits": {"limit": "queued", "most": 100}})
    assert piece.kind == "note"
    assert piece.text.startswith("100 messages wait here already")


# -- blocks ----------------------------------------------------------------------------------------


@given(WORDS)
def test_blocks_and_the_rest_are_the_text(text: str) -> None:
    done, rest = split(text)
    assert squeezed("".join(done) + rest) == squeezed(text)
    assert all(block.strip("\n") == block and block for block in done)


@given(WORDS, st.integers(0, 60))
def test_a_block_once_whole_stays_as_it_is(text: str, at: int) -> None:
    before, _ = split(text[:at])
    after, _ = split(text)
    assert after[: len(before)] == before


@pytest.mark.parametrize(
    "text",
    [
        "```\na\n\nb\n```",  # a fence holds blank lines
        "~~~~\n~~~\n\nx\n",  # and is closed by its own kind, as long as it was opened
        "- one\n\n  more of one\n\n  and more",  # a list item goes on after a blank line
        "one\ntwo\n\n",  # nothing follows yet
    ],
)
def test_what_is_not_whole_yet(text: str) -> None:
    assert split(text) == ([], text)


def test_a_new_block_ends_the_one_before() -> None:
    assert split("# A\n\ntext\nmore\n\n- item") == (["# A", "text\nmore"], "- item")


# -- parts -----------------------------------------------------------------------------------------


@given(st.lists(WORDS, max_size=8))
def test_what_was_streamed_is_said_once(deltas: list[str]) -> None:
    text = "".join(deltas)
    pieces = printed([*({"text": delta} for delta in deltas), {"say": {"n": 0, "text": text}}], replied(text))
    assert squeezed("".join(piece.text for piece in pieces)) == squeezed(text)


@given(st.lists(WORDS, max_size=8), st.integers(0, 8))
def test_parts_missed_at_the_end_are_made_up_for(deltas: list[str], heard: int) -> None:
    text = "".join(deltas)
    pieces = printed([{"text": delta} for delta in deltas[:heard]], replied(text))
    assert squeezed("".join(piece.text for piece in pieces)) == squeezed(text)


def test_parts_missed_in_the_middle_let_it_be_said_again() -> None:
    pieces = printed([{"text": "one "}, {"text": "three"}, {"say": {"n": 0, "text": "one two three"}}], replied("one two three"))
    assert pieces[-1] == Piece("text", "one two three")


def test_nothing_streamed_is_said_whole() -> None:
    assert printed([{"say": {"n": 0, "text": "hello"}}], replied("hello")) == [Piece("text", "hello")]
    assert printed([], replied("hello")) == [Piece("text", "hello")]


def test_a_turn_may_say_more_than_one_thing() -> None:
    parts = [{"text": "one"}, {"say": {"n": 0, "text": "one"}}, {"text": "two"}, {"say": {"n": 1, "text": "two"}}]
    assert printed(parts, replied("two")) == [Piece("text", "one"), Piece("text", "two")]


def test_calls_end_what_was_said_beside_them() -> None:
    start = {"tool": {"name": "exec", "hint": 'exec("ls")', "state": "start"}}
    finish = {"tool": {"name": "exec", "hint": 'exec("ls")', "state": "finish", "ok": False}}
    stream = Stream()
    assert stream.take({"text": "Let me see."}) == []
    assert stream.take(start) == [Piece("text", "Let me see."), Piece("tool", 'exec("ls")')]
    assert stream.doing == 'exec("ls")'
    assert stream.take(finish) == [Piece("failed", 'exec("ls")')]
    assert stream.doing == ""
    assert stream.take({"say": {"n": 0, "text": "Two files."}}) == [Piece("text", "Two files.")]


def test_two_calls_side_by_side_are_waited_for_both() -> None:
    stream = Stream()
    for hint in ("a()", "b()"):
        stream.take({"tool": {"hint": hint, "state": "start"}})
    stream.take({"tool": {"hint": "b()", "state": "finish", "ok": True}})
    assert stream.doing == "a()"


def test_a_retry_takes_back_what_was_growing() -> None:
    parts = [{"text": "half a sen"}, {"retry": {"category": "rate_limited", "attempt": 2, "in_s": 1.6}}, {"text": "A sentence."}]
    assert printed(parts, replied("A sentence.")) == [Piece("note", "the model: rate limited; asking again in 2 s"), Piece("text", "A sentence.")]


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        ({"outcome": "failed:model_down", "text": "No answer: …"}, Piece("notice", "No answer: …")),
        ({"outcome": "failed:model_down", "text": ""}, Piece("note", "no answer (model down)")),
        ({"outcome": "silent", "text": ""}, Piece("note", "no answer (silent)")),
        ({"outcome": "held", "text": "bad", "remedy": "mend it"}, Piece("notice", "bad\n  try: mend it")),
    ],
)
def test_an_end_without_a_reply_is_told(end: dict[str, Any], wanted: Piece) -> None:
    assert printed([], end) == [wanted]


@given(st.lists(st.dictionaries(st.sampled_from(["text", "say", "tool", "retry", "other"]), st.just({"text": "x"}), max_size=1), max_size=5))
def test_parts_of_a_newer_agentd_do_no_harm(parts: list[dict[str, Any]]) -> None:
    printed([{**part} for part in parts], replied("x"))
