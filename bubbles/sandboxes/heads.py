"""The heads of HTTP/1 as a proxy must read them: what a client asks for, and what it may pass on of that and of the answer.

Strict on purpose: two readers that understand one head differently are how a request is smuggled past the first of them. It does not know
connections, nor which hosts may be reached.

    >>> head = request(b"GET http://example.com/a?b HTTP/1.1\\r\\nHost: other\\r\\nProxy-Connection: keep-alive\\r\\nAccept: */*\\r\\n\\r\\n")
    >>> head.url, head.passed_on("example.com")
    ('http://example.com/a?b', b'GET /a?b HTTP/1.1\\r\\nHost: example.com\\r\\nAccept: */*\\r\\nConnection: close\\r\\n\\r\\n')
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 32 << 10  # bytes of a head
_FIELDS_MOST = 128
_REQUEST = re.compile(rb"([A-Z][A-Z-]{0,31}) ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_TARGET = re.compile(r"(http://[^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"}
_HOP |= {b"te", b"trailer", b"upgrade", b"http2-settings"}
_KEPT = {b"transfer-encoding", b"content-length", b"host"}  # no Connection field can take these away: they frame a request, or are ours

Fields = list[tuple[bytes, bytes]]


class Bad(ValueError):
    """What came is not a head that is passed on, and why."""


@dataclass(frozen=True)
class Request:
    """What a client asks for. `url` is the whole of it, "https://HOST:PORT" for CONNECT.

    `length` is how many bytes of body follow, None where they come in chunks.
    """

    method: str
    url: str
    fields: Fields
    path: str = "/"
    length: int | None = 0
    version: str = "1.1"

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    def passed_on(self, host: str) -> bytes:
        """The head for the server that is called `host` (with its port, where it is not the usual one)."""
        fields = [(name, value) for name, value in _without_hops(self.fields) if name.lower() != b"host"]
        first = f"{self.method} {self.path} HTTP/{self.version}".encode("ascii")
        return _joined(first, [(b"Host", host.encode("ascii")), *fields, (b"Connection", b"close")])


def request(head: bytes) -> Request:
    """The request whose head, up to and with its empty line, is `head`. Raises Bad."""
    first, fields = _lines(head)
    found = _REQUEST.fullmatch(first)
    if not found:
        raise Bad("its first line is not METHOD URL HTTP/1.1")
    method = found[1].decode("ascii")
    try:
        target = found[2].decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("its URL is not valid text") from None
    if sum(name.lower() == b"host" for name, _ in fields) > 1:
        raise Bad("it names the host twice")
    if method == "CONNECT":
        if re.search(r"[/?#\\]", target):
            raise Bad("CONNECT wants HOST:PORT")
        return Request(method, f"https://{target}", fields)
    parts = _TARGET.fullmatch(target)
    if not parts:
        raise Bad("this is a proxy: it wants a whole http:// URL, and CONNECT for https")
    if not parts[2].isascii():
        raise Bad("what follows the host in its URL is not ASCII")
    path = parts[2] if parts[2].startswith("/") else f"/{parts[2]}"
    version = f"1.{found[3].decode()}"
    return Request(method, parts[1] + parts[2], fields, path, _framed(fields, is_old=version == "1.0"), version)


@dataclass(frozen=True)
class Answer:
    """`head` as it is passed on to a client that gets no other answer; `length` is how many bytes of body follow, None for all until the end."""

    status: int
    head: bytes
    length: int | None = None


def answer(head: bytes, method: str = "GET") -> Answer:
    """The answer to a request by `method` whose head, up to and with its empty line, is `head`. Raises Bad."""
    first, fields = _lines(head)
    found = _STATUS.fullmatch(first)
    if not found:
        raise Bad("its first line is not HTTP/1.1 STATUS")
    status = int(found[1])
    closing = [] if status < 200 else [(b"Connection", b"close")]
    return Answer(status, _joined(first, [*_without_hops(fields), *closing]), _answered(fields, status, method))


def _answered(fields: Fields, status: int, method: str) -> int | None:
    """How long an answer's body is, where that is beyond doubt: some servers keep a connection open that they were told to close."""
    if method == "HEAD" or status in (204, 304):
        return 0
    lengths = {value for name, value in fields if name.lower() == b"content-length"}
    if len(lengths) != 1 or any(name.lower() == b"transfer-encoding" for name, _ in fields):
        return None
    length = lengths.pop()
    return int(length) if _LENGTH.fullmatch(length) else None


def _lines(head: bytes) -> tuple[bytes, Fields]:
    if len(head) > MOST:
        raise Bad(f"it is longer than {MOST} bytes")
    if not head.endswith(b"\r\n\r\n"):
        raise Bad("it does not end")
    first, *lines = head[:-4].split(b"\r\n")
    if len(lines) > _FIELDS_MOST:
        raise Bad(f"it has more than {_FIELDS_MOST} fields")
    return first, [_field(line) for line in lines]


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if not found:
        raise Bad(f"it has a line that is no field: {ascii(line[:60])[2:-1]}")
    return found[1], found[2]


def _framed(fields: Fields, is_old: bool) -> int | None:
    """How long the body is; None for chunks. Whoever says it twice may mean two things."""
    lengths = [value for name, value in fields if name.lower() == b"content-length"]
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if codings and (lengths or is_old or codings != [b"chunked"]):
        raise Bad("it does not say plainly how long its body is")
    if len(lengths) > 1 or any(not _LENGTH.fullmatch(length) for length in lengths):
        raise Bad("it does not say plainly how long its body is")
    return None if codings else int(lengths[0]) if lengths else 0


def _without_hops(fields: Fields) -> Fields:
    """Those that are not for the next in line alone."""
    named = {option.strip().lower() for name, value in fields if name.lower() == b"connection" for option in value.split(b",")}
    dropped = _HOP | (named - _KEPT)
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def _joined(first: bytes, fields: Fields) -> bytes:
    return b"\r\n".join([first, *(name + b": " + value for name, value in fields), b"", b""])
