"""How many tokens something is: an estimate without any tokenizer.

Pieces of text are counted by kind, and each kind has a weight. The weights are a least-squares fit to OpenAI's o200k vocabulary
over 4 MB of prose in five languages, Chinese, Japanese, code, JSON, tool schemas and shell output; the error per kind of text is
below 10 % (tables of names and encoded bytes: below 20 %). Vocabularies differ more than that among themselves: the same Chinese
text has 0.86 times as many tokens with DeepSeek's, 1.3 times with cl100k, twice with a small English model's. Therefore a turn
scales the estimate by what its model reports (`Turn.scale`).

Of a text of more than 100 000 characters only 32 000 are weighed: its head, its tail and slices evenly spread between them, each standing for
its surroundings. That adds an error of about 2 % for prose, and of up to 20 % where kinds of text alternate by the page; what hides between slices,
say one long stretch of pictographs every so often, is not seen. So a text costs about the same however large it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import ceil
from typing import Any

from bubbles.kernel.canonical import dump

MESSAGE_TOKENS = 4  # a role and its delimiters
IMAGE_TOKENS = 1200  # a picture: between 260 and 1600 at most providers, by its size
CALL_TOKENS = 12  # an id, the frame around a name and arguments

# Each begins with one set of characters, for then the search passes over all others quickly: an alternative at the head makes it twice as slow.
_ASCII = (
    (re.compile(r"[A-Za-z](?:(?<=[a-z])[a-z]{0,11}|[a-z]{1,12}|[A-Z]{0,5})"), 1.0),  # words; a capital inside begins another
    (re.compile(r"[a-z]{8}|[A-Z]{4}"), 0.12),  # long ones
    (re.compile(r"\d{1,3}"), 1.15),
    (re.compile(r"[!-/:-@\[-`{-~]{1,3}"), 0.68),
    (re.compile(r"\s(?:\s{1,15}|(?<=[\n\t]))"), 1.5),  # one blank belongs to the word behind it
    (re.compile(r"[\0-\x08\x0e-\x1b\x7f]"), 1.0),
)
_WIDE = (
    (  # Chinese, its marks
        re.compile(
            r"[\u2010-\u206f\u2e80-\u2fff\u3000-\u303f\u31c0-\u9fff\uf900-\ufaff\uff00-\uffef]"
            r"(?:(?<=[\u2010-\u206f\u3000])[\u2010-\u206f\u3000]{0,2})?"
        ),
        0.77,
    ),
    (re.compile(r"[\u3040-\u30ff]"), 0.7),  # Japanese syllables
    (re.compile(r"[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"), 0.65),  # Korean
    (re.compile(r"[\x80-\u036f]"), 1.2),  # accented Latin: it also breaks its word in two
    (re.compile(r"[\u0370-\u0fff]"), 0.32),  # Greek, Cyrillic, Hebrew, Arabic, Indic scripts, Thai
    (re.compile(r"[\u1000-\u10ff\u1200-\u200f]"), 0.7),
    (re.compile(r"[\u2070-\u2e7f\u3100-\u312f\u3190-\u31bf\ua000-\uabff\ud7b0-\uf8ff\ufb00-\ufeff\ufff0-\uffff]{1,3}"), 1.3),  # signs
    (re.compile(r"[\U00010000-\U0010ffff]"), 2.2),  # pictographs, rare ideographs
)
LONG = 100_000  # characters from which on a text is weighed by samples:
_END = 4000  # of its head and of its tail
_SLICES, _SLICE = 24, 1000  # and what lies between
MOST_CHARACTERS = 16  # of a token, and
MOST_TOKENS = 3  # of a character, at the most by this estimate


def tokens(what: str | Sequence[Any]) -> int:
    """About how many tokens a text, a list of messages, or a list of tool schemas is.

    >>> tokens("How large is the directory?"), tokens("这个目录有多大？")
    (6, 7)
    """
    if isinstance(what, str):
        return ceil(_text(what))
    return sum(_message(one) if isinstance(one, dict) and "role" in one else ceil(_text(dump(one))) for one in what)


def _text(text: str) -> float:
    if len(text) <= LONG:
        return _exact(text)
    inner = text[_END:-_END]
    step = len(inner) / _SLICES
    starts = [int(n * step + (step - _SLICE) / 2) for n in range(_SLICES)]
    between = sum(_exact(inner[start : start + _SLICE]) for start in starts)
    return _exact(text[:_END]) + between * len(inner) / (_SLICES * _SLICE) + _exact(text[-_END:])


def _exact(text: str) -> float:
    weight = _sum(_ASCII, text)
    return weight if text.isascii() else weight + _sum(_WIDE, text)


def _sum(kinds: Sequence[tuple[re.Pattern[str], float]], text: str) -> float:
    return sum(weight * len(kind.findall(text)) for kind, weight in kinds)


def _message(message: dict[str, Any]) -> int:
    calls = message.get("tool_calls") or ()
    words, images = _words(message.get("content"))
    parts = [words, message.get("reasoning_content"), *(part for call in calls for part in _call(call))]
    text = " ".join(part if isinstance(part, str) else dump(part) for part in parts if part)
    return MESSAGE_TOKENS + CALL_TOKENS * len(calls) + ceil(_text(text)) + IMAGE_TOKENS * images


def _words(content: Any) -> tuple[Any, int]:
    """Of a content what is text, and how many pictures are in it."""
    if not isinstance(content, list):
        return content, 0
    images = sum(isinstance(part, dict) and part.get("type") == "image_url" for part in content)
    return [part for part in content if not (isinstance(part, dict) and part.get("type") == "image_url")] if images else content, images


def _call(call: Any) -> Sequence[Any]:
    function = call.get("function") if isinstance(call, dict) else None
    return (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (call,)
