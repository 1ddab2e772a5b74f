"""How things stand, shown to a person: plain aligned lines, and at a terminal the same with marks and colour.

It does not know what is shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bubbles.kernel.clean import clean

TRY = "try: "
_COLOURS = {"ok": "green", "note": "yellow", "bad": "bold red", "off": "dim"}
_MARKS = {"ok": "●", "note": "▲", "bad": "✗", "off": "○"}
_MARKS_ASCII = {"ok": "*", "note": "!", "bad": "x", "off": "-"}


@dataclass(frozen=True, slots=True)
class Row:
    """A line: how it is with it (ok, note, bad, off; "" where that means nothing), its name, and what there is to say, a column each."""

    mark: str
    name: str
    cells: tuple[str, ...]


@dataclass(slots=True)
class Block:
    """Lines whose columns stand below each other, with a heading over each where there are `heads` (the first is over the names)."""

    rows: list[Row] = field(default_factory=list)
    heads: tuple[str, ...] = ()

    def add(self, name: str, *cells: str, mark: str = "") -> None:
        self.rows.append(Row(mark, _line(name), tuple(_line(cell) for cell in cells)))

    def add_with_remedy(self, name: str, text: str, remedy: str, *, mark: str) -> None:
        """What is to be known, and below it what to do about it."""
        self.add(name, text, mark=mark)
        if remedy:
            self.add("", f"{TRY}{remedy}")


def show(blocks: Sequence[Block]) -> None:
    """Print blocks to standard output, which decides how."""
    blocks = [block for block in blocks if block.rows]
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _draw(blocks)
    else:
        print("\n".join(plain(blocks)))


def plain(blocks: Sequence[Block]) -> Iterator[str]:
    """The lines for a pipe: names as wide as the widest of all, columns as wide as the widest of their block."""
    wide = _wide(blocks)
    for block in blocks:
        table = [(row.name, *row.cells) for row in block.rows]
        table = [block.heads, *table] if block.heads else table
        widths = [wide, *(max(map(len, column), default=0) for column in _columns(table))]
        for line in table:
            yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)).rstrip()


def _wide(blocks: Sequence[Block]) -> int:
    """How wide the column of the names is."""
    return max((len(name) for block in blocks for name in (*block.heads[:1], *(row.name for row in block.rows))), default=0)


def _columns(table: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """The columns behind the first. A cell that is the last of its line has no width: nothing stands behind it."""
    most = max(map(len, table), default=0)
    return [[line[n] for line in table if n < len(line) - 1] for n in range(1, most)]


def _draw(blocks: Sequence[Block]) -> None:
    from rich.console import Console  # only where somebody looks on: it takes as long to load as all else
    from rich.table import Table
    from rich.text import Text

    marks = _MARKS if "utf" in (sys.stdout.encoding or "").lower() else _MARKS_ASCII
    wide = _wide(blocks)
    console = Console(highlight=False, markup=False, emoji=False)
    for number, block in enumerate(blocks):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=1)
        table.add_column(min_width=wide, no_wrap=True)
        most = max(len(row.cells) for row in block.rows)
        for n in range(most):
            table.add_column(overflow="fold", no_wrap=n < most - 1)
        if block.heads:
            table.add_row("", *(Text(head, style="dim") for head in block.heads))
        for row in block.rows:
            colour = _COLOURS.get(row.mark, "")
            tone = colour if row.mark == "off" else ""
            name = Text(row.name, {"off": "dim", "bad": colour}.get(row.mark, "bold"))
            table.add_row(Text(marks.get(row.mark, ""), colour), name, *(Text(cell, "dim" if cell.startswith(TRY) else tone) for cell in row.cells))
        if number:
            console.print()
        console.print(table)


def _line(text: str) -> str:
    return " ".join(clean(text).split())


def ago(seconds: float) -> str:
    """A time that has passed, in one unit.

    >>> ago(4.2), ago(300), ago(7300), ago(200_000)
    ('4 s', '5 min', '2 h', '2 d')
    """
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size * (2 if unit == "d" else 1):
            return f"{int(seconds // size)} {unit}"
    return f"{int(max(seconds, 0))} s"
