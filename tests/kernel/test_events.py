"""Lines of a journal: what is written is read again, what is torn or newer is named."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import DataError, ProtocolError
from bubbles.kernel import events
from bubbles.kernel.events import (
    ApprovalAsked,
    ApprovalGiven,
    Call,
    Compacted,
    Event,
    Heard,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    Resumed,
    Said,
    Stopped,
    ToolFinished,
    ToolStarted,
    UserSpoke,
    from_line,
    header,
    read_header,
    to_line,
)
from bubbles.messages import Address, Media

TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates too
ADDRESSES = st.builds(Address, TEXT, TEXT, TEXT)
MEDIA = st.builds(Media, TEXT, TEXT, TEXT, st.integers(0))
CALLS = st.builds(Call, TEXT, TEXT, TEXT)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        UserSpoke,
        TEXT,
        TEXT,
        header=TEXT,
        address=ADDRESSES,
        is_group=st.booleans(),
        origin=st.sampled_from(["user", "system"]),
        media=st.tuples(MEDIA) | st.just(()),
        at=st.floats(0, 1e11),
    ),
    st.builds(Heard, TEXT, TEXT, TEXT, ADDRESSES, st.floats(0, 1e11)),
    st.builds(ModelAsked, TEXT),
    st.builds(ModelAnswered, TEXT, st.lists(CALLS, max_size=3).map(tuple), TEXT, st.dictionaries(TEXT, st.integers(), max_size=2), TEXT),
    st.builds(ModelFailed, TEXT, st.integers(0, 9), TEXT),
    st.builds(ToolStarted, TEXT),
    st.builds(ToolFinished, TEXT, TEXT, st.booleans()),
    st.builds(Said, st.integers(0)),
    st.builds(Compacted, st.integers(0), TEXT),
    st.builds(ApprovalAsked, TEXT),
    st.builds(ApprovalGiven, TEXT, st.booleans()),
    st.builds(Stopped, TEXT),
    st.builds(Resumed),
)


@given(EVENTS, st.floats(0, 1e11))
def test_what_is_written_is_read(event: Event, at: float) -> None:
    line = to_line(event, at)
    assert line.isascii()
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert from_line(line) == event


@given(EVENTS, st.data())
def test_a_torn_line_is_named(event: Event, data: st.DataObject) -> None:
    line = to_line(event, 0.0)
    with pytest.raises(DataError):
        from_line(line[: data.draw(st.integers(0, len(line) - 1))])


def test_when_a_line_was_written_is_not_when_somebody_spoke() -> None:
    assert json.loads(to_line(UserSpoke("u1", "hi", at=5.0), at=7.0))["written"] == 7.0
    assert from_line(to_line(UserSpoke("u1", "hi"), at=7.0)) == UserSpoke("u1", "hi")
    assert from_line(to_line(UserSpoke("u1", "hi", at=5.0), at=7.0)) == UserSpoke("u1", "hi", at=5.0)
    assert not [kind for kind in events.KINDS.values() for item in fields(kind) if item.name in ("event", "written")]


def test_every_kind_has_a_reader_for_every_field() -> None:
    assert {str(item.type) for kind in events.KINDS.values() for item in fields(kind)} <= events._READ.keys()
    assert len(events.KINDS) == 13


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[]\n",
        b"nonsense}\n",
        b'{"event":7}\n',
        b'{"event":"ToolStarted"}\n',
        b'{"event":"ToolStarted","call":7}\n',
        b'{"event":"Said","n":true}\n',
        b'{"event":"Said","n":"0"}\n',
        b'{"event":"ApprovalGiven","call":"c","allowed":1}\n',
        b'{"event":"ModelAnswered","text":"","calls":{}}\n',
        b'{"event":"ModelAnswered","text":"","calls":["c1"]}\n',
        b'{"event":"ModelAnswered","text":"","calls":[{"id":"c1"}]}\n',
        b'{"event":"ModelAnswered","text":"","usage":{"input":"many"}}\n',
        b'{"event":"UserSpoke","id":"u","text":"t","address":"cli:a"}\n',
        b'{"event":"UserSpoke","id":"u","text":"t","media":[{}]}\n',
        b"\xff\xfe}\n",
    ],
)
def test_a_wrong_line_is_named(line: bytes) -> None:
    with pytest.raises(DataError):
        from_line(line)


def test_a_newer_event_is_refused_and_a_newer_field_passed_over() -> None:
    with pytest.raises(ProtocolError) as caught:
        from_line(b'{"event":"UserWinked","written":0}\n')
    assert caught.value.remedy == "update Bubbles"
    assert from_line(b'{"event":"ToolStarted","call":"c1","mood":"good"}\n') == ToolStarted("c1")


def test_a_header_is_read_and_a_newer_one_refused() -> None:
    assert read_header(header("t1", "s", "system")) == ("t1", "s", "system")
    newer = json.loads(header("t1", "s")) | {"version": 2}
    with pytest.raises(ProtocolError):
        read_header(json.dumps(newer).encode() + b"\n")
    for line in (header("t1", "s")[:-1], b"{}\n", header("t1", "s", "martian"), to_line(Resumed(), 0.0)):
        with pytest.raises(DataError):
            read_header(line)
