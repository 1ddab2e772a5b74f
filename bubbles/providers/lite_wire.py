"""A hosted provider's answer on its way to LiteLLM, set right where LiteLLM would trip: too large, packed, cut up, or with a usage that is none.

It knows bytes and the names by which vendors tell of usage; it does not know LiteLLM.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

from bubbles.providers.http1 import Unpacked
from bubbles.providers.lenient import ANSWER_MOST, counted, parsed

_NAME_MOST = 200  # characters of a model's name: LiteLLM takes a minute over one of megabytes
_TELLS = re.compile(rb'"usage(Metadata)?"\s*+:\s*+(?!null)|"model"\s*+:\s*+(?!null|"[^"]{0,%d}")' % _NAME_MOST)
_CARELESS = re.compile(rb"(?m)^(:|data:\s*(\[DONE\]|$))")
_OF_TOKENS = ("tokens", "Tokens", "TokenCount")  # how the names of counts end


class TooLarge(Exception):
    """More has come than there is room for."""


async def sound(blocks: AsyncIterable[bytes], coding: str, *, events: bool) -> AsyncIterator[bytes]:
    """The bytes of a body: all at once, or of `events` as they come, in whole lines with an end behind the last. Raises TooLarge, Broken."""
    unpacked, size, rest = Unpacked(coding), 0, list[bytes]()
    async for packed in blocks:
        block = unpacked.feed(packed)
        size += len(block)
        if size > ANSWER_MOST:
            raise TooLarge
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1 if events else 0
        if end:
            if lines := _righted(b"".join([*rest, block[:end]]), events=events):
                yield lines
            rest = []
        if block[end:]:
            rest.append(block[end:])
    if rest or events:
        yield _righted(b"".join(rest), events=events) + (b"\n\n" if events else b"")


def _righted(lines: bytes, *, events: bool) -> bytes:
    """Whole lines, each as text, and with a usage that is one; without comments, which may be many."""
    try:
        lines.decode()
    except UnicodeDecodeError:
        lines = lines.decode("utf-8", "replace").encode()
    if not events:
        return _line(lines) if _TELLS.search(lines) else lines
    if _CARELESS.search(lines) or _TELLS.search(lines):
        return b"".join(_line(line) for line in lines.splitlines(keepends=True) if not line.startswith(b":"))
    return lines


def _line(line: bytes) -> bytes:
    """One line, whose end stays as it is."""
    event = line.startswith(b"data:")
    data = line.removeprefix(b"data:").strip()
    if event and not data:
        return b""
    if event and data == b"[DONE]":
        return b"data: [DONE]\n"
    if not _TELLS.search(data):
        return line
    try:
        body = parsed(data)
    except (ValueError, RecursionError):
        return line
    mended = [_mend(place) for place in _places(body)]
    if not any(mended):
        return line
    return (b"data: " if event else b"") + json.dumps(body).encode() + b"\n"


def _places(body: Any) -> Iterator[dict[str, Any]]:
    """Where a usage may stand in an answer, or in an event of one."""
    if isinstance(body, dict):
        choices = body.get("choices")
        for place in (body, body.get("message"), body.get("response"), *(choices if isinstance(choices, list) else ())):
            if isinstance(place, dict):
                yield place


def _mend(place: dict[str, Any]) -> bool:
    """Whether a usage had to be changed, to one that counts nothing or to one without details, or a name."""
    changed = False
    model = place.get("model", "")
    if not isinstance(model, str) or len(model) > _NAME_MOST:
        place["model"], changed = model[:_NAME_MOST] if isinstance(model, str) else "", True
    for name in ("usage", "usageMetadata"):
        usage = place.get(name)
        if usage is None:
            continue
        if not isinstance(usage, dict):
            place[name], changed = {}, True
        elif any(value is not None and counted(value) is None for key, value in usage.items() if key.endswith(_OF_TOKENS)):
            place[name], changed = {key: 0 for key in usage if key.endswith(_OF_TOKENS)}, True
        else:
            odd = [key for key, value in usage.items() if key.lower().endswith("details") and not _is_sound(value)]
            for key in odd:
                del usage[key]
            changed = changed or bool(odd)
    return changed


def _is_sound(details: Any) -> bool:
    """Whether these can be parts of a usage: an object of counts, or Gemini's list of such."""
    if isinstance(details, list):
        return all(isinstance(each, dict) and _is_sound(each) for each in details)
    if isinstance(details, dict):
        return all(value is None or counted(value) is not None for key, value in details.items() if key.endswith(_OF_TOKENS))
    return details is None
