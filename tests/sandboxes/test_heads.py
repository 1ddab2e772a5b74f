"""Heads of requests and answers: what is passed on, what is dropped, and that nothing else than a plain head is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.sandboxes import heads

GET = b"GET http://example.com/a HTTP/1.1\r\n"


def wrong(head: bytes) -> str:
    with pytest.raises(heads.Bad) as caught:
        heads.request(head)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "url", "path"),
    [
        (b"GET http://example.com HTTP/1.1", "http://example.com", "/"),
        (b"GET http://example.com?q=1 HTTP/1.1", "http://example.com?q=1", "/?q=1"),
        (b"GET HTTP://Example.com:80/a#frag HTTP/1.0", "HTTP://Example.com:80/a", "/a"),
        (b"M-SEARCH http://example.com/%20 HTTP/1.1", "http://example.com/%20", "/%20"),
        ("GET http://bücher.example/ HTTP/1.1".encode(), "http://bücher.example/", "/"),
        (b"CONNECT example.com:443 HTTP/1.1", "https://example.com:443", "/"),
        (b"CONNECT [2606::1]:443 HTTP/1.1", "https://[2606::1]:443", "/"),
    ],
)
def test_what_is_asked_for(line: bytes, url: str, path: str) -> None:
    found = heads.request(line + b"\r\n\r\n")
    assert (found.url, found.path) == (url, path)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n",
        b"GET https://example.com/ HTTP/1.1\r\n\r\n",
        b"GET ftp://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http:/example.com/ HTTP/1.1\r\n\r\n",
        b"GET  http://example.com/ HTTP/1.1\r\n\r\n",
        b"GET\thttp://example.com/ HTTP/1.1\r\n\r\n",
        b"get http://example.com/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com/ HTTP/2.0\r\n\r\n",
        b"GET http://example.com/\r\n\r\n",
        b"GET http://example.com/\xc3\xa4 HTTP/1.1\r\n\r\n",
        b"GET http://example.com\xff/ HTTP/1.1\r\n\r\n",
        b"GET http://example.com/\0 HTTP/1.1\r\n\r\n",
        b"CONNECT example.com:443/path HTTP/1.1\r\n\r\n",
        b"CONNECT example.com\0:443 HTTP/1.1\r\n\r\n",
        b"CONNECT http://example.com HTTP/1.1\r\n\r\n",
        GET + b"No colon\r\n\r\n",
        GET + b"Name : value\r\n\r\n",
        GET + b"A: 1\r\n folded\r\n\r\n",
        GET + b"A: \0\r\n\r\n",
        GET + b"A: 1\nB: 2\r\n\r\n",
        GET + b"A: 1\rB: 2\r\n\r\n",
        GET + b": empty\r\n\r\n",
        GET + b"Host: a\r\nhost: b\r\n\r\n",
        GET + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n",
        GET + b"Content-Length: +1\r\n\r\n",
        GET + b"Content-Length: 1, 1\r\n\r\n",
        GET + b"Content-Length: -1\r\n\r\n",
        GET + b"Content-Length: 0x10\r\n\r\n",
        GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Transfer-Encoding: identity\r\n\r\n",
        GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"Transfer-Encoding: \x0bchunked\r\n\r\n",
        b"POST http://example.com/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        GET + b"A: 1\r\n" * 200 + b"\r\n",
        GET + b"A: " + b"x" * heads.MOST + b"\r\n\r\n",
        b"\r\n\r\n",
        b"",
    ],
)
def test_what_is_no_plain_request_is_refused(head: bytes) -> None:
    assert wrong(head)


@pytest.mark.parametrize(
    ("fields", "length"), [(b"", 0), (b"Content-Length: 12\r\n", 12), (b"content-length:0\r\n", 0), (b"Transfer-Encoding: Chunked\r\n", None)]
)
def test_how_long_a_body_is(fields: bytes, length: int | None) -> None:
    assert heads.request(GET + fields + b"\r\n").length == length


def test_what_is_for_the_proxy_alone_goes_no_further() -> None:
    head = heads.request(
        GET + b"Host: other\r\nProxy-Authorization: Basic x\r\nConnection: keep-alive, X-Mine , content-length\r\nX-Mine: 1\r\nTE: gzip\r\n"
        b"Upgrade: h2c\r\nHTTP2-Settings: x\r\nKeep-Alive: 5\r\nContent-Length: 3\r\nCookie: a\r\n\r\n"
    )
    passed = head.passed_on("example.com:8080").decode()
    assert passed == "GET /a HTTP/1.1\r\nHost: example.com:8080\r\nContent-Length: 3\r\nCookie: a\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "method", "length"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", 5),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 0),
        (b"HTTP/1.1 304\r\nContent-Length: 5\r\n\r\n", "GET", 0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "GET", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", None),
        (b"HTTP/1.0 200 Gef\xe4llt\r\n\r\n", "GET", None),
    ],
)
def test_an_answer_says_how_long_it_is(head: bytes, method: str, length: int | None) -> None:
    assert heads.answer(head, method).length == length


def test_an_answer_tells_the_client_that_no_other_follows() -> None:
    answer = heads.answer(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nA: 1\r\n\r\n")
    assert answer.head == b"HTTP/1.1 200 OK\r\nA: 1\r\nConnection: close\r\n\r\n"
    assert heads.answer(b"HTTP/1.1 100 Continue\r\n\r\n").head == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("head", [b"ICY 200 OK\r\n\r\n", b"HTTP/1.1 99 x\r\n\r\n", b"HTTP/1.1 200\0\r\n\r\n", b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
def test_what_is_no_answer_is_refused(head: bytes) -> None:
    with pytest.raises(heads.Bad):
        heads.answer(head)


_PIECES = st.sampled_from(
    [b"GET", b"POST", b"CONNECT", b" ", b"http://", b"example.com", b":443", b"/a", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n", b"\0", b":"]
    + [b"Host: x", b"Content-Length: 3", b"Transfer-Encoding: chunked", b"Connection: close, A", b"A: b", b"\xff", b"\t"]
)


@given(st.lists(_PIECES | st.binary(max_size=6), max_size=20).map(b"".join))
def test_whatever_comes_is_a_request_or_none(data: bytes) -> None:
    """And what is passed on of it is one that is read the same again."""
    try:
        found = heads.request(data + b"\r\n\r\n")
    except heads.Bad:
        return
    if found.is_tunnel:
        return
    passed = found.passed_on("example.com")
    first, _, rest = passed.partition(b"\r\n")
    assert b"\r\n\r\n" not in passed[:-4]
    assert first.split(b" ") == [found.method.encode(), found.path.encode(), f"HTTP/{found.version}".encode()]
    again = heads.request(first.replace(b" /", b" http://example.com/", 1) + b"\r\n" + rest)
    assert (again.length, again.path) == (found.length, found.path)


@given(st.binary(max_size=200))
def test_whatever_comes_is_an_answer_or_none(data: bytes) -> None:
    try:
        answer = heads.answer(b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n")
    except heads.Bad:
        return
    assert heads.answer(answer.head).status == answer.status
