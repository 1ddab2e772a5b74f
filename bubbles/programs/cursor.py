"""A place in a history, as a word that a script can keep: whoever comes back with it is told what followed, once.

It does not know what is told of a line. A history only grows, but for a tail without an end, which tells of nothing
yet; so a place is found again by where it was, and where a file was restored or mended, by what was there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from bubbles.errors import DataError

_FORM = re.compile(r"(\d{1,18})\.(\d{1,9})\.([0-9a-f]{12})")
Places = Iterator[tuple["Cursor", dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Cursor:
    """The `n`-th message told from byte `start` on, where no turn was under way; `mark` says by which turn, or which other line."""

    start: int
    n: int
    mark: str

    @classmethod
    def of(cls, start: int, n: int, meta: dict[str, Any], line: bytes) -> Cursor:
        """That of a message which the line `meta` brings. A turn that a power cut took away comes back as the same turn."""
        what = f"turn {meta.get('turn')}".encode() if meta.get("meta") == "turn" else line
        return cls(start, n, hashlib.sha256(what).hexdigest()[:12])

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises DataError where `text` is none."""
        if not (found := _FORM.fullmatch(text)):
            raise DataError(f"{text!r} is no cursor", remedy="give one that bubbles history has printed, as jq -r .cursor shows it")
        return cls(int(found[1]), int(found[2]), found[3])

    def __str__(self) -> str:
        return f"{self.start}.{self.n}.{self.mark}"


def after(file: BinaryIO, cursor: Cursor | None, told: Callable[[Iterable[bytes], int], Places], *, remedy: str) -> Places:
    """What `told` says of the lines of `file` after `cursor`; all of it for None. Raises DataError, with `remedy`, where it is not there."""
    file.seek(0)
    if cursor is None:
        return told(file, 0)
    found = _where_it_was(file, cursor, told) or _anywhere(file, cursor, told)
    if found is None:
        raise DataError("this history does not hold what the cursor stands for: it is another's, or the file was replaced", remedy=remedy)
    return found


def _where_it_was(file: BinaryIO, cursor: Cursor, told: Callable[[Iterable[bytes], int], Places]) -> Places | None:
    """What follows, with nothing read but that; None where something else is there now."""
    file.seek(max(0, cursor.start - 1))
    if cursor.start and file.read(1) != b"\n":
        return None
    places = told(file, cursor.start)
    for place, _ in places:
        if place == cursor:
            return places
        if place.start != cursor.start:
            break
    return None


def _anywhere(file: BinaryIO, cursor: Cursor, told: Callable[[Iterable[bytes], int], Places]) -> Places | None:
    file.seek(0)
    places = told(file, 0)
    return places if any((place.n, place.mark) == (cursor.n, cursor.mark) for place, _ in places) else None
