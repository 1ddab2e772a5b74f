"""A command line made plain before it is judged: here-documents and comments left out, quotes and the shell's other spellings taken off.

It does not judge. All of it takes the time that it takes to read the text once, whatever stands there: what has no end in sight is left as it is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from bubbles.sandboxes.words import MARKS, split

SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "mksh"}
REDIRECTIONS = {">", ">>", ">|", "&>", "&>>", ">&", "<", "<<", "<<<", "<&", "<>"}

_MARKS = set(MARKS)
_HEREDOC = re.compile(r"(?<!<)<<-?+[ \t]*+(['\"]?)(\w++)\1")
_BREAK = re.compile(r"[\s;|&()]+")
_ANSI = re.compile(r"\$'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_BLANK = re.compile(r"\$\{IFS[^{}\n]{0,20}\}|\$IFS(?!\w)(?:\$\d)?")
_VARIABLE = re.compile(r"\$(?:\{(\w++)(?::?[-=]([^{}]*+))?\}|([A-Za-z_]\w*+))")
_BRACES = re.compile(r"\{([^{}]*+)\}")
_BRACED_MOST = 64  # words that one with braces may stand for
_LONG = 4096  # characters of a word with its variables filled in


def plain(command: str) -> str:
    """`command` without what a shell takes off before it looks for words, but for quotes.

    >>> plain("rm$IFS-rf $'\\\\x2f'")
    "rm -rf '/'"
    """
    text = unicodedata.normalize("NFKC", command).replace("\\\n", "")
    return _BLANK.sub(" ", _without_ansi(_without_documents(text))).replace('$"', '"')


def _without_documents(text: str) -> str:
    """`text` without the here-documents in it, which are data unless a shell reads them."""
    if "<<" not in text:
        return text
    lines = text.split("\n")
    last = {line.lstrip("\t"): at for at, line in enumerate(lines)}
    kept, at = [], 0
    while at < len(lines):
        line = lines[at]
        kept.append(line)
        at += 1
        if "<<" in line and not SHELLS & {word.rpartition("/")[2] for word in _BREAK.split(line)}:
            for begun in _HEREDOC.finditer(line):
                at = _behind(lines, at, begun[2]) if last.get(begun[2], -1) >= at else at
    return "\n".join(kept)


def _behind(lines: list[str], at: int, word: str) -> int:
    while lines[at].lstrip("\t") != word:
        at += 1
    return at + 1


def _without_ansi(text: str) -> str:
    kept, at = [], 0
    while (start := text.find("$'", at)) >= 0 and (found := _ANSI.match(text, start)):
        kept += [text[at:start], "'", _ESCAPE.sub(_unescaped, found[1]).replace("'", ""), "'"]
        at = found.end()
    return "".join([*kept, text[at:]])


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if 0 < number < 0x110000 else ""
    return chr(int(code, 8) & 0xFF) if code[0] in "01234567" else _ESCAPED.get(code, code)


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The simple commands of a plain line: the marks that stand before each, and its words without quotes. Redirections stay among the words.

    >>> list(commands("(a 'b c') | d > e # f"))
    [('(', ['a', 'b c']), (')|', ['d', '>', 'e'])]
    """
    try:
        tokens = split(text, comments=True)
    except ValueError:  # an open quote: read it without any
        tokens = re.split(r"[ \t\r\"']+", re.sub(r"([;&|()\n]+|>+|<+)", r" \1 ", text))
    marks, words = list[str](), list[str]()
    for token in tokens:
        if token and _MARKS.issuperset(token) and token not in REDIRECTIONS:
            if words:
                yield "".join(marks), words
                marks, words = [], []
            marks.append(token)
        elif token:
            words.append(token)
    if words:
        yield "".join(marks), words


def substituted(word: str) -> list[str]:
    """The command lines within a word, which a shell would run to fill it in.

    >>> substituted("a$(b c)`d`")
    ['b c', 'd']
    """
    start, end = word.find("$("), word.rfind(")")
    return [word[start + 2 : end]] * (0 <= start < end) + word.split("`")[1::2]


def filled(word: str, known: Mapping[str, str]) -> str:
    """A word with those of its variables filled in that are `known`, or that say themselves what else to take."""
    if "$" not in word:
        return word
    return _VARIABLE.sub(lambda found: known.get(found[1] or found[3], found[2] if found[2] is not None else found[0]), word)[:_LONG]


def braced(word: str) -> list[str]:
    """The words that one with braces stands for.

    >>> braced("/{bin,etc}/x")
    ['/bin/x', '/etc/x']
    """
    found = [word]
    while len(found) < _BRACED_MOST:
        whole = found[0]
        group = next((one for one in _BRACES.finditer(whole) if "," in one[1]), None)
        if group is None or len(whole) > _LONG:
            break
        found = found[1:] + [f"{whole[: group.start()]}{part}{whole[group.end() :]}" for part in group[1].split(",")[:_BRACED_MOST]]
    return found
