"""A seat belt: command lines that are refused because their words alone show that they destroy, or reach where they should not.

It is advice, not a boundary. A shell can spell anything in a way that no reader of its words will see; what a command must not reach
has to be kept from it by a jail. It reads words as a shell would after quoting, follows `cd`, and looks into `sh -c`, `eval` and
substitutions. It does not know what files there are.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

_MARKS = set(";&|()<>`\n")
_REDIRECTIONS = {">", ">>", ">|", "&>", "&>>", ">&", "<", "<<", "<<<", "<&", "<>"}
_WRAPPERS = {"sudo", "doas", "env", "nohup", "nice", "ionice", "time", "timeout", "setsid", "stdbuf", "command", "exec", "busybox", "xargs"}
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "ash"}
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"}
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var")
_DISKS = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|dm-|loop|md)\w*")
_HARMLESS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "/dev/fd", "/dev/shm", "/var/tmp")
_MAGIC = re.compile(r"/proc/(?:[^/]+/(?:task/[^/]+/)?(?:root|cwd)|[\d*?\[][^/]*/(?:environ|mem|fd))\b")
_BOMB = re.compile(r"\(\)\s*\{\s*([\w:.]+)\s*\|\s*([\w:.]+)\s*&")
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1([^\n]*)\n")
_POWER = {"shutdown", "reboot", "halt", "poweroff"}
_FORMAT = re.compile(r"mkfs(\..*)?|mkswap|wipefs|blkdiscard|fdisk|sfdisk|cfdisk|parted|sgdisk")
_CHANGES = {"rm", "rmdir", "mv", "shred", "truncate", "unlink", "chmod", "chown", "chgrp", "tee"}
_MOST = 16_384  # characters of a command that are read
_DOCUMENTS = 50  # here-documents that are left out
_DEEPEST = 4  # of commands within commands


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a command belongs: `inside` are the roots it may use, `closed` those that it may not name but for what is inside; `home` is its HOME."""

    inside: tuple[PurePosixPath, ...]
    closed: tuple[PurePosixPath, ...]
    home: PurePosixPath

    @classmethod
    def of(cls, session_dir: Path, inside: Sequence[Path], env: Mapping[str, str]) -> Reach:
        """The reach of the session in `session_dir`. The owner's and Bubbles' homes are closed; programs on PATH and this Python may be named."""
        home, owner, bubbles = Path(env.get("HOME") or "/"), Path(os.path.expanduser("~")), session_dir.parent.parent
        private = [home] if home != owner else []
        programs = [Path(entry) for entry in env.get("PATH", "").split(":") if entry] + [Path(sys.prefix), Path(sys.base_prefix)]
        named = [*inside, *private, *(path for path in programs if bubbles not in (path, *path.parents) and path not in (owner, *owner.parents))]
        return cls(_spellings(named), _spellings([bubbles, owner, Path("/root")]), PurePosixPath(home))


def _spellings(paths: Sequence[Path]) -> tuple[PurePosixPath, ...]:
    both = [spelt for path in paths for spelt in _spelt(str(path))]
    return tuple(PurePosixPath(spelt) for spelt in dict.fromkeys(both) if spelt != "/")


@lru_cache(maxsize=1024)
def _spelt(path: str) -> tuple[str, str]:
    return os.path.abspath(path), os.path.realpath(path)


def refusal(command: str, reach: Reach, cwd: Path) -> str:
    """Why `command`, started in `cwd`, is refused; "" where nothing speaks against it.

    >>> here = Reach((PurePosixPath("/b/s/1"),), (PurePosixPath("/b"),), PurePosixPath("/b/h/1"))
    >>> refusal("ls; cd ../../2 && cat notes", here, Path("/b/s/1/work"))
    '/b/s/2 is outside the workspace'
    >>> refusal("grep -rn 'rm -rf /' docs | sort > found.txt", here, Path("/b/s/1/work"))
    ''
    """
    text = _without_documents(unicodedata.normalize("NFKC", command).replace("\\\n", ""))[:_MOST]
    for bomb in _BOMB.finditer(text):
        if bomb[1] == bomb[2] and text[: bomb.start()].rstrip().endswith(bomb[1]):
            return "it starts itself without end"
    return _Reader(reach, PurePosixPath(cwd)).read(text, 0)


def _without_documents(text: str) -> str:
    """`text` without the here-documents in it, which are data unless a shell reads them."""
    kept, at = [], 0
    for _ in range(_DOCUMENTS):
        start = _HEREDOC.search(text, at)
        if start is None:
            break
        kept.append(text[at : start.end()])
        at = start.end()
        line = text[text.rfind("\n", 0, start.start()) + 1 : start.start()] + start[3]
        end = re.compile(rf"^\t*{start[2]}$", re.MULTILINE).search(text, at)
        if end is not None and not _SHELLS & {word.rpartition("/")[2] for word in re.split(r"[\s;|&()]+", line)}:
            at = end.end()
    return "".join([*kept, text[at:]])


class _Reader:
    """Reads one command line, and remembers where `cd` has led."""

    def __init__(self, reach: Reach, cwd: PurePosixPath) -> None:
        self._reach, self._cwd = reach, cwd

    def read(self, text: str, depth: int) -> str:
        if depth > _DEEPEST:
            return ""
        for words in _commands(text):
            why = next(filter(None, (self.read(inner, depth + 1) for word in words for inner in _within(word))), "") or self._simple(words, depth)
            if why:
                return why
        return ""

    def _simple(self, words: list[str], depth: int) -> str:
        name, arguments = _program(words)
        if name in _SHELLS and "-c" in _letters(arguments):
            scripts = [word for word in arguments if not word.startswith("-")][:1]
            return next(filter(None, (self.read(script, depth + 1) for script in scripts)), "")
        if name == "eval":
            return self.read(" ".join(arguments), depth + 1)
        if name in ("cd", "pushd"):
            return self._move(arguments)
        return self._destroys(name, arguments, words) or self._strays(words)

    def _destroys(self, name: str, arguments: list[str], words: list[str]) -> str:
        paths = [path for word in arguments for path in self._paths(word)]
        if name in _POWER or (name == "systemctl" and _POWER & set(arguments)) or (name in ("init", "telinit") and arguments[:1] in (["0"], ["6"])):
            return f"{name} would stop the machine"
        if _FORMAT.fullmatch(name) and arguments and "-l" not in arguments:
            return f"{name} would overwrite a disk"
        if name == "kill" and "-1" in arguments[1:] + arguments[:1] and not _kills_one(arguments):
            return "it would kill every process of the owner"
        if name in _CHANGES or (name == "find" and {"-delete", *_CHANGES} & set(arguments)):
            touched = next((path for path in paths if self._is_precious(path)), None)
            if touched is not None:
                return f"{name} would change {touched}, which is the system's or holds far more than this workspace"
        target = next((path for path in self._written(name, words) if self._is_precious(path)), None)
        return f"it would overwrite {target}" if target is not None else ""

    def _written(self, name: str, words: list[str]) -> Iterator[PurePosixPath]:
        for before, word in zip(["", *words], words, strict=False):
            if before in (">", ">>", ">|", "&>", "&>>") or (name == "dd" and word.startswith("of=")):
                yield from self._paths(word)

    def _is_precious(self, path: PurePosixPath) -> bool:
        text = str(path)
        if text in _HARMLESS or any(text.startswith(f"{kept}/") for kept in _HARMLESS) or self._is_inside(path):
            return False
        bare = PurePosixPath(text.rstrip("*") or "/")
        holds = any(root.is_relative_to(bare) for root in (*self._reach.inside, *self._reach.closed))
        system = text == "/" or any(bare.is_relative_to(top) for top in _SYSTEM)
        return bool(_DISKS.match(text)) or holds or system

    def _strays(self, words: list[str]) -> str:
        for word in words:
            if magic := _MAGIC.search(word):
                return f"{magic[0]} leads into another process"
            for path in self._paths(word):
                if self._is_closed(path):
                    return f"{path} is outside the workspace"
        return ""

    def _move(self, arguments: list[str]) -> str:
        targets = [word for word in arguments if not word.startswith("-")] or ["~"]
        moved = self._path(targets[0])
        if moved is None:
            return ""
        if self._is_closed(moved):
            return f"{moved} is outside the workspace"
        self._cwd = moved
        return ""

    def _is_inside(self, path: PurePosixPath) -> bool:
        return any(path.is_relative_to(root) for root in self._reach.inside)

    def _is_closed(self, path: PurePosixPath) -> bool:
        return not self._is_inside(path) and any(path.is_relative_to(root) for root in self._reach.closed)

    def _paths(self, word: str) -> Iterator[PurePosixPath]:
        """The paths that a word may name: as it stands, and behind `=`, `:` or `@`."""
        for part in dict.fromkeys((word, *re.split(r"[=:@]", word)[1:])):
            path = self._path(part)
            if path is not None:
                yield path

    def _path(self, word: str) -> PurePosixPath | None:
        if not word or "://" in word or word.startswith("-"):
            return None
        if word == "~" or word.startswith("~/"):
            word = f"{self._reach.home}{word[1:]}"
        elif word.startswith("~"):
            word = f"/home/{word[1:]}"
        word = re.sub(r"\$(?:\{(\w+)\}|(\w+))", self._variable, word)
        if "$" in word or "\n" in word or ("/" not in word and word != ".."):
            return None
        return PurePosixPath(os.path.normpath(self._cwd / word))

    def _variable(self, found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return str(self._cwd) if name == "PWD" else str(self._reach.home) if name == "HOME" else found[0]


def _commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a line as lists of words, quotes taken off. Redirections stay among the words."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|()<>`\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        tokens = list(lexer)
    except ValueError:  # an open quote: read it without any
        tokens = re.split(r"[ \t\r\"']+", re.sub(r"([;&|()\n]+|>+|<+)", r" \1 ", text))
    words: list[str] = []
    for token in tokens:
        if token and set(token) <= _MARKS and token not in _REDIRECTIONS:
            yield words
            words = []
        elif token:
            words.append(token)
    yield words


def _within(word: str) -> list[str]:
    """The command lines that are substituted within a word."""
    return [found[0] or found[1] for found in re.findall(r"\$\((.*)\)|`([^`]*)`", word, re.DOTALL)]


def _program(words: list[str]) -> tuple[str, list[str]]:
    """The program that a simple command runs, and its arguments: past assignments, keywords and programs that run others."""
    at = 0
    while at < len(words):
        word = words[at].rpartition("/")[2]
        if word in _KEYWORDS or re.match(r"\w+\+?=", word):
            at += 1
        elif word in _WRAPPERS:
            at += 1
            while at < len(words) and (words[at].startswith("-") or re.match(r"\w+=|\d+[smhd]?$", words[at])):
                at += 1
        else:
            return word, words[at + 1 :]
    return "", []


def _letters(arguments: list[str]) -> set[str]:
    return {f"-{letter}" for word in arguments if re.fullmatch(r"-[A-Za-z]+", word) for letter in word[1:]}


def _kills_one(arguments: list[str]) -> bool:
    """`kill -1 PID` sends signal 1 to one process; `kill -9 -1` and `kill -- -1` reach all."""
    return arguments[0] == "-1" and len(arguments) > 1 and "-1" not in arguments[1:]
