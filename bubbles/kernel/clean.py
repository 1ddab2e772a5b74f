"""Text as a person would see it on a screen: escapes, controls and turns of direction taken out. It does not know where the text comes from."""

from __future__ import annotations

import re

from bubbles.messages import scrub

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC: titles, links
    r"|\x1b[ -/]*[0-~]?"  # the short ones
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in one byte
)
_OVERSTRUCK = re.compile(r"[^\n]\x08")  # how man pages print bold
_HIDDEN = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f"  # controls but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\U000e0000-\U000e007f]"  # tags: text that no screen shows
)
_BINARY = re.compile("[\0-\x06\x0e-\x1a\x1c-\x1f\x7f\ufffd\ud800-\udfff]")


def clean(text: str) -> str:
    """`text` as a person would see it on a screen: without escapes, controls and turns of direction; of binary data only its size.

    >>> clean("\\x1b[1mdone\\x1b[0m\\r\\n10 %\\r100 %")
    'done\\n100 %'
    """
    if len(_BINARY.findall(text)) * 10 > len(text):
        return f"[binary data: {_count(len(text))} characters]"
    text = _ESCAPE.sub("", text)
    text = _OVERSTRUCK.sub("", text)
    return _HIDDEN.sub("", scrub(_without_rewrites(text)))


def _without_rewrites(text: str) -> str:
    """A line that a carriage return began anew shows what was written last."""
    if "\r" not in text:
        return text
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")
