"""A response of HTTP/1.1 as bytes in and pieces of its body out. llhttp reads it; what is ours is what to make of it.

It does not know connections, nor what a body says.

    >>> response = Response()
    >>> response.feed(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n2\\r\\nhi\\r\\n0\\r\\n\\r\\n")
    [b'hi']
    >>> response.status, response.ended, response.kept
    (200, True, True)
"""

from __future__ import annotations

import zlib

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from bubbles.providers.lenient import ANSWER_MOST

_FRAME_MOST = 64 << 10  # bytes that may come with nothing of the body among them: the head, a chunk's size, the trailers
_CODINGS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Broken(ConnectionError):
    """What came is no response, or not a whole one."""


class Unpacked:
    """A body that comes packed by `coding`; by one that nobody knows it stays as it is.

    Of all of it no more is unpacked than what tells that it is too large.
    """

    def __init__(self, coding: str) -> None:
        bits = _CODINGS.get(coding.strip().lower())
        self._packed = zlib.decompressobj(bits) if bits is not None else None
        self._room = ANSWER_MOST + 1

    def feed(self, piece: bytes) -> bytes:
        """What `piece` holds. Raises Broken."""
        if self._packed is None:
            return piece
        if not self._room:
            return b""
        try:
            whole = self._packed.decompress(piece, self._room)
        except zlib.error as error:
            raise Broken(f"an answer that cannot be unpacked: {error}") from None
        self._room -= len(whole)
        return whole


class Response:
    """One response. `status` is 0 until its head has come; `kept`: the connection may carry another after it.

    A name that comes twice in `headers` (by lower case) has both values, with a comma between them. `tunnel`: it answers CONNECT.
    `begun`: anything of it has come. The methods named on_… are the parser's.
    """

    def __init__(self, *, tunnel: bool = False) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.begun = False
        self.ended = False
        self.kept = True
        self._tunnel = tunnel
        self._pieces: list[bytes] = []
        self._frame = 0  # bytes since the last piece
        self._wrong = ""
        self._unpacked: Unpacked | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        # Blanks that pad a chunk's size, and a length beside chunks, which has no meaning then: servers and proxies that send them exist.
        self._parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True, lenient_chunked_length=True)

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body that are in `data`. Raises Broken."""
        if self.ended or self._parser is None:
            self.kept = False  # nobody asked for more
            return []
        self.begun = True
        self._parse(self._parser, data)
        if self.ended:
            self._parser = None  # it and this hold each other
        pieces, self._pieces = self._pieces, []
        self._frame = 0 if pieces else self._frame + len(data)
        if self._frame > _FRAME_MOST and not self.ended:
            raise Broken("an answer whose head does not end, or a chunk's size")
        return self._unpack(pieces) if self._unpacked else pieces

    def end(self) -> None:
        """The connection has ended. Raises Broken where the response is not whole."""
        self._parser, self.kept = None, False
        if not self.ended and (not self.status or "transfer-encoding" in self.headers or "content-length" in self.headers):
            raise Broken("the connection was closed in the middle of an answer" if self.begun else "the connection was closed before an answer came")
        self.ended = True

    def _parse(self, parser: HttpResponseParser, data: bytes) -> None:
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.ended:
                what = "an answer that is broken" if self.status else "what answers there does not speak HTTP/1.1"
                raise Broken(f"{what}: {error}") from None
            self.kept = False  # it is about what came behind the end
        if self._wrong:
            raise Broken(self._wrong)

    def on_message_begin(self) -> None:
        if self.ended:
            raise Broken("more than was asked for")  # so that the parser reads no further; the response itself is whole

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            return  # a trailer
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        assert self._parser
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self.headers.clear()  # the response proper is still to come
            return
        if status < 100 or not self._parser.get_http_version().startswith("1."):
            self._wrong = "what answers there does not speak HTTP/1.1"
        self.status = status
        self.kept = self._parser.should_keep_alive()
        if self._tunnel and 200 <= status < 300:
            self.ended = self.kept = True  # the parser does not know what was asked
            return
        if coding := self.headers.get("transfer-encoding"):
            self.kept = self.kept and "content-length" not in self.headers
            if set(coding.lower().replace(" ", "").split(",")) != {"chunked"}:
                self._wrong = f"a transfer coding that was not asked for: {coding}"
        if coding := self.headers.get("content-encoding"):
            self._unpacked = Unpacked(coding)

    def on_body(self, piece: bytes) -> None:
        if self.ended:
            self.kept = False  # behind the head of a tunnel
        else:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self.ended = self.status > 0

    def _unpack(self, pieces: list[bytes]) -> list[bytes]:
        """Packed though nobody asked for that."""
        assert self._unpacked
        return [whole for piece in pieces if (whole := self._unpacked.feed(piece))]
