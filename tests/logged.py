"""All that a daemon has said, for tests that look for a word of it: its log as lines for people, and what came on its standard error."""

from __future__ import annotations

import contextlib
from pathlib import Path

from bubbles.paths import Home
from bubbles.programs.entries import Entry, text


def logged(home: Home, name: str) -> str:
    """The text, oldest first. Empty where it has said nothing yet."""
    files = sorted(home.log.glob(f"{name}.jsonl*"), key=lambda path: path.suffix, reverse=True)
    lines = [line for path in [files[-1], *files[:-1]] for line in path.read_bytes().splitlines()] if files else []
    said = "".join(f"{text(entry, False)}\n" for entry in map(Entry.parse, lines) if entry)
    with contextlib.suppress(FileNotFoundError):
        said += Path(home.log / f"{name}.log").read_text()
    return said
