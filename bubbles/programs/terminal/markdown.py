"""A reply as a terminal shows it: Markdown in, the terminal's own escapes out.

Line breaks stay where the model made them, code is neither wrapped nor padded (it will be copied), and what is no
Markdown comes out as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from bubbles.kernel.clean import clean

WIDEST = 100  # columns: longer lines of prose are hard to read

_FENCE = re.compile(r"^( {0,3})(```+|~~~+) *([^`]*)$")
_HEADING = re.compile(r"^ {0,3}(#{1,6}) +(.+?)(?: +#+)? *$")
_RULE = re.compile(r"^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$")
_ITEM = re.compile(r"^( *)([-*+]|\d{1,9}[.)]) +(?=\S)(.*)$")
_QUOTE = re.compile(r"^ {0,3}> ?(.*)$")
_TABLE = re.compile(r"^ *\|?(?: *:?-+:? *\|)+(?: *:?-+:? *)?$")

_CODE, _BOLD, _ITALIC, _STRUCK, _DIM, _LINE = ((f"\x1b[{on}m", f"\x1b[{off}m") for on, off in ((36, 39), (1, 22), (3, 23), (9, 29), (2, 22), (4, 24)))
_INLINE = (
    (re.compile(r"(?<![\\*])\*\*(?=\S)(.+?)(?<=\S)\*\*"), _BOLD),
    (re.compile(r"(?<![\w\\])__(?=\S)(.+?)(?<=\S)__(?!\w)"), _BOLD),
    (re.compile(r"(?<![\w\\*])\*(?=[^\s*])(.+?)(?<=[^\s*])\*(?![\w*])"), _ITALIC),
    (re.compile(r"(?<![\w\\])_(?=[^\s_])(.+?)(?<=[^\s_])_(?!\w)"), _ITALIC),
    (re.compile(r"~~(?=\S)(.+?)(?<=\S)~~"), _STRUCK),
)
_SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"!?\[([^\]\n]+)\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_WIDE = "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\uff60\uffe0-\uffe6\U00020000-\U0003ffff"
_PIECES = re.compile(rf"(?:\x1b\[\d+m)+|[{_WIDE}]|\s+|[^\s\x1b{_WIDE}]+")
_ESCAPE = re.compile(r"\x1b\[\d+m")


def render(text: str, width: int, *, colour: bool = True) -> str:
    """`text` for a terminal of `width` columns, each line ending in a newline. None of the text's own escapes survive."""
    lines = list(_blocks(clean(text).split("\n"), min(width, WIDEST)))
    return "".join(f"{line if colour else plain(line)}\n" for line in lines)


def dim(text: str) -> str:
    """`text` as an aside."""
    return "\n".join(f"{_DIM[0]}{line}{_DIM[1]}" if line else "" for line in clean(text).split("\n"))


def plain(text: str) -> str:
    """`text` without the escapes that this module puts in."""
    return _ESCAPE.sub("", text)


def _blocks(lines: list[str], width: int) -> Iterator[str]:
    i = 0
    while i < len(lines):
        line = lines[i]
        if fence := _FENCE.match(line):
            end = next((j for j in range(i + 1, len(lines)) if _closes(lines[j], fence[2])), len(lines))
            yield from (f"  {_CODE[0]}{code.removeprefix(fence[1])}{_CODE[1]}" if code.strip() else "" for code in lines[i + 1 : end])
            i = end
        elif "|" in line and i + 1 < len(lines) and _TABLE.match(lines[i + 1]) and "|" in lines[i + 1]:
            end = next((j for j in range(i + 2, len(lines)) if "|" not in lines[j]), len(lines))
            yield from _table([line, *lines[i + 2 : end]])
            i = end - 1
        else:
            yield from _line(line, width)
        i += 1


def _closes(line: str, fence: str) -> bool:
    found = _FENCE.match(line)
    return bool(found and found[2].startswith(fence) and not found[3].strip())


def _line(line: str, width: int) -> Iterator[str]:
    if found := _HEADING.match(line):
        style = _BOLD[0] + (_LINE[0] if len(found[1]) == 1 else "")
        yield f"{style}{inline(found[2])}{_LINE[1]}{_BOLD[1]}"
    elif _RULE.match(line):
        yield f"{_DIM[0]}{'─' * min(width, 40)}{_DIM[1]}"
    elif found := _ITEM.match(line):
        mark = "•" if found[2] in "-*+" else found[2]
        first = f"{found[1]}{mark} "
        yield from _wrapped(inline(found[3]), width, first, " " * len(first))
    elif found := _QUOTE.match(line):
        bar = f"{_DIM[0]}│{_DIM[1]} "
        yield from _wrapped(inline(found[1]), width, bar, bar)
    else:
        indent = line[: len(line) - len(line.lstrip(" "))]
        yield from _wrapped(inline(line.strip()), width, indent, indent)


def inline(text: str) -> str:
    """Emphasis, code and links within one line. Code is opaque: nothing in it is Markdown."""
    out, at = "", 0
    for span in _SPAN.finditer(text):
        out += _emphasis(text[at : span.start()]) + _CODE[0] + span[2].strip(" ") + _CODE[1]
        at = span.end()
    return out + _emphasis(text[at:])


def _emphasis(text: str) -> str:
    text = _LINK.sub(lambda m: m[1] if m[1] == m[2] else f"{m[1]} {_DIM[0]}({m[2]}){_DIM[1]}", text)
    for pattern, (on, off) in _INLINE:
        text = pattern.sub(lambda m, on=on, off=off: on + m[1] + off, text)  # type: ignore[misc]
    return re.sub(r"\\([*_`~\[\]#>|\\-])", r"\1", text)


def _wrapped(text: str, width: int, first: str, later: str) -> Iterator[str]:
    """Lines of at most `width` columns, broken at spaces and between wide characters; a longer word stays whole."""
    line, columns, words = first, columns_of(first), 0
    for piece in _PIECES.findall(text):
        size = columns_of(piece)
        if words and columns + size > width and not piece.isspace():
            yield line.rstrip(" ")
            line, columns, words = later, columns_of(later), 0
        if piece.isspace() and not words and line == later:
            continue
        line, columns, words = line + piece, columns + size, words + (size > 0)
    yield line.rstrip(" ")


def columns_of(text: str) -> int:
    """How many columns a terminal needs for `text`, escapes left out."""
    text = plain(text)
    return len(text) if text.isascii() else sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _table(lines: list[str]) -> Iterator[str]:
    rows = [[inline(cell.strip()) for cell in re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))] for line in lines]
    count = max(len(row) for row in rows)
    rows = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(columns_of(row[c]) for row in rows) for c in range(count)]
    for n, row in enumerate(rows):
        cells = [cell + " " * (widths[c] - columns_of(cell)) for c, cell in enumerate(row)]
        line = "  ".join(cells).rstrip(" ")
        yield f"{_BOLD[0]}{line}{_BOLD[1]}" if n == 0 else line
        if n == 0:
            yield f"{_DIM[0]}{'  '.join('─' * w for w in widths)}{_DIM[1]}"
