"""Responses of HTTP/1.1: the same whatever pieces they come in, and nothing that is none is taken for one."""

from __future__ import annotations

import gc
import gzip
import weakref
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.providers.http1 import Broken, Response
from bubbles.providers.lenient import ANSWER_MOST

BODY = b"data: one\n\ndata: two, and a little longer\n\n"
CHUNKED = b"".join(b"%x;x=y\r\n%b\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:8], BODY[8:])) + b"0\r\nTrailer: t\r\n\r\n"
RESPONSES = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY), True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-A: 2\r\n\r\n" + CHUNKED, True),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\ncontent-length:%d\r\nConnection: close\r\n\r\n%b" % (len(BODY), BODY), False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY), False),
    (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n", True),
    (b"HTTP/1.1 200 OK\r\n\r\n" + BODY, False),
]
_packed = gzip.compress(BODY, mtime=0)
RESPONSES[4] = (RESPONSES[4][0] % (len(_packed), _packed), True)


def fed(data: bytes, cuts: list[int]) -> tuple[Response, bytes]:
    response, body = Response(), b""
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    for start, end in zip(edges, edges[1:], strict=False):
        if end > start:
            body += b"".join(response.feed(data[start:end]))
    return response, body


@pytest.mark.parametrize(("data", "kept"), RESPONSES)
@given(cuts=st.lists(st.integers(0, 400), max_size=8))
def test_pieces_make_no_difference(data: bytes, kept: bool, cuts: list[int]) -> None:
    response, body = fed(data, cuts)
    if not response.ended:  # one that lasts as long as its connection
        response.end()
    assert (response.status, body, response.ended, response.kept) == (200, BODY, True, kept)
    assert response.headers.get("x-a", "1, 2") == "1, 2"
    assert "trailer" not in response.headers


@pytest.mark.parametrize(("data", "kept"), RESPONSES[:5])
def test_cut_anywhere_it_is_not_whole(data: bytes, kept: bool) -> None:
    for end in range(len(data)):
        response, _ = fed(data[:end] or b"H", [])
        with pytest.raises(Broken):
            response.end()


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-4\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiX\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 70_000,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 70_000,
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n",
    ],
)
def test_what_is_no_response_is_none(data: bytes) -> None:
    with pytest.raises(Broken):
        Response().feed(data)


REFUSED = [
    b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi",  # lines that end with a line feed alone
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n",
    b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nX-A: one\r\n two\r\nContent-Length: 2\r\n\r\nhi",  # a header on two lines
    b"HTTP/1.1 200 OK\r\nX-A: \x01\r\nContent-Length: 2\r\n\r\nhi",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi",
    b"HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
]


@pytest.mark.parametrize("data", REFUSED)
def test_what_no_server_of_models_sends_is_refused_though_a_lenient_reader_would_see_what_is_meant(data: bytes) -> None:
    with pytest.raises(Broken):
        Response().feed(data)


TAKEN = [
    # What servers and the proxies before them do send: padded sizes of chunks; a length beside chunks, or chunks announced twice, by a proxy
    # that added its own; an offer of HTTP/2; a blank line left over from before; hints that come early; names in Latin-1 or UTF-8.
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2   \r\nhi\r\n0 \r\n\r\n", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", False),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: Chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", True),
    (b"HTTP/1.1 200 OK\r\nUpgrade: h2,h2c\r\nConnection: Upgrade, Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", True),
    (b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", True),
    (b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 2000 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", True),
    (b"HTTP/1.1 200 \xc3\xa4\r\nX-A: \xc3\xa4\xff\r\nContent-Length: 2\r\n\r\nhi", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x, close\r\n\r\nhi", False),
    (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", True),
    (b"RTSP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", True),  # the parser reads its kin too; no model speaks that
]


@pytest.mark.parametrize(("data", "kept"), TAKEN)
def test_what_is_not_as_it_should_be_and_clear_all_the_same_is_taken(data: bytes, kept: bool) -> None:
    response = Response()
    assert b"".join(response.feed(data)) == b"hi"
    assert (response.status, response.ended, response.kept, "link" in response.headers) == (200, True, kept, False)


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-%d: and another\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-%d: ", b"one without end"),
        (b"", b"HTTP/1.1 100 Continue\r\nX-A: %d\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"x=y%d;"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n", b"X-%d: a trailer\r\n"),
    ],
)
def test_what_goes_on_without_a_body_is_given_up(head: bytes, more: bytes) -> None:
    response = Response()
    if head:
        response.feed(head.replace(b"%d", b"0"))
    pieces = iter([more.replace(b"%d", b"%d" % n) for n in range(200_000 // len(more))])
    with pytest.raises(Broken, match="does not end"):
        deque(map(response.feed, pieces), maxlen=0)
    assert next(pieces, b"")


def test_a_body_may_go_on() -> None:
    response = Response()
    response.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert sum(len(piece) for _ in range(20_000) for part in (b"5\r\n", b"hello\r\n") for piece in response.feed(part)) == 100_000


def test_another_protocol_that_nobody_asked_for_is_the_end() -> None:
    for upgrade in (b"", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"):
        response = Response()
        assert response.feed(b"HTTP/1.1 101 Switching Protocols\r\n" + upgrade + b"\r\n\x81\x05hello") == []
        assert (response.status, response.ended, response.kept) == (101, True, False)


HEADS = [b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"]
LIKELY = st.sampled_from([*(b"\r\n|\n|0|2|;|hi|:| |HTTP/1.1 200|HTTP/1.1 101|Transfer-Encoding: chunked|Connection: Upgrade|Upgrade: x".split(b"|"))])


@given(st.sampled_from(HEADS), st.binary(max_size=300) | st.lists(LIKELY, max_size=40).map(b"".join), st.booleans(), st.booleans())
def test_no_bytes_raise_anything_else(head: bytes, data: bytes, tunnel: bool, singly: bool) -> None:
    response, whole = Response(tunnel=tunnel), head + data
    try:
        for piece in [whole[n : n + 1] for n in range(len(whole))] if singly else [whole or b"H"]:
            response.feed(piece)
        response.end()
    except Broken:
        pass


def test_more_than_was_asked_for_ends_the_connection() -> None:
    response = Response()
    assert response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\n") == [b"hi"]
    assert (response.ended, response.kept) == (True, False)


def test_one_to_a_tunnel_and_one_without_a_body_end_with_their_heads() -> None:
    for response, data in ((Response(tunnel=True), b"HTTP/1.1 200 OK\r\n\r\n"), (Response(), b"HTTP/1.1 204 No Content\r\n\r\n")):
        assert response.feed(data) == []
        assert (response.ended, response.kept) == (True, True)


def test_behind_the_head_to_a_tunnel_nothing_is_its_body() -> None:
    response = Response(tunnel=True)
    assert response.feed(b"HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01") == []
    assert (response.ended, response.kept) == (True, False)


@pytest.mark.parametrize("data", [RESPONSES[0][0], RESPONSES[5][0]])
def test_over_it_is_let_go_of_without_a_collection(data: bytes) -> None:
    gc.disable()
    try:
        response = Response()
        response.feed(data)
        if not response.ended:
            response.end()
        left = weakref.ref(response)
        del response
        assert left() is None
    finally:
        gc.enable()


def test_no_more_is_unpacked_than_what_tells_that_it_is_too_large() -> None:
    packed = gzip.compress(bytes(3 * ANSWER_MOST), 1)
    response = Response()
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(packed)}\r\n\r\n"
    assert sum(map(len, response.feed(head.encode() + packed))) == ANSWER_MOST + 1
    assert response.ended
