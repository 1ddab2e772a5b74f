"""`<@id>`: a person of a chat, as agentd and its model write one, whatever the platform's own form is.

It does not know who that is. What is in code is code, and mentions nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

IDS = re.compile(r"<@([^\s<>`]{1,200})>")

_TICKS = re.compile(r"`+")
_LINE = re.compile(r"[ \t]*(`{3,}|~{3,})(.*)")


def found(text: str) -> list[str]:
    """The ids that are mentioned, each once, in their order.

    >>> found("<@7> asks `<@8>`, and <@ou_9> and <@7> answer")
    ['7', 'ou_9']
    """
    return list(dict.fromkeys(match[1] for words, is_code in stretches(text) if not is_code for match in IDS.finditer(words)))


def replaced(text: str, fn: Callable[[str], str]) -> str:
    """`text` with what `fn` makes of each id in the place of its mention.

    >>> replaced("<@7>: `<@7>`", "@{}".format)
    '@7: `<@7>`'
    """
    return "".join(words if is_code else IDS.sub(lambda match: fn(match[1]), words) for words, is_code in stretches(text))


def escaped(text: str) -> str:
    """Words of a person in which nothing looks like a mention: who writes `<@7>` by hand has mentioned nobody.

    >>> found(escaped("I am <@7>, <<@7>"))
    []
    """
    return text.replace("<@", "<\u200b@")


def stretches(text: str) -> Iterator[tuple[str, bool]]:
    """`text` in stretches, each with whether it is code: fences, and what stands between as many ticks."""
    words: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        match = _LINE.match(line)
        if fence:
            yield line, True
            if match and match[1][0] == fence[0] and len(match[1]) >= len(fence) and not match[2].strip():
                fence = ""
        elif match and not (match[1][0] == "`" and "`" in match[2]):
            yield from _spans("".join(words))
            words = []
            fence = match[1]
            yield line, True
        else:
            words.append(line)
    yield from _spans("".join(words))


def _spans(text: str) -> Iterator[tuple[str, bool]]:
    """Words of which some stand between ticks. Where each run of so many ticks is next is looked up, so it is read once."""
    runs = [(match.start(), match.end()) for match in _TICKS.finditer(text)]
    later: dict[int, list[int]] = {}
    for n in range(len(runs) - 1, -1, -1):
        later.setdefault(runs[n][1] - runs[n][0], []).append(n)
    place, n = 0, 0
    while n < len(runs):
        start, end = runs[n]
        same = later[end - start]
        while same and same[-1] <= n:
            same.pop()
        if same and text.find("\n\n", end, runs[same[-1]][0]) < 0:
            n = same[-1]
            yield text[place:start], False
            place = runs[n][1]
            yield text[start:place], True
        n += 1
    yield text[place:], False
