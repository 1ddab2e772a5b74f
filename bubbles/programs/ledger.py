"""Entries of the log as rows for a person: time, session, event, and what it was about. It does not know where they come from.

Nothing that an entry holds steers the terminal or passes for a row of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bubbles import log
from bubbles.programs.entries import Entry

_AT_ONCE = 500  # rows that are drawn together, so that a long log streams
_SESSION_MOST = 20
_EVENT = max(map(len, log.EVENTS))
_MOST = 2_000  # characters of a row that is cut to the terminal's width anyway
_COLOURS = ((3, "red"), (4, "yellow"))
_TONES = {"message": "cyan", "tool": "green", "turn": "bold"}


class Ledger:
    """A table that goes on. `full`: whole values and all fields; else what fits on a line."""

    def __init__(self, *, full: bool = False, console: Console | None = None) -> None:
        self._full = full
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._widths = (0, 0)  # of time and session: they only grow

    def draw(self, entries: Iterable[Entry], *, at_once: bool = False) -> None:
        """Draw them as they come (`at_once`: each by itself)."""
        left = iter(entries)
        while rows := list(islice(left, 1 if at_once else _AT_ONCE)):
            self._console.print(self._table(rows))

    def _table(self, entries: list[Entry]) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        cells = [(_time(entry.at), log.escaped(entry.session), log.escaped(entry.event)) for entry in entries]
        self._widths = (
            max(self._widths[0], *(len(when) for when, _, _ in cells)),
            max(self._widths[1], *(min(len(session), _SESSION_MOST) for _, session, _ in cells), 1),
        )
        for width in (*self._widths, _EVENT):
            table.add_column(width=width, no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=not self._full, overflow="fold" if self._full else "ellipsis", ratio=1)
        table.expand = True
        for entry, (when, session, event) in zip(entries, cells, strict=True):
            tone = next((colour for worst, colour in _COLOURS if entry.priority <= worst), "")
            table.add_row(
                Text(when, "dim"), Text(session), Text(event, tone or _TONES.get(entry.event.partition(".")[0], "dim")), Text(self._what(entry), tone)
            )
        return table

    def _what(self, entry: Entry) -> str:
        if not self._full:
            return log.escaped(what(entry)[:_MOST])
        return "\n".join(log.escaped(line) for line in _whole(entry))


def what(entry: Entry) -> str:
    """What an entry was about, as far as its event does not say it."""
    words = f"{entry.fields['ask']} {entry.message}" if entry.event == "model.retry" and "ask" in entry.fields else entry.message
    return f"{words} ({entry.fields['ms']} ms)" if "ms" in entry.fields else words


def _whole(entry: Entry) -> Iterator[str]:
    """All that an entry says. What had several lines has them here as well: they stand in their own column."""
    yield from entry.message.split("\n")
    words = {"turn": entry.turn, "channel": entry.channel, "tool": entry.tool, **entry.fields, "program": entry.program}
    long = {name: value for name, value in words.items() if "\n" in value}
    yield " ".join(f"{name}={value}" for name, value in words.items() if value and name not in long)
    for name, value in long.items():
        yield f"{name}:"
        yield from (f"  {line}" for line in value.split("\n"))


def _time(at: float) -> str:
    then, now = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == now[:3] else "%Y-%m-%d %H:%M:%S", then)
