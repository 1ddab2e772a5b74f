"""Server-sent events are the same however the bytes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.providers.sse import Events


def decoded(*pieces: bytes) -> list[bytes]:
    events = Events()
    found = [event for piece in pieces for event in events.feed(piece)]
    return found + events.end()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata:  b\r\n\r\n", [b"a", b" b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b": OPENROUTER PROCESSING\n\ndata: a\n\n", [b"a"]),
        (b"event: message\nid: 7\nretry: 10\ndata: a\n\n", [b"a"]),
        (b'data: {"a":\ndata: 1}\n\n', [b'{"a":\n1}']),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\ndata: [DONE]\n", [b"a", b"[DONE]"]),
        (b"data: a\n\ndata: [DONE]", [b"a", b"[DONE]"]),
        (b'error: {"code": 500}\n\n', [b'{"code": 500}']),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream(stream: bytes, events: list[bytes]) -> None:
    assert decoded(stream) == events


LINES = st.lists(st.sampled_from([b"data: one", b"data: t\xc3\xa4wo", b": ping", b"data:", b"", b"event: x"]), max_size=12)


@given(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]), st.data())
def test_the_cuts_do_not_matter(lines: list[bytes], end: bytes, data: st.DataObject) -> None:
    stream = b"".join(line + end for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decoded(*pieces) == decoded(stream) == decoded(*(bytes([b]) for b in stream))


def test_a_line_may_come_in_a_hundred_thousand_pieces() -> None:
    events = Events()
    for _ in range(100_000):  # each of them copied with all before it would be 40 GB
        assert events.feed(b"datadata") == []
    assert events.feed(b"\ndata: a\n\n") == [b"a"]
