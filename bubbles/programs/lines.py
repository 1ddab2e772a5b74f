"""The one currency of the shell tools: a JSON object a line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from bubbles.errors import DataError
from bubbles.messages import from_line

_STEERS = re.compile(  # what JSON itself does not escape
    "[\x7f-\x9f"  # delete, and the controls of one byte
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u2028\u2029\ud800-\udfff"  # separators of lines; halves of characters
    "\U000e0000-\U000e007f]"  # tags: text that no screen shows
)


def put(body: dict[str, Any]) -> None:
    """Print one object. Text stays readable; each line leaves at once, so that a pipe can be followed."""
    print(rendered(body, separators=(",", ":")), flush=True)


def rendered(value: Any, *, separators: tuple[str, str] | None = None) -> str:
    """`value` as JSON that a terminal may be shown: text stays readable, and what is no text but would steer the screen is escaped.

    >>> print(rendered({"text": "caf\u00e9 \u202egnp.exe"}))
    {"text": "café \\u202egnp.exe"}
    """
    return _STEERS.sub(lambda found: json.dumps(found.group())[1:-1], json.dumps(value, ensure_ascii=False, separators=separators))


def get() -> Iterator[dict[str, Any]]:
    """The objects on standard input. Raises DataError naming the line that is none."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        if line.strip():
            try:
                yield from_line(line)
            except DataError as error:
                raise DataError(f"line {number}: {error.text}", remedy="give a JSON object a line") from error


def ids() -> Iterator[str]:
    """The ids on standard input, each a line of its own or the `id` of an object."""
    for line in sys.stdin.buffer:
        text = line.decode("utf-8", "replace").strip()
        if text.startswith("{"):
            text = str(from_line(text).get("id", ""))
        if text:
            yield text
