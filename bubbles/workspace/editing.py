"""One stretch of a text exchanged for another, and what to say where that stretch is not found.

Pure. It does not know where the text comes from.
"""

from __future__ import annotations

import difflib

from bubbles.errors import ToolError

_NEAR_LINES = 20_000  # beyond, a near miss is not looked for
_SHOWN = 12  # lines of the hint


def exchange(text: str, old: str, new: str, everywhere: bool = False) -> tuple[str, list[int]]:
    """`text` with `old` exchanged for `new`, and the lines (from 1, in `text`) where it stood. `old` must stand there once unless `everywhere`.

    In a text whose lines all end in CRLF, `old` and `new` may be given with bare newlines. Raises ToolError, with a hint, where it cannot be done.
    """
    if not old:
        raise ToolError("old is empty", remedy="use write_file to make or replace a whole file")
    if old == new:
        raise ToolError("old and new are the same; nothing to do")
    if old not in text and _is_crlf(text) and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    lines = _lines(text, old)
    if not lines:
        raise ToolError("old is not in the file", remedy=_hint(text, old))
    if len(lines) > 1 and not everywhere:
        places = ", ".join(map(str, lines[:10])) + (", …" if len(lines) > 10 else "")
        raise ToolError(
            f"old stands in the file {len(lines)} times (lines {places})", remedy="include more of the lines around it, or set replace_all to true"
        )
    return text.replace(old, new), lines


def _is_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def _lines(text: str, old: str) -> list[int]:
    found, line, start = [], 1, 0
    at = text.find(old)
    while at >= 0:
        line += text.count("\n", start, at)
        found.append(line)
        start, at = at, text.find(old, at + len(old))
    return found


def _hint(text: str, old: str) -> str:
    """What is nearest to `old`: the same but for white space, else the most similar lines."""
    have, want = text.splitlines(), old.splitlines()
    if len(have) > _NEAR_LINES or not have:
        return "read the file and copy the text exactly"
    at = _same_but_for_space(have, want)
    if at is not None:
        return f"lines {at + 1}-{at + len(want)} differ in white space alone; the file has:\n{_quoted(have, at, len(want))}"
    at = _similar(have, want)
    if at is None:
        return "nothing there is like it; read the file and copy the text exactly"
    return f"the nearest is at line {at + 1}; the file has:\n{_quoted(have, at, len(want))}"


def _same_but_for_space(have: list[str], want: list[str]) -> int | None:
    bare, wanted = ["".join(line.split()) for line in have], ["".join(line.split()) for line in want]
    for at in range(len(bare) - len(wanted) + 1):
        if bare[at] == wanted[0] and bare[at : at + len(wanted)] == wanted:
            return at
    return None


def _similar(have: list[str], want: list[str]) -> int | None:
    first = max(want, key=lambda line: len(line.strip()))
    close = difflib.get_close_matches(first.strip(), {line.strip() for line in have if line.strip()}, n=1, cutoff=0.6)
    if not close:
        return None
    at = next(i for i, line in enumerate(have) if line.strip() == close[0])
    return max(0, at - want.index(first))


def _quoted(have: list[str], at: int, count: int) -> str:
    shown = have[at : at + min(count, _SHOWN)]
    return "\n".join(line[:200] for line in shown) + ("\n…" if count > _SHOWN else "")
