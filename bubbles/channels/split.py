"""A long text in pieces that a platform takes, each as good to read as the whole.

It does not know a platform, nor what the words mean. A piece ends where a reader would pause: after a paragraph, else a line, a sentence, a word; a
fence of code that is cut is closed, and opened again with its language. Deterministic, and linear in the length of the text whatever is in it.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

Measure = Callable[[str], int]

LEAST = 64  # units of a piece: less has no room for a fence and what is in it

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*(.*)")
_SENTENCE = re.compile(r"(?<=[.!?…;])\s|(?<=[.!?…][\"'”’)\]])\s|(?<=[。！？；…])(?![。！？；…」』”’）])|(?<=[。！？][」』”’）])")  # noqa: RUF001
_WORD = re.compile(r"\s|(?<=[，、：])")  # noqa: RUF001
_MENTION = re.compile(r"<@[^\s<>]{1,255}>")
_MENTION_MOST = 258


def characters(text: str) -> int:
    """Code points."""
    return len(text)


def utf16(text: str) -> int:
    """Units of UTF-16: what Telegram counts in.

    >>> utf16("a😀")
    3
    """
    return len(text) + sum(map("\U00010000".__le__, text)) if not text.isascii() else len(text)


def utf8(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class _Fence:
    """Code from `start`, the first letter of its first line, to `end`, behind its last; the lines between begin at `body` and end at `close`."""

    start: int
    body: int
    close: int
    end: int
    again: str  # what opens the rest of it in another piece
    shut: str  # what closes a part of it


def split(text: str, most: int, measure: Measure = characters) -> list[str]:
    """`text` in pieces of at most `most` units each, none of them blank. Raises ValueError where `most` is below 64.

    A measure of one's own may say how large a piece is once it is rendered; none is longer than `most` characters, either. Without fences all the
    words are in the pieces and nothing else is, but for the white space where it was cut.

    >>> split("One. Two.\\n\\n```py\\n" + "x = 1\\n" * 12 + "```", 64)
    ['One. Two.\\n\\n```py\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\n```', '```py\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\nx = 1\\n```']
    """
    if most < LEAST:
        raise ValueError(f"pieces of {most} units have no room; {LEAST} at least")
    return _Cutter(text, most, measure).pieces()


class _Cutter:
    def __init__(self, text: str, most: int, measure: Measure) -> None:
        self.most, self.measure = most, measure
        self.text = _told_apart(text, most)
        self.fences = _fences(self.text, most)
        self.starts = [fence.start for fence in self.fences]

    def pieces(self) -> list[str]:
        found, start = [], self._begin(0)
        while start < len(self.text):
            end = self._end(start)
            piece = self._piece(start, end)
            if self.text[start:end].strip():
                found.append(piece)
            start = self._begin(end)
        return found

    def _inside(self, place: int) -> _Fence | None:
        """The fence that a cut at `place` would cut."""
        n = bisect_right(self.starts, place) - 1
        if n < 0:
            return None
        fence = self.fences[n]
        return fence if fence.start < place < fence.end else None

    def _piece(self, start: int, end: int) -> str:
        before, after = self._inside(start), self._inside(end)
        if end == len(self.text) and after is None and self.fences and self.fences[-1].close == end and start < end:
            after = self.fences[-1]  # which nobody closes
        body = self.text[start : min(end, after.close) if after else end].rstrip()
        return (before.again if before else "") + body + ("\n" + after.shut if after else "")

    def _fits(self, start: int, end: int) -> bool:
        return self.measure(self._piece(start, end)) <= self.most

    def _begin(self, place: int) -> int:
        """Where the piece behind a cut begins: behind white space, but for the indentation of a line, and in code behind the end of a line alone."""
        text = self.text
        if (fence := self._inside(place)) is not None:
            if place >= fence.close:  # nothing is left of it but what closes it
                return self._begin(fence.end)
            return place + 1 if place > fence.body and text[place] == "\n" else place
        end = place
        while end < len(text) and text[end].isspace():
            end += 1
        line = text.rfind("\n", max(place - 1, 0, end - self.most // 8), end) + 1
        at_line = line or (place == 0 and end <= self.most // 8)
        return (line or place) if at_line else end

    def _end(self, start: int) -> int:
        reach = self._reach(start)
        if reach == len(self.text):
            return reach
        while True:
            end = self._pause(start, reach)
            if end - start <= 1 or self._fits(start, end):
                return max(end, start + 1)
            reach = start + (end - start) * 7 // 8  # a measure that is smaller for more

    def _reach(self, start: int) -> int:
        """The furthest end that fits, as if more were never smaller."""
        low, high = start + 1, min(len(self.text), start + self.most)
        if self._fits(start, high):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(start, middle) else (low, middle)
        return low

    def _pause(self, start: int, reach: int) -> int:
        """The best place to cut from `start` to `reach`."""
        least = start + (reach - start) // 2
        fence = self._inside(reach)
        if fence is not None and fence.start > start and self._keeps_whole(fence):
            return fence.start
        end = self._paragraph(least, reach) or self._line(least, reach) or self._row(start, reach)
        end = end or _last(_SENTENCE, self.text, least, reach) or _last(_WORD, self.text, least, reach)
        end = end or _whole(self.text, start, reach)
        return self._apart_from_marks(start, self._apart_from_opening(start, end))

    def _keeps_whole(self, fence: _Fence) -> bool:
        return fence.end - fence.start <= self.most and self.measure(self.text[fence.start : fence.end]) <= self.most

    def _apart_from_opening(self, start: int, end: int) -> int:
        """No piece ends with the first line of a fence and nothing in it."""
        fence = self._inside(end)
        return fence.start if fence is not None and start < fence.start and end <= fence.body else end

    def _apart_from_marks(self, start: int, end: int) -> int:
        """No cut makes the marks of a fence of what stood in the midst of a line: a letter goes along with it."""
        begin = self._begin(end)
        if not _FENCE.match(self.text, begin) or self.text[begin - 1] == "\n":
            return end
        while begin > start and (self.text[begin - 1] in "`~" or self.text[begin - 1].isspace()):
            begin -= 1
        whole = begin
        while whole > start + 1 and not _parts(self.text, start, whole - 1):
            whole -= 1
        return whole - 1 if whole > start + 1 else begin - 1 if begin > start + 1 else end

    def _paragraph(self, least: int, reach: int) -> int:
        n = bisect_right(self.starts, reach) - 1
        edge = max((place for fence in self.fences[max(0, n) : n + 1] for place in (fence.start, fence.end) if least < place <= reach), default=0)
        end = reach
        while (end := self.text.rfind("\n\n", max(least, edge), end)) > 0:
            if self._inside(end) is None:
                return end
        return edge

    def _line(self, least: int, reach: int) -> int:
        if reach < len(self.text) and self.text[reach] == "\n":
            return reach
        return max(0, self.text.rfind("\n", least, reach))

    def _row(self, start: int, reach: int) -> int:
        """The beginning of the row of a table that goes beyond `reach`, if the whole row fits into a piece."""
        line = self.text.rfind("\n", start, reach) + 1
        end = self.text.find("\n", reach, line + self.most + 1)
        row = self.text[line : end if end >= 0 else line + self.most + 1]
        fits = len(row) <= self.most and self.measure(row) <= self.most
        return line if line > start + 1 and row.lstrip().startswith("|") and fits else 0


def _fences(text: str, most: int) -> list[_Fence]:
    """The fences of a text, in their order; one whose marks would fill a piece is none."""
    found: list[_Fence] = []
    begin: tuple[int, int, re.Match[str]] | None = None
    place = 0
    for line in text.splitlines(keepends=True) if "\n" not in text else _lines(text):
        match = _FENCE.match(line)
        if match and begin and match[2][0] == begin[2][2][0] and len(match[2]) >= len(begin[2][2]) and not match[3].strip():
            found.append(_fence(begin, place, place + len(line.rstrip()), most))
            begin = None
        elif match and not begin and len(match[2]) <= most // 8 and not (match[2][0] == "`" and "`" in match[3]):
            begin = (place, place + len(line), match)
        place += len(line)
    if begin:
        found.append(_fence(begin, len(text), len(text) + 1, most))
    return found


def _told_apart(text: str, most: int) -> str:
    """`text` with a line of its own for what stands behind the marks of a fence, where that is too long to be said with every piece."""
    found, done = [], 0
    for fence in _fences(text, most):
        match = _FENCE.match(text[text.rfind("\n", 0, fence.start) + 1 : fence.body].rstrip("\n"))
        if match and utf8(match[3]) > most // 4:
            marks = fence.body - len(match[3]) - (text[fence.body - 1] == "\n")
            found += [text[done:marks], "\n"]
            done = marks
    return "".join([*found, text[done:]])


def _lines(text: str) -> list[str]:
    lines = [line + "\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines


def _fence(begin: tuple[int, int, re.Match[str]], close: int, end: int, most: int) -> _Fence:
    start, body, match = begin
    indent = match[1] if len(match[1]) <= most // 8 else ""
    language = (match[3].split() or [""])[0]
    if utf8(language) > most // 8:
        language = ""
    return _Fence(start, body, close, end, f"{indent}{match[2]}{language}\n", indent + match[2])


def _last(pattern: re.Pattern[str], text: str, least: int, reach: int) -> int:
    """The last place in `least` to `reach` where `pattern` is, and 0 where it is not."""
    end = 0
    for match in pattern.finditer(text, least + 1, min(len(text), reach + 1)):
        if match.start() <= reach:
            end = match.start()
    return _before_mention(text, least, end) if end else 0


def _whole(text: str, start: int, reach: int) -> int:
    """The last place up to `reach` that cuts no character as a reader sees it, and no mention; `reach` itself where there is none."""
    end = _before_mention(text, start, reach)
    while end > start and not _parts(text, start, end):
        end -= 1
    return end if end > start else reach


def _before_mention(text: str, start: int, end: int) -> int:
    place = text.rfind("<@", max(start, end - _MENTION_MOST), end)
    match = _MENTION.match(text, place) if place >= 0 else None
    return place if match and match.end() > end and place > start else end


def _parts(text: str, start: int, end: int) -> bool:
    """Whether a character as a reader sees it ends at `end`; `start`: how far back to look."""
    if end >= len(text):
        return True
    before, after = text[end - 1], text[end]
    if before < "\u0300" and after < "\u0300":
        return (before, after) != ("\r", "\n")
    if _continues(after) or before == "\u200d" or (unicodedata.combining(before) == 9 and unicodedata.category(after) == "Lo"):
        return False
    if _is_flag(before) and _is_flag(after):
        count, place = 0, end - 1
        while place >= start and _is_flag(text[place]):
            count, place = count + 1, place - 1
        return count % 2 == 0
    return not _is_syllable(before, after)


def _continues(character: str) -> bool:
    """Whether it belongs to the one before it: marks, joiners, variation selectors, tags, skin tones."""
    if unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f":
        return True
    return character in "\u200c\u200d\u0e33\u0eb3\uff9e\uff9f"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_syllable(before: str, after: str) -> bool:
    """Whether two letters of Hangul are of one syllable."""
    block = "가" <= before <= "힣"
    open_block = block and (ord(before) - 0xAC00) % 28 == 0
    if "\u1100" <= before <= "\u115f" or "\ua960" <= before <= "\ua97c":
        return "\u1100" <= after <= "\u11a7" or "가" <= after <= "힣" or "\ua960" <= after <= "\ua97c"
    if open_block or "\u1160" <= before <= "\u11a7" or "\ud7b0" <= before <= "\ud7c6":
        return "\u1160" <= after <= "\u11ff" or "\ud7b0" <= after <= "\ud7fb"
    ends = "\u11a8" <= after <= "\u11ff" or "\ud7cb" <= after <= "\ud7fb"
    return ends and (block or "\u11a8" <= before <= "\u11ff" or "\ud7cb" <= before <= "\ud7fb")
