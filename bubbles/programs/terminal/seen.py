"""What this person has seen of a session: the length of its history when it was last looked at.

It does not know turns that still run: their words enter history when they end, and are shown then.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.paths import Home


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one turn brought: the words said to the assistant, its replies, and the notice where there was none."""

    turn: str
    words: list[str]
    replies: list[str]
    notice: str


class Seen:
    """The mark of one session, in `channels/cli/KEY.seen`: a byte offset in its history."""

    def __init__(self, home: Home, key: str) -> None:
        self._history = home.session(key) / "session.jsonl"
        self._path = home.root / "channels" / "cli" / f"{key}.seen"

    @property
    def size(self) -> int:
        """The length of the history now, in bytes."""
        try:
            return self._history.stat().st_size
        except OSError:
            return 0

    @property
    def mark(self) -> int:
        """The length up to which it was seen; 0 where it never was."""
        try:
            return int(regular.read(self._path))
        except (OSError, ValueError):
            return 0

    def up_to(self, size: int) -> None:
        """Remember that the history was seen up to `size`. A mark that cannot be kept is not worth an error."""
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            beside.write_text(str(size))
            beside.replace(self._path)

    def missed(self) -> list[Exchange]:
        """The turns that ended since, oldest first."""
        mark = self.mark
        return list(exchanges(self._history, mark if mark <= self.size else 0))


def exchanges(history: Path, offset: int) -> Iterator[Exchange]:
    """The turns that end in a history file after a byte offset."""
    try:
        file = open(history, "rb", opener=regular.opened)  # noqa: SIM115 -- a history that is not there ends here
    except OSError:
        return
    with file:
        file.seek(offset)
        for line in file:
            if line.startswith(b'{"meta":"turn"') and (end := _object(line)):
                words = [str(m.get("text", "")) for m in end.get("messages", ()) if isinstance(m, dict)]
                says = [str(text) for text in end.get("says", ())]
                yield Exchange(str(end.get("turn", "")), words, says, str(end.get("notice", "")))


def _object(line: bytes) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
