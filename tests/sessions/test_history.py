"""session.jsonl: one append a turn, whole or not there, and never emptied by what is broken in it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import Misconfigured
from bubbles.kernel.context import encode
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
