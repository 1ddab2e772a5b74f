"""One line that strace wrote, as a call with its arguments. It does not know which calls matter, nor who made them.

strace is to be told `-ff` (a file a thread, so that no line is cut by another's), `-ttt`, `-yy` and `--pidns-translation`. Values become: numbers
int, texts bytes, a descriptor Descriptor, a structure dict, a list list, `f(x)` a Macro, and whatever is only a name or an expression str.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_LINE = re.compile(r"(?P<at>\d+\.\d+) (?P<rest>.*)", re.DOTALL)
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)")
_WORD = re.compile(r"[^\s,()\[\]{}<>=\"@]+(?:<<[0-9A-Z_]+)?")
_FIELD = re.compile(r"([a-z_][a-z0-9_]*)=(?!>)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RESULT = re.compile(r"\s+= (?P<value>\?|-?0x[0-9a-f]+|-?\d+)(?:<.*>)?(?: (?P<error>E[A-Z0-9]+))?(?: .*)?", re.DOTALL)
_TRANSLATED = re.compile(r"= \d+ /\* (\d+) in strace's PID NS \*/")
_CUT = re.compile(r",?\s*<unfinished \.\.\.>(\)\s+= \?)?$")
_ESCAPE = re.compile(rb'\\(?:x([0-9a-f]{2})|([0-7]{1,3})|(["\\abfnrtv]))')
_ESCAPES = {b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}
_SOCKET = re.compile(r"<([A-Za-z][\w-]*):\[")


class Unreadable(Exception):
    """A line that is none of strace's, or one that this does not understand."""


@dataclass(frozen=True, slots=True)
class Descriptor:
    """`number`, and what strace found it to be: `what` is "TCP", "UDPv6", "UNIX-STREAM", … of a socket, "" of others; `ends` what stands
    between its brackets.
    """

    number: int
    what: str = ""
    ends: str = ""


@dataclass(frozen=True, slots=True)
class Macro:
    """`htons(80)`, `inet_addr("127.0.0.1")`."""

    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """One system call. `result` is None where it never returned; `error` its errno's name, or ""."""

    at: float
    name: str
    args: tuple[Any, ...]
    result: int | None
    error: str = ""


def name_of(line: str) -> str:
    """Which call a line tells of; "" for one of a signal or an end. Raises Unreadable for what is no line of strace."""
    found = _LINE.fullmatch(line.rstrip("\n"))
    if found is None:
        raise Unreadable(line)
    named = _NAME.match(found["rest"])
    return named[0] if named and found["rest"][named.end() : named.end() + 1] == "(" else ""


def read(line: str) -> Call:
    """The call of a line for which `name_of` has a name. Raises Unreadable."""
    name = name_of(line)
    found = _LINE.fullmatch(line.rstrip("\n"))
    if found is None or not name:
        raise Unreadable(line)
    text = found["rest"][len(name) :]
    cut = _CUT.search(text)
    if cut:
        text = text[: cut.start()]
        text += "" if text.endswith(")") else ")"
    args, rest = _Reader(text).whole(line)
    if cut:
        return Call(float(found["at"]), name, args, None)
    result = _RESULT.fullmatch(rest)
    if result is None:
        raise Unreadable(line)
    value = None if result["value"] == "?" else int(result["value"], 0)
    translated = _TRANSLATED.search(rest)  # a pid as its own namespace has it, and then as ours does
    return Call(float(found["at"]), name, args, int(translated[1]) if translated else value, result["error"] or "")


class _Reader:
    """Reads values from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self, line: str) -> tuple[tuple[Any, ...], str]:
        """The arguments between the brackets with which the text begins, and what follows them."""
        try:
            self._skip("(")
            return tuple(self._values(")")), self._text[self._at :]
        except (IndexError, ValueError, KeyError) as error:
            raise Unreadable(line) from error

    def _values(self, end: str) -> list[Any]:
        """All up to `end`, which is passed."""
        found: list[Any] = []
        while not self._taken(end):
            self._taken(",")
            self._space()
            if self._text.startswith("...", self._at):
                self._at += 3
                continue
            if not self._text.startswith(end, self._at):
                found.append(self._value())
        return found

    def _value(self) -> Any:
        named = _FIELD.match(self._text, self._at)
        if named:
            self._at = named.end()
            return {named[1]: self._value()}
        value = self._plain()
        if self._taken("=>"):  # what it was before the call => what it is after it
            after = self._value()
            value = {**value, **after} if isinstance(value, dict) and isinstance(after, dict) else after
        return value

    def _plain(self) -> Any:
        self._space()
        first = self._text[self._at]
        if first == '"':
            return self._bytes()
        if first == "@":  # the name of a socket that is no file
            self._at += 1
            return b"\0" + self._bytes()
        if first == "{":
            self._at += 1
            return self._structure()
        if first == "[":
            self._at += 1
            return self._values("]")
        return self._number_or_word()

    def _structure(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for value in self._values("}"):
            if isinstance(value, dict):
                found |= value
            elif isinstance(value, Macro):  # inet_pton(AF_INET6, "::1", &sin6_addr)
                found[str(value.args[-1]).lstrip("&")] = value
        return found

    def _number_or_word(self) -> Any:
        number = _NUMBER.match(self._text, self._at)
        after = self._text[number.end() : number.end() + 1] if number else ""
        if number and after == "<" and not self._text.startswith("<<", number.end()):
            self._at = number.end()
            return self._descriptor(int(number[0]))
        if number and (not after or after in ",)]} \t="):
            self._at = number.end()
            return int(number[0], 0 if "x" in number[0] else 8 if re.fullmatch(r"-?0[0-7]+", number[0]) else 10)
        word = _WORD.match(self._text, self._at)
        if word is None:
            raise ValueError(self._text[self._at :])
        self._at = word.end()
        return Macro(word[0], tuple(self._values(")"))) if self._taken("(") else word[0]

    def _descriptor(self, number: int) -> Descriptor:
        socket = _SOCKET.match(self._text, self._at)
        if socket:
            end = self._closing("]>", socket.end())
            self._at = end + 2
            return Descriptor(number, socket[1], self._text[socket.end() : end])
        depth = 0
        for at in range(self._at, len(self._text)):
            depth += {"<": 1, ">": -1}.get(self._text[at], 0)
            if depth == 0:
                self._at = at + 1
                return Descriptor(number)
        raise ValueError("a descriptor without an end")

    def _closing(self, mark: str, at: int) -> int:
        """Where `mark` stands, outside of quotes."""
        while not self._text.startswith(mark, at):
            if self._text[at] == '"':
                at = _Reader(self._text)._after_quotes(at)
            else:
                at += 1
        return at

    def _after_quotes(self, at: int) -> int:
        at += 1
        while self._text[at] != '"':
            at += 2 if self._text[at] == "\\" else 1
        return at + 1

    def _bytes(self) -> bytes:
        end = self._after_quotes(self._at)
        raw = self._text[self._at + 1 : end - 1].encode("utf-8", "surrogateescape")
        self._at = end + 3 if self._text.startswith("...", end) else end
        return _ESCAPE.sub(_unescaped, raw)

    def _taken(self, mark: str) -> bool:
        self._space()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def _skip(self, mark: str) -> None:
        if not self._taken(mark):
            raise ValueError(mark)

    def _space(self) -> None:
        while True:
            while self._text[self._at : self._at + 1] in (" ", "\t"):
                self._at += 1
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                return
            self._at = comment.end()


def _unescaped(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes([int(found[1], 16)])
    if found[2]:
        return bytes([int(found[2], 8) & 0xFF])
    return _ESCAPES.get(found[3], found[3])
