"""The journal of a running turn: lines whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbles.errors import Misconfigured
from bubbles.kernel.events import ModelAsked, UserSpoke, header, to_line
from bubbles.sessions.journal import Journal

HEAD = header("t1", "s", "user")
SPOKE = to_line(UserSpoke("m1", "hello\nworld 你好"), 1.0)
ASKED = to_line(ModelAsked("t1.0"), 2.0)


def test_a_turn_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.jsonl")
    journal.append(HEAD, SPOKE)
    journal.append(ASKED)
    (segment,) = Journal(tmp_path / "s.jsonl").read()
    assert segment.header == ("t1", "s", "user")
    assert segment.lines == [SPOKE, ASKED]
    journal.reset()
    assert journal.read() == []


def test_words_for_the_next_turn_stand_behind(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s.jsonl")
    journal.append(HEAD, SPOKE, header("t2", "s", "user"), SPOKE)
    assert [s.header.turn for s in journal.read()] == ["t1", "t2"]


@pytest.mark.parametrize("cut", range(len(ASKED)))
def test_a_line_cut_anywhere_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEAD + SPOKE + ASKED[:cut])
    journal = Journal(path)
    assert journal.read()[0].lines == [SPOKE]
    journal.append(ASKED)
    assert journal.read()[0].lines == [SPOKE, ASKED]


@pytest.mark.parametrize("before", [b"", HEAD + SPOKE])
def test_a_header_that_nothing_stands_behind_is_no_turn(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(before + header("t2", "s", "user") + SPOKE[:7])
    assert [segment.header.turn for segment in Journal(path).read()] == ["t1"] * bool(before)
    assert path.read_bytes() == before


def test_a_newer_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    text = HEAD.replace(b'"version":1', b'"version":99') + SPOKE + b"torn"
    path.write_bytes(text)
    with pytest.raises(Misconfigured):
        Journal(path).read()
    assert path.read_bytes() == text
