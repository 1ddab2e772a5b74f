"""Server-sent events: bytes in whatever pieces they come, data of whole events out. Pure; it does not know what the data means."""

from __future__ import annotations


class Events:
    """A decoder for one stream. Comments and fields other than `data` (and the `error` of llama.cpp) are dropped.

    >>> events = Events()
    >>> events.feed(b": ping\\n\\ndata: {\\"a\\"")
    []
    >>> events.feed(b": 1}\\r\\n\\r\\ndata: [DONE]\\n\\n")
    [b'{"a": 1}', b'[DONE]']
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line that has not ended; joined once, however many pieces it comes in
        self._held = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The events that end in `data`."""
        data, self._held = self._held + data, b""
        if data.endswith(b"\r"):  # may be the first half of a line's end
            data, self._held = data[:-1], b"\r"
        if b"\n" not in data and b"\r" not in data:
            self._rest.append(data)
            return []
        buffer = b"".join([*self._rest, data])
        if b"\r" in buffer:
            buffer = buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = buffer.split(b"\n")
        self._rest = [rest]
        return [event for line in lines if (event := self._line(line)) is not None]

    def end(self) -> list[bytes]:
        """The event that the stream's end leaves open, for servers that spare the last blank line."""
        return [event for line in (b"".join(self._rest), b"") if (event := self._line(line)) is not None]

    def _line(self, line: bytes) -> bytes | None:
        if not line:
            data, self._data = self._data, []
            return b"\n".join(data) if data else None
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        if name in (b"data", b"error"):
            self._data.append(value.removeprefix(b" "))
        return None
