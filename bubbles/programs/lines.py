"""The one currency of the shell tools: a JSON object a line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from bubbles.errors import DataError
from bubbles.messages import from_line


def put(body: dict[str, Any]) -> None:
    """Print one object. Text stays readable; each line leaves at once, so that a pipe can be followed."""
    print(json.dumps(body, ensure_ascii=False, separators=(",", ":")), flush=True)


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
