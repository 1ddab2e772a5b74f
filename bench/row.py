"""One line of the table: what was measured, what it is to be, what it must be, and what others take."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import quiet
from peers import PEERS

HEAD = ("row", "measured", "goal", "must hold", "verdict", "CPU and more", "peers")


@dataclass(frozen=True, slots=True)
class Row:
    """`goal` and `must`: None where nothing was promised. `more`: the larger the better. `beside`: what belongs to it, CPU first."""

    name: str
    measured: float
    unit: str
    goal: float | None = None
    must: float | None = None
    more: bool = False
    beside: str = ""
    peer: str = ""

    @property
    def verdict(self) -> str:
        """goal: it is reached; ok: it is what must hold; BEHIND: it is not."""
        if self.goal is None or self.must is None:
            return ""
        return "goal" if self._meets(self.goal) else "ok" if self._meets(self.must) else "BEHIND"

    def _meets(self, bound: float) -> bool:
        return self.measured >= bound if self.more else self.measured <= bound

    def cells(self) -> tuple[str, ...]:
        sign = ">=" if self.more else "<="
        bounds = [f"{sign} {bound:g} {self.unit}" if bound is not None else "" for bound in (self.goal, self.must)]
        return self.name, f"{figure(self.measured)} {self.unit}", *bounds, self.verdict, self.beside, PEERS.get(self.peer, "")


def figure(value: float) -> str:
    """Three digits that count."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def median(values: list[float]) -> float:
    return statistics.median(values)


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [HEAD, tuple("---" for _ in HEAD), *(row.cells() for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(HEAD))]
    return "\n".join(f"| {' | '.join(_filled(cell, width) for cell, width in zip(line, widths, strict=True))} |" for line in lines)


def _filled(cell: str, width: int) -> str:
    return cell.ljust(width, "-" if cell == "---" else " ")


def _beside_pass(rows: list[Row]) -> list[Row]:
    """The rows of times, each also as a multiple of `python -c pass` in this environment, run right after them."""
    bare = median([_passing_ms() for _ in range(9)])
    return [replace(row, beside=f"{row.measured / bare:.2f} x pass; {row.beside}".rstrip("; ")) if row.unit == "ms" else row for row in rows]


def _passing_ms() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1000


def main(measure: Callable[[], list[Row]]) -> None:
    """A row's script run alone: its part of the table, or with --json its rows for whoever makes the whole one."""
    quiet.ending_in_order(with_parent="--json" in sys.argv)
    quiet.undisturbed()
    rows = _beside_pass(measure())
    print(json.dumps([asdict(row) for row in rows]) if "--json" in sys.argv else table(rows))
