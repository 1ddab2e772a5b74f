"""Findings as lines for a person, by groups; colour only at a terminal."""

from __future__ import annotations

import os
import sys
from collections import Counter

from bubbles.kernel.clean import clean
from bubbles.programs.doctoring.finding import FAIL, FIXED, NOTE, OK, WARN, Check, Finding

_COLOURS = {OK: "32", NOTE: "2", WARN: "33", FAIL: "31;1", FIXED: "36"}
_COUNTED = {FAIL: ("wrong", "wrong"), WARN: ("warning", "warnings"), FIXED: ("mended", "mended")}


class Page:
    """What is printed, check by check, as it comes."""

    def __init__(self, *, brief: bool = False) -> None:
        self._brief = brief
        self._group = ""
        self._colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._told: set[str] = set()
        self.levels: Counter[str] = Counter()

    def tell(self, check: Check, findings: list[Finding]) -> None:
        """Print what a check found. What is wrong with many of them, such as a home that cannot be entered, is said once."""
        for finding in findings:
            if (finding.once and finding.text in self._told) or (self._brief and finding.level in (OK, NOTE)):
                continue
            self._told.add(finding.text)
            self.levels[finding.level] += finding.count
            if check.group != self._group:
                print(f"{check.group}" if not self._group else f"\n{check.group}")
                self._group = check.group
            print("\n".join(self._lines(check, finding)), flush=True)

    def _lines(self, check: Check, finding: Finding) -> list[str]:
        mark = f"{finding.level:<5}"
        if self._colours:
            mark = f"\x1b[{_COLOURS[finding.level]}m{mark}\x1b[0m"
        lines = [f"  {mark} {check.name:<10} {_line(finding.text)}"]
        more = [finding.done, *([f"try: {finding.remedy}"] if finding.remedy and finding.level != FIXED else [])]
        return lines + [f"{'':<19}{_line(text)}" for text in more if text]

    def end(self) -> None:
        """Print the sum."""
        counts = [f"{count} {words[count != 1]}" for level, words in _COUNTED.items() if (count := self.levels[level])]
        print(f"{'' if not self._group else chr(10)}{', '.join(counts) or 'all is well'}")


def _line(text: str) -> str:
    return " ".join(clean(text).split())
