"""Frames: what is encoded comes back, what is not a message is refused by name, and nothing else is ever raised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.bus import wire
from bubbles.errors import BubblesError, ProtocolError, RateLimited, Unavailable

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(st.text(), json_values, max_size=6)


@given(objects, st.lists(st.binary(max_size=200), max_size=5))
def test_what_is_encoded_comes_back(head, blobs):
    assert wire.decode(wire.encode(head, blobs)) == (head, blobs)


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_frames_are_a_message_or_a_protocol_error(frames):
    for candidate in (frames, [b"B1", *frames]):
        try:
            head, blobs = wire.decode(candidate)
        except ProtocolError:
            wire.sender(candidate)
        else:
            assert isinstance(head, dict)
            assert blobs == candidate[2:]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"B1"],
        [b"B2", b"{}"],
        [b"b1", b"{}"],
        [b"{}", b"B1"],
        [b"B1", b""],
        [b"B1", b"[]"],
        [b"B1", b"null"],
        [b"B1", b"{"],
        [b"B1", b'{"a":1}x'],
        [b"B1", b"\xff\xfe"],
        [b"B1", b"[" * 100_000],
        [b"B1", b'{"n":' + b"9" * 5000 + b"}"],
        [b"B1", b"{}" + b" " * wire.HEAD_MOST],
        [b"B1", b"{}", *[b""] * (wire.BLOBS_COUNT + 1)],
    ],
    ids=lambda frames: repr(frames)[:30],
)
def test_what_is_no_message_is_refused(frames):
    with pytest.raises(ProtocolError):
        wire.decode(frames)


@given(objects, st.lists(st.binary(max_size=200), max_size=3), st.sampled_from(["body", "part"]), st.integers(0, 2 * wire.LARGE))
def test_what_a_door_tells_comes_back_however_large(told, blobs, kind, size):
    head = {"re": "q", "ok": True, kind: {**told, "large": "x" * size}}
    frames = wire.encode(head, blobs)
    assert len(frames[1]) <= wire.LARGE
    assert wire.decode(frames) == (head, blobs)


@pytest.mark.parametrize("kind", ["body", "part"])
def test_what_was_not_asked_for_may_not_be_large(kind):
    with pytest.raises(ProtocolError, match="an object of"):
        wire.encode({"id": "q", "op": "x", kind: {"t": "x" * wire.HEAD_MOST}})
    head = {"id": "q", "op": "x", "large": "body"}
    assert wire.decode(wire.encode(head, [b"{}"])) == (head, [b"{}"])


@pytest.mark.parametrize("frames", [[b'{"re":"q","large":"body"}'], [b'{"re":"q","large":"re"}', b"{}"], [b'{"re":"q","large":[]}', b"{}"]])
@pytest.mark.parametrize("blob", [None, b"", b"[]", b"{", b"\xff"])
def test_a_large_message_that_is_none_is_refused(frames, blob):
    with pytest.raises(ProtocolError):
        wire.decode([b"B1", *frames, *([] if blob is None else [blob])])


def test_an_event_that_is_too_large_is_not_told():
    assert wire.event({"a": 1}) == wire.encode({"a": 1})
    assert wire.event({"a": "x" * wire.HEAD_MOST}) == []
    with pytest.raises(ProtocolError):
        wire.event({"a": {1}})


def test_another_version_is_named_with_what_to_do():
    with pytest.raises(ProtocolError, match=r"the peer speaks b'B9'") as caught:
        wire.decode([b"B9", b"{}"])
    assert caught.value.remedy


def test_the_limits_are_inclusive():
    room = wire.HEAD_MOST - len('{"t":""}')
    assert wire.encode({"t": "x" * room})
    with pytest.raises(ProtocolError, match="an object of 1048577 bytes"):
        wire.encode({"t": "x" * (room + 1)})
    half = bytes(wire.BLOBS_MOST // 2)
    assert wire.decode(wire.encode({}, [half, half]))[1] == [half, half]
    with pytest.raises(ProtocolError, match="3 blobs"):
        wire.encode({}, [half, half, b"x"])


@pytest.mark.parametrize("head", [{"a": float("nan")}, {"a": float("inf")}, {"a": {1, 2}}, {"a": b"x"}])
def test_what_is_not_json_is_not_sent(head):
    with pytest.raises(ProtocolError):
        wire.encode(head)


def test_a_body_that_holds_itself_is_not_sent():
    body = {}
    body["body"] = body
    with pytest.raises(ProtocolError):
        wire.encode(body)


def test_the_sender_of_a_message_of_another_version_is_still_found():
    assert wire.sender([b"B7", b'{"id":"q-1","new":[]}', b"x"]) == "q-1"
    for frames in ([], [b"B7"], [b"B7", b"?"], [b"B7", b'{"id":7}'], [b"B7", b'{"id":""}'], [b"B7", b'{"id":"' + b"x" * 201 + b'"}']):
        assert wire.sender(frames) == ""


def test_an_error_crosses_with_its_kind_its_remedy_and_its_details():
    sent = RateLimited("too many", remedy="wait", attempts=3, retry_after_s=7.5)
    head, _ = wire.decode(wire.encode(wire.failure("q", sent)))
    told = wire.outcome(head)
    assert type(told) is RateLimited
    assert (told.text, told.remedy, told.attempts, told.retry_after_s, told.temporary) == ("too many", "wait", 3, 7.5, True)


def test_an_error_can_always_be_told_however_much_it_has_to_say():
    told = wire.outcome(wire.decode(wire.encode(wire.failure("q", Unavailable("x" * 2_000_000, remedy="y" * 2_000_000))))[0])
    assert (len(told.text), len(told.remedy)) == (10_000, 10_000)


def test_a_bug_crosses_without_its_text():
    told = wire.outcome(wire.failure("q", KeyError("/home/ann/secret")))
    assert type(told) is BubblesError
    assert "ann" not in told.text


def test_a_reply_is_its_body():
    assert wire.outcome(wire.reply("q", {"a": 1})) == {"a": 1}


@pytest.mark.parametrize("head", [{}, {"ok": True}, {"ok": True, "body": 7}, {"ok": False}, {"ok": False, "error": "no"}, {"ok": 1, "body": {}}])
def test_a_reply_that_is_neither_body_nor_error_is_refused(head):
    with pytest.raises(ProtocolError):
        wire.outcome(head)


def test_an_error_of_a_newer_kind_is_a_plain_one():
    told = wire.outcome({"ok": False, "error": {"kind": "of_2031", "text": "hm"}})
    assert type(told) is BubblesError
    assert not isinstance(told, Unavailable)
