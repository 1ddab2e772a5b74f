"""What is old and needed all the same: by a turn that is open, or by a message that waits.

Of a session whose journal is not empty, a file is spared if the journal has its name anywhere, or that of a directory it
lies in (a picture that came along, a path in a command, a line of a listing), and if anything has happened to it since the
turn began: written, moved, unpacked, read. It does not know how old anything is.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bubbles import regular
from bubbles.errors import DataError
from bubbles.messages import from_line
from bubbles.paths import Home

_WAITING = ("tmp", "new", "cur", "held")
_WRITTEN = re.compile(rb'"written":([0-9.e+]+)')


@dataclass(frozen=True, slots=True)
class Turn:
    """What the journal of an open turn says. `since`: when it began (epoch seconds), 0 where that cannot be read."""

    text: bytes
    since: float

    def needs(self, names: tuple[str, ...], info: os.stat_result) -> bool:
        """Whether a file, named from the session's data/ on, may be one that the turn works with."""
        return max(info.st_mtime, info.st_ctime, info.st_atime) >= self.since or any(self._names(name) for name in names)

    def _names(self, name: str) -> bool:
        """Whether a name stands in it: as JSON has it, as JSON in JSON (the arguments of a call), or as it is."""
        once = json.dumps(name)[1:-1]
        return any(each in self.text for each in (once.encode(), json.dumps(once)[1:-1].encode(), os.fsencode(name)))


class Spared:
    """What must stay, of one home. The messages that wait are read once, journals as often as they change."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._seen: dict[str, tuple[tuple[int, int], Turn]] = {}

    def turn(self, key: str) -> Turn | None:
        """The open turn of a session; None where none is."""
        path = self._home.turns / f"{key}.jsonl"
        try:
            found = path.stat()
            if not found.st_size:
                return None
            state = (found.st_size, found.st_mtime_ns)
            if key not in self._seen or self._seen[key][0] != state:
                self._seen[key] = (state, _turn(regular.read(path)))
            return self._seen[key][1]
        except FileNotFoundError:
            return None
        except OSError:
            return Turn(b"", 0.0)

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of turns that are open, of the words in them, and of messages that still have to be taken in.

        What went out under such an id must stay known: the turn may be taken up again, and say it once more.
        """
        journals = (from_journal for path in self._home.turns.glob("*.jsonl") for from_journal in _lines(path))
        named = {str(body.get("turn" if "format" in body else "id")) for body in journals}
        return frozenset(named | {path.stem for path in self._waiting("inbound") if path.suffix == ".json"})

    @cached_property
    def media(self) -> frozenset[str]:
        """The names of the files that messages which wait, and turns that were given up, have with them."""
        messages = (body for way in ("inbound", "outbound") for path in self._waiting(way) for body in _lines(path))
        held = (body for path in (self._home.turns / "held").glob("*.jsonl") for body in _lines(path))
        return frozenset(os.path.basename(path) for body in (*messages, *held) for path in _paths(body))

    def is_known(self, id: str, turn: str) -> bool:
        """Whether what went out, or came in, under `id` belongs to one of `ids`. `turn`: the turn that its message names, or ""."""
        parts = id.split(".")
        return turn in self.ids or any(".".join(parts[:n]) in self.ids for n in range(1, len(parts) + 1))

    def _waiting(self, way: str) -> Iterator[Path]:
        for state in _WAITING:
            yield from (self._home.root / "spool" / way).glob(f"*/{state}/*")


def _turn(data: bytes) -> Turn:
    written = _WRITTEN.search(data)
    since = 0.0
    with suppress(ValueError):
        since = float(written[1]) if written else 0.0
    return Turn(data, since)


def _lines(path: Path) -> Iterator[dict[str, object]]:
    """The objects in a file, a line each; what cannot be read is left out."""
    data = b""
    with suppress(OSError):
        if not path.is_symlink():
            data = regular.read(path)
    for line in data.splitlines():
        with suppress(DataError):
            yield from_line(line)


def _paths(body: dict[str, object]) -> Iterable[str]:
    media = body.get("media")
    return [each["path"] for each in media if isinstance(each, dict) and isinstance(each.get("path"), str)] if isinstance(media, list) else []
