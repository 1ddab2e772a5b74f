"""session.jsonl: one append a turn, whole or not there, and never emptied by what is broken in it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import Misconfigured
from bubbles.kernel.context import check, encode
from bubbles.sessions.history import History


def turn(n: int) -> tuple[list[bytes], dict[str, object]]:
    messages = [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n} 你好"}]
    end = {"turn": f"t{n}", "outcome": "replied", "messages": [{"id": f"m{n}"}], "says": [f"answer {n}"], "at": float(n)}
    return [encode(m) for m in messages], end


def filled(path: Path, turns: int) -> History:
    history = History(path, session="s")
    for n in range(turns):
        history.add_turn(*turn(n))
    return history


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    before = filled(path, 3)
    again = History(path, session="s")
    assert again.lines == before.lines
    assert again.count == 6
    assert again.knows("m1")
    assert again.ended_turn("t2")
    assert again.end_of("m0")["turn"] == "t0"  # type: ignore[index]
    assert json.loads(path.read_text().splitlines()[0])["format"] == "bubbles.history"


@given(cut=st.integers(min_value=0), turns=st.integers(min_value=1, max_value=4))
def test_a_file_cut_anywhere_holds_its_whole_turns_and_nothing_else(tmp_path_factory: pytest.TempPathFactory, cut: int, turns: int) -> None:
    path = tmp_path_factory.mktemp("history") / "session.jsonl"
    filled(path, turns)
    data = path.read_bytes()
    path.write_bytes(data[: cut % (len(data) + 1)])
    again = History(path, session="s")
    assert len(again.lines) % 2 == 0
    whole = len(again.lines) // 2
    assert [json.loads(line)["content"] for line in again.lines[::2]] == [f"question {n}" for n in range(whole)]
    again.add_turn(*turn(9))
    assert len(History(path, session="s").lines) == len(again.lines) == 2 * whole + 2


def test_a_line_that_cannot_be_read_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    filled(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b'{"role":"user","con\x00\xff\n'
    path.write_bytes(b"".join(lines))
    again = History(path, session="s")
    assert again.damaged == 1
    assert path.read_bytes() == b"".join(lines)
    words = " ".join(json.loads(line)["content"] for line in again.lines)
    assert "question 0" in words
    assert "question 3" in words
    assert [json.loads(line)["role"] for line in again.lines][0] == "user"


def test_a_broken_end_line_loses_nothing_from_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    filled(path, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + b"{broken}\n")
    again = History(path, session="s")
    assert len(again.lines) == 2
    (aside,) = tmp_path.glob("session.jsonl.broken-*")
    assert b"question 1" in aside.read_bytes()


def test_a_compaction_stands_for_what_was_before_and_hides_nothing_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    history = filled(path, 5)
    history.compact("they talked", kept=2, at=1.0)
    history.add_turn(*turn(5))
    for found in (history, History(path, session="s")):
        contents = [json.loads(line)["content"] for line in found.lines]
        assert contents[0].endswith("they talked\n\nquestion 4")
        assert contents[1:] == ["answer 4 你好", "question 5", "answer 5 你好"]
        assert found.generation == 1
    assert sum(b"question" in line for line in history.file_lines()) == 6


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    text = '{"format":"bubbles.history","version":99}\n{"role":"user","content":"x"}\n'
    path.write_text(text)
    with pytest.raises(Misconfigured):
        History(path, session="s")
    assert path.read_text() == text


def test_a_link_in_the_place_of_the_history_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("secret")
    os.symlink(tmp_path / "elsewhere", tmp_path / "session.jsonl")
    with pytest.raises(Misconfigured, match="symbolic"):
        History(tmp_path / "session.jsonl", session="s")
    assert (tmp_path / "elsewhere").read_text() == "secret"


WHOLE = {"meta": "turn", "turn": "x", "outcome": "replied", "messages": [{"id": "m", "said": 0}], "says": ["yes"], "at": 1.0, "end": True}
WRONG: dict[str, list[Any]] = {
    "at": [None, "yesterday", [], {}, -1, 1e300, 10**400, float("nan"), float("inf")],
    "says": [None, "yes", 7, {"0": "yes"}, [7], [None], [["yes"]], []],  # the last: of a message that the first of them answers
    "outcome": [None, 7, ["replied"], {}],
    "turn": [None, 7, []],
    "messages": [None, "m", 7, {"id": "m"}, [7], ["m"], [None], [{}], [{"id": 7}], [{"id": None}], [{"id": ["m"]}],
                 [{"id": "m", "said": "0"}], [{"id": "m", "said": 1}], [{"id": "m", "said": -1}], [{"id": "m", "said": None}]],
    "heard": [None, "m", 7, {}],
    "notice": [None, 7, []],
}  # fmt: skip
WRONG_LINES = [WHOLE | {key: value} for key, values in WRONG.items() for value in values]
WRONG_LINES += [{name: value for name, value in WHOLE.items() if name != key} for key in ("at", "outcome", "turn", "says")]


def as_it_is_read(history: History) -> None:
    """What is read of `end` lines elsewhere, as it is read there."""
    for end in history.ended:
        assert (float(end["at"]), str.lower(end["outcome"]), str.lower(end["turn"]), "".join(end.get("says", ()))) is not None
        for word in end.get("messages", ()):
            assert history.knows(word["id"])
            assert not end.get("says") or str.lower(end["says"][word.get("said", -1)])


@pytest.mark.parametrize("line", WRONG_LINES)
def test_an_end_line_of_a_wrong_shape_is_damaged_and_stops_nobody(tmp_path: Path, line: dict[str, object]) -> None:
    path = tmp_path / "session.jsonl"
    filled(path, 2)
    whole = path.read_bytes()
    for after in (b"", encode({"role": "user", "content": "later"}) + b"\n" + encode(WHOLE | {"turn": "y", "messages": [{"id": "n"}]}) + b"\n"):
        path.write_bytes(whole + json.dumps(line).encode() + b"\n" + after)
        history = History(path, session="s")
        assert history.damaged == 1
        assert [history.knows(id) for id in ("m0", "m1", "m", "n")] == [True, True, False, bool(after)]
        assert history.end_of("m") is history.end_of_turn("x") is history.end_of("nobody") is None
        assert (history.end_of("n") is not None) == bool(after)
        as_it_is_read(history)
        history.add_turn(*turn(7))
        assert History(path, session="s").knows("m7")


def test_a_whole_end_line_is_not_damaged(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    filled(path, 1)
    path.write_bytes(path.read_bytes() + json.dumps(WHOLE).encode() + b"\n")
    history = History(path, session="s")
    assert (history.damaged, history.knows("m")) == (0, True)
    as_it_is_read(history)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.sampled_from(sorted(WHOLE)), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(st.sampled_from([*sorted(WHOLE), "heard", "notice", "limit", "usage", "origin"]), ANY_JSON, max_size=4), max_size=3))
def test_whatever_a_hand_makes_of_end_lines_the_rest_is_read(tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, object]]) -> None:
    path = tmp_path_factory.mktemp("history") / "session.jsonl"
    filled(path, 1)
    lines = b"".join(json.dumps(WHOLE | change | {"meta": "turn"}).encode() + b"\n" for change in changes)
    path.write_bytes(path.read_bytes() + lines)
    history = History(path, session="s")
    assert history.knows("m0")
    assert history.end_of("nobody") is None
    as_it_is_read(history)


def _called(id: str, answer: str) -> list[bytes]:
    call = {"id": id, "type": "function", "function": {"name": "exec", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    result, said = {"role": "tool", "tool_call_id": id, "content": "ok"}, {"role": "assistant", "content": answer}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "go"}, asked, result, said]
    return [encode(message) for message in messages]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_what_a_hand_took_out_of_a_turn_is_mended_when_it_is_read(tmp_path: Path, lost: int) -> None:
    """Each line that is left is sound, and no provider would take them as they stand."""
    history = History(tmp_path / "session.jsonl", session="s")
    history.add_turn(_called("c1", "one"), turn(0)[1])
    history.add_turn(_called("c2", "two"), turn(1)[1])
    lines = (tmp_path / "session.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "session.jsonl").write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    read = [json.loads(line) for line in History(tmp_path / "session.jsonl", session="s").lines]
    assert not check(read + [{"role": "user", "content": "and?"}], "anthropic")
    assert read[-1]["content"] == "two"


def test_so_is_a_marker_between_a_call_and_its_result_and_a_line_that_came_twice(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    History(path, session="s").add_turn(_called("c1", "one"), turn(0)[1])
    header, user, asked, result, said, end = path.read_bytes().splitlines(keepends=True)
    marker = encode({"meta": "compaction", "summary": "before", "kept": 0, "at": 1.0}) + b"\n"
    doubled = [header, user, asked, result, result, said, end]
    for lines in ([header, user, asked, marker, result, said, end], doubled, [header, user, asked, result] * 2):
        path.write_bytes(b"".join([*lines, end]))
        read = [json.loads(line) for line in History(path, session="s").lines]
        assert not check(read + [{"role": "user", "content": "and?"}], "anthropic")


REFUSED = b"is not sent again"


def refused(n: int, *messages: dict[str, Any]) -> tuple[list[bytes], dict[str, object]]:
    end = {"turn": f"t{n}", "outcome": "failed:rejected", "messages": [{"id": f"m{n}"}], "says": [], "at": float(n), "refused": True}
    return [encode(message) for message in messages], end


def test_words_that_a_provider_refused_are_kept_and_not_sent_again(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    history = filled(path, 1)
    history.add_turn(*refused(5, {"role": "user", "content": "poison"}))
    history.add_turn(*turn(6))
    assert [b"poison" in line for line in history.lines] == [False] * 4
    assert REFUSED in history.lines[2]
    assert b"question 6" in history.lines[2]
    assert History(path, session="s").lines == history.lines
    assert b"poison" in path.read_bytes()


def test_words_that_got_no_answer_before_may_be_why_and_are_left_out_too(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    history = filled(path, 1)
    history.add_turn([encode({"role": "user", "content": "poison"})], {**turn(2)[1], "outcome": "failed:model_down"})
    for n in range(3, 6):
        history.add_turn(*refused(n, {"role": "user", "content": "hello?"}))
    assert len(history.lines) == 3
    assert history.lines[-1].count(REFUSED) == 1
    assert History(path, session="s").lines == history.lines


def test_of_a_turn_that_went_on_only_what_came_last_is_left_out(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}
    asked, made = {"role": "user", "content": "look"}, {"role": "assistant", "content": "", "tool_calls": [call]}
    history = filled(tmp_path / "session.jsonl", 1)
    history.add_turn(*refused(5, asked, made, {"role": "tool", "tool_call_id": "c1", "content": "poison"}, {"role": "user", "content": "and?"}))
    assert history.lines[2:4] == [encode(asked), encode(made)]
    assert [REFUSED in line for line in history.lines[4:]] == [True, True]
    assert not check([json.loads(line) for line in history.lines], "openai")


def test_a_summary_outlasts_words_that_were_refused(tmp_path: Path) -> None:
    history = filled(tmp_path / "session.jsonl", 2)
    history.compact("all of it", 0, 1.0)
    history.add_turn(*refused(5, {"role": "user", "content": "poison"}))
    assert b"all of it" in history.lines[0]
    assert b"poison" not in history.lines[0]
