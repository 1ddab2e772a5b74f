"""The pictures that people sent, shown to models that see.

History and journal hold a line for each file that came with words, `[file: ../data/cat.png, image/png, 8123 bytes]`; in a request to a model
that sees, the newest of those pictures stand behind the words they came with. Older ones, large ones and those that are gone stay that line.
It does not know where a request goes; what it reads is what the session's tools may read.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from bubbles.agentd.request import Request
from bubbles.errors import ToolError
from bubbles.kernel.context import encode
from bubbles.kernel.weight import IMAGE_TOKENS
from bubbles.workspace import Workspace

MOST = 6  # pictures in a request,
STEP = 3  # of which so many go at once when there are more: each change costs the provider's cache
BYTES_MOST = 3_750_000  # of one: 5 MB as it is sent, which is what the strictest provider takes
ALL_BYTES_MOST = 6_000_000  # of all in a request

_NOTE = re.compile(rb"(?<=\\n)\[file: (\.\./data/[^\"\\,\]]+), image/(?:png|jpeg|jpg|gif|webp), \d+ bytes\](?=\\n|\"})")
_KINDS = ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"), (b"RIFF", "webp"))


class Pictures:
    """Those of one session. `files` opens its files."""

    def __init__(self, files: Callable[[], Workspace]) -> None:
        self._files = files
        self._urls: dict[str, str] = {}  # of those that are shown, by path; "" for what cannot be
        self._lines: dict[bytes, bytes] = {}  # messages as they were sent last, by how they stand in the history

    def weight(self, *lines: Sequence[bytes]) -> int:
        """About how many tokens the pictures in messages will be."""
        return IMAGE_TOKENS * min(MOST, len(_paths(*lines)))

    def shown(self, request: Request) -> Request:
        """The request with its pictures in it. The same bytes each time, as long as it is the same pictures. Reads files: not for the event loop."""
        lines = request.after(0)
        paths = self._chosen(_paths(lines))
        self._lines = {line: self._lines.get(line) or self._line(line, paths) for line in lines if _paths([line])}
        return Request.of([self._lines.get(line, line) for line in lines]) if any(self._urls.values()) else request

    def _chosen(self, paths: list[str]) -> set[str]:
        """Those that are shown. Where they are other ones than before, the messages are made anew."""
        over = max(0, len(paths) - MOST)
        wanted = paths[-(-over // STEP) * STEP :]
        urls = {path: self._urls[path] for path in wanted if path in self._urls}
        if missing := [path for path in wanted if path not in urls]:
            with closing(self._files()) as files:
                urls |= {path: _url(files, path) for path in missing}
        room = ALL_BYTES_MOST * 4 // 3
        for path in reversed(wanted):
            room -= len(urls[path])
            urls[path] = urls[path] if room >= 0 else ""
        if urls != self._urls:
            self._lines = {}
        self._urls = urls
        return {path for path, url in urls.items() if url}

    def _line(self, line: bytes, paths: set[str]) -> bytes:
        here = [path for path in _paths([line]) if path in paths]
        if not here:
            return line
        message: dict[str, Any] = json.loads(line)
        images = [{"type": "image_url", "image_url": {"url": self._urls[path]}} for path in here]
        return encode({**message, "content": [{"type": "text", "text": message["content"]}, *images]})


def _paths(*lines: Sequence[bytes]) -> list[str]:
    """The pictures that are told of in messages of people, each where it is told of last; oldest first."""
    found: dict[str, None] = {}
    for line in (line for some in lines for line in some if line.startswith(b'{"role":"user"') and b"[file: ../data/" in line):
        for note in _NOTE.finditer(line):
            path = note[1].decode("utf-8", "replace")
            found.pop(path, None)
            found[path] = None
    return list(found)


def _url(files: Workspace, path: str) -> str:
    """The picture as it is sent; "" where it is none, too large, or gone."""
    try:
        data = files.open_media(path)
    except (ToolError, OSError):
        return ""
    kind = next((kind for head, kind in _KINDS if data.startswith(head)), "")
    if not kind or not 0 < len(data) <= BYTES_MOST:
        return ""
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
