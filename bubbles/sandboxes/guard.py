"""A seat belt: command lines that are refused because their words alone show that they destroy, or reach where they should not.

It is advice, not a boundary. A shell can spell anything in a way that no reader of its words will see; what a command must not reach
has to be kept from it by a jail. It reads words as a shell would after quoting, follows `cd` and plain variables, and looks into `sh -c`,
`eval` and substitutions. It does not know what files there are.
"""

from __future__ import annotations

import fnmatch
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

from bubbles.sandboxes import reading
from bubbles.sandboxes.reading import REDIRECTIONS, SHELLS

_WRITES = {">", ">>", ">|", "&>", "&>>"}
_WRAPPERS = {
    "sudo", "doas", "env", "nohup", "nice", "ionice", "chrt", "taskset", "time", "timeout", "setsid", "setpriv", "stdbuf", "command", "exec",
    "builtin", "busybox", "toybox", "xargs", "parallel", "flock", "watch", "strace", "unshare", "nsenter", "chroot", "fakeroot", "su",
    "runuser", "script",
}  # fmt: skip
_KEYWORDS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done"}
_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/var")
_DISKS = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|mapper/|dm-|loop|md|zd|nbd|pmem)\w*")
_HARMLESS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/full", "/dev/fd", "/dev/shm", "/var/tmp")
_SECRET: tuple[str, ...] = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssl/private")
_SECRET += tuple(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "ed25519"))
_FOR_ALL = ("/usr/local", "/opt", "/srv", "/var/lib", "/var/www")  # where whoever may write installs things
_MAGIC = re.compile(r"/proc/(?:[^/]+/(?:task/[^/]+/)?(?:root|cwd)|[\d*?\[][^/]*/(?:environ|mem|fd))\b")
_BOMBS = (
    re.compile(r"(?<![\w:.])([\w:.]++)\s*+\(\)\s*+[{(]\s*+\1\s*+[|&]++\s*+\1(?![\w:.])"),
    re.compile(r"\bfunction\s++([\w:.]++)\s*+(?:\(\)\s*+)?[{(]\s*+\1\s*+[|&]++\s*+\1(?![\w:.])"),
    re.compile(r"\$0\s*+[|&]\s*+\$0|\bfork\s++while\s++fork\b|\bwhile\s*+(?:\(?1\)?|True)\s*+:\s*+os\.fork\(\)"),
)
_POWER = {"shutdown", "reboot", "halt", "poweroff"}
_SYSTEMCTL = {*_POWER, "kexec", "soft-reboot", "rescue", "emergency", "exit", "suspend", "hibernate"}
_FORMAT = re.compile(r"mkfs(\..*)?|mkswap|wipefs|blkdiscard|fdisk|sfdisk|cfdisk|parted|sgdisk|lvremove|vgremove|pvremove|pvcreate|flash_erase(all)?")
_WIPES = {
    "cryptsetup": {"luksFormat", "luksErase", "erase", "reencrypt"}, "zpool": {"destroy", "labelclear", "create"}, "zfs": {"destroy"},
    "mdadm": {"--zero-superblock"}, "nvme": {"format", "sanitize"}, "hdparm": {"--security-erase", "--security-erase-enhanced"},
}  # fmt: skip
_REMOVES = {"rm", "rmdir", "shred", "unlink", "srm", "wipe"}
_CHANGES = {*_REMOVES, "mv", "truncate", "chmod", "chown", "chgrp", "chattr", "setfacl", "tee"}
_COPIES = {"cp", "install", "ln", "rsync", "scp"}
_NOTABLE = {*_CHANGES, *_COPIES, *_POWER, *_WIPES, *SHELLS, "dd", "eval", "find", "kill", "killall5", "systemctl", "crontab", "init", "telinit"}
_JOINTS = re.compile(r"[=:@]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*+)\+?=(.*+)", re.DOTALL)
_DECLARES = {"export", "declare", "typeset", "local", "readonly"}
_PATTERN = re.compile(r"[*?\[]")
_LONG_PATTERN = 256
_MOST = 128 * 1024  # characters of a command that are read: as many as a command may have
_STEPS = 200_000  # words and parts of words that are looked at; an honest command of the greatest length has less
_NESTED = 4  # what a step within a substitution, or a script in a word, counts: a command of the greatest length that is read again and again is odd
_DEEPEST = 4  # of commands within commands
_WRAPPED = 8  # programs behind one that runs others


class _Roots:
    """Directories, asked quickly about many paths."""

    def __init__(self, paths: Sequence[object]) -> None:
        self.texts = tuple(map(str, paths))
        self._below = tuple(f"{text}/" for text in self.texts)

    def is_one(self, path: str) -> bool:
        return path in self.texts

    def hold(self, path: str) -> bool:
        return path in self.texts or path.startswith(self._below)

    def lie_in(self, path: str) -> bool:
        """Whether one of them is `path`, or lies below it."""
        below = path.rstrip("/") + "/"
        return any(text == path or text.startswith(below) for text in self.texts)


_SYSTEMS, _HARMLESS_ONES, _OPEN = _Roots(_SYSTEM), _Roots(_HARMLESS), _Roots(_FOR_ALL)


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a command belongs.

    `inside` are the roots that it may use, `closed` those that it may not name but for what is inside or `named` (programs); `home` is its
    HOME. `shut` are files inside that are no command's: what decides about the session.
    """

    inside: tuple[PurePosixPath, ...]
    closed: tuple[PurePosixPath, ...]
    home: PurePosixPath
    named: tuple[PurePosixPath, ...] = ()
    shut: tuple[PurePosixPath, ...] = ()

    @classmethod
    def of(cls, session_dir: Path, inside: tuple[Path, ...], home: str, path: str) -> Reach:
        """The reach of the session in `session_dir` whose commands have these HOME and PATH.

        The owner's and Bubbles' homes are closed, those of others, and the system's files of passwords and keys; programs on PATH
        and this Python may be named.
        """
        return _reach(session_dir, inside, home, path, os.path.expanduser("~"))


@lru_cache(maxsize=256)
def _reach(session_dir: Path, inside: tuple[Path, ...], its_home: str, path: str, owners: str) -> Reach:
    home, owner, bubbles = Path(its_home), Path(owners), session_dir.parent.parent
    private = [home] if home != owner else []
    programs = [Path(entry) for entry in path.split(":") if entry] + [Path(sys.prefix), Path(sys.base_prefix)]
    named = [entry for entry in programs if bubbles not in (entry, *entry.parents) and entry not in (owner, *owner.parents)]
    shut = [session_dir / name for name in ("config.json", "session.jsonl", "HEARTBEATS.md")]
    closed = _spellings([bubbles, owner, Path("/root"), Path("/run/user"), *map(Path, _SECRET), *_homes()])
    return Reach(_spellings([*inside, *private]), closed, PurePosixPath(home), _spellings(named), _spellings(shut))


def _homes() -> list[Path]:
    """Those of people. /home itself is not one: words like it stand in many a text."""
    try:
        return [Path("/home", name) for name in os.listdir("/home")]
    except OSError:
        return []


def _spellings(paths: Sequence[Path]) -> tuple[PurePosixPath, ...]:
    both = [spelt for path in paths for spelt in _spelt(str(path))]
    return tuple(PurePosixPath(spelt) for spelt in dict.fromkeys(both) if spelt != "/")


@lru_cache(maxsize=1024)
def _spelt(path: str) -> tuple[str, str]:
    return os.path.abspath(path), os.path.realpath(path)


def refusal(command: str, reach: Reach, cwd: Path) -> str:
    """Why `command`, started in `cwd`, is refused where no jail holds it: it destroys, or strays. "" where nothing speaks against it.

    >>> here = Reach((PurePosixPath("/b/s/1"),), (PurePosixPath("/b"),), PurePosixPath("/b/h/1"))
    >>> refusal("ls; cd ../../2 && cat notes", here, Path("/b/s/1/work"))
    '/b/s/2 is outside the workspace'
    >>> refusal("grep -rn 'rm -rf /' docs | sort > found.txt", here, Path("/b/s/1/work"))
    ''
    """
    return Reading(reach, cwd, strays=True).of(command)


def destroys(command: str, reach: Reach, cwd: Path) -> str:
    """Why `command` is refused under every backend: its words show that it would destroy a system. "" where they do not.

    >>> here = Reach((PurePosixPath("/b/s/1"),), (PurePosixPath("/b"),), PurePosixPath("/b/h/1"))
    >>> destroys("cat /b/config.json; sudo mkfs.ext4 -q /dev/sda1", here, Path("/b/s/1/work"))
    'mkfs.ext4 would overwrite a disk'
    """
    return Reading(reach, cwd, strays=False).of(command)


def _is_bomb(text: str) -> bool:
    return any(bomb.search(text) for bomb in _BOMBS)


class Reading:
    """One command line as it is read: where `cd` has led, which variables are known. `steps` counts what was looked at."""

    def __init__(self, reach: Reach, cwd: Path, *, strays: bool) -> None:
        self._reach, self._cwd, self._may_stray = reach, str(cwd), not strays
        self._was, self._home = str(cwd), str(reach.home)
        self._inside, self._closed = _Roots(reach.inside), _Roots(reach.closed)
        self._named, self._shut = _Roots(reach.named), _Roots(reach.shut)
        self._known: dict[str, str] = {"HOME": self._home}
        self._before: list[str] = []  # the command whose output goes into the next
        self.steps, self._weight = 0, 1

    def of(self, command: str) -> str:
        """Why it is refused, or ""."""
        text = reading.plain(command)[:_MOST]
        if _is_bomb(text):
            return "it starts itself without end"
        try:
            return self._line(text, 0)
        except _Endless:
            return "it is too long and too nested to be read"

    def _step(self, count: int = 1) -> None:
        self.steps += count * self._weight
        if self.steps > _STEPS:
            raise _Endless

    def _line(self, text: str, depth: int) -> str:
        if depth > _DEEPEST:
            return ""
        left = list[str]()  # the directories outside the parentheses that are open
        for marks, written in reading.commands(text):
            self._bracket(marks, left)
            inner = next(filter(None, (self._apart(part, depth + 1) for word in written for part in reading.substituted(word))), "")
            words = list(self._filled(written))
            why = inner or self._simple(words, depth, self._before if "|" in marks and "||" not in marks else [])
            if why:
                return why
            self._before = words
        return ""

    def _apart(self, text: str, depth: int) -> str:
        """A line that a shell of its own reads: where `cd` leads there is forgotten."""
        cwd, weight = self._cwd, self._weight
        self._weight = _NESTED
        try:
            self._step(len(text) // 16)
            return self._line(text, depth)
        finally:
            self._cwd, self._weight = cwd, weight

    def _bracket(self, marks: str, left: list[str]) -> None:
        for mark in marks if "(" in marks or ")" in marks else "":
            if mark == "(":
                left.append(self._cwd)
            elif mark == ")" and left:
                self._cwd = left.pop()

    def _filled(self, words: list[str]) -> Iterator[str]:
        """The words with what is known of variables in their place; one that stands for a program may become several."""
        leading = True
        for written in words:
            self._step()
            word = reading.filled(written, {**self._known, "PWD": self._cwd}) if "$" in written else written
            found = word.split() if word != written else reading.braced(word) if "{" in word and "," in word else [word]
            self._step(len(found) + len(word) // 64)
            yield from found
            leading = leading and self._learns(word)

    def _learns(self, word: str) -> bool:
        """Note an assignment before, or in the place of, a program. Whether there may be more of them."""
        found = _ASSIGNMENT.match(word)
        if found and "$(" not in word and "`" not in word:
            self._known[found[1]] = found[2][:1024]
        return bool(found) or word in _DECLARES or word in _KEYWORDS

    def _simple(self, words: list[str], depth: int, before: list[str]) -> str:
        if words[:1] == ["for"] and words[2:3] == ["in"]:
            self._known[words[1]] = " ".join(words[3:])[:1024]
        for name, arguments in _programs(words):
            if why := self._program(name, arguments, words, depth, before):
                return why
        return "" if self._may_stray else self._strays(words)

    def _program(self, name: str, arguments: list[str], words: list[str], depth: int, before: list[str]) -> str:
        if name in SHELLS or name in ("su", "runuser", "script", "watch", "env"):
            return next(filter(None, (self._apart(script, depth + 1) for script in _scripts(name, arguments, before))), "")
        if name in ("eval", "trap"):
            return self._line(" ".join(arguments) if name == "eval" else "".join(arguments[:1]), depth + 1)
        if name in ("cd", "pushd"):
            return self._move(arguments)
        return self._destroys(name, arguments, words, before)

    # -- destroying --------------------------------------------------------------------------------

    def _destroys(self, name: str, arguments: list[str], words: list[str], before: list[str]) -> str:
        if why := _ends_it(name, arguments):
            return why
        if name in _CHANGES or name == "find":
            touched = next((path for path in self._changed(name, arguments, before) if self._is_precious(path, name)), None)
            if touched is not None:
                return f"{name} would change {touched}, which is the system's or holds far more than this workspace"
        target = next((path for path in self._written(name, arguments, words) if self._is_precious(path, name)), None)
        return f"it would overwrite {target}" if target is not None else ""

    def _changed(self, name: str, arguments: list[str], before: list[str]) -> Iterator[str]:
        if name == "find" and not {"-delete", *_CHANGES} & set(arguments):
            return
        named = [word for word in arguments if not word.startswith("-")]
        piped = before if not named and before[:1] in (["find"], ["ls"], ["echo"], ["printf"], ["locate"]) else []
        for word in (*arguments, *piped[1:]):
            yield from self._paths(word)
        for word in named if name != "find" else named[:1]:
            if "/" not in word and (bare := self._bare(word)):
                yield bare

    def _written(self, name: str, arguments: list[str], words: list[str]) -> Iterator[str]:
        for before, word in zip(["", *words], words, strict=False):
            if before in _WRITES:
                target = word.rstrip(")`")  # of a substitution within quotes, which is read for itself as well
                yield from self._paths(target)
                if "/" not in target and (bare := self._bare(target)):
                    yield bare
            elif name == "dd" and word.startswith("of="):
                yield self._absolute(word[3:])
        if name in _COPIES:
            for word in [word for word in arguments if not word.startswith("-")][1:][-1:]:
                yield from (path for path in [self._path(word)] if path and not _OPEN.hold(path))

    def _is_precious(self, path: str, name: str) -> bool:
        self._step()
        if _HARMLESS_ONES.hold(path):
            return False
        if self._inside.hold(path):
            return name in _REMOVES and self._inside.is_one(path)
        bare = path.rstrip("*").rstrip("/") or "/"
        if _DISKS.match(path) or _SYSTEMS.hold(bare):
            return True
        return self._inside.lie_in(bare) or self._closed.lie_in(bare) or (bool(_PATTERN.search(path)) and self._may_stand_for_more(path))

    def _may_stand_for_more(self, pattern: str) -> bool:
        parts = pattern.strip("/").split("/")
        precious = (*_SYSTEM, *self._inside.texts, *self._closed.texts)
        self._step(len(precious))
        wholes = (known.strip("/").split("/") for known in precious)
        return len(pattern) <= _LONG_PATTERN and any(
            len(parts) <= len(whole) and all(map(fnmatch.fnmatchcase, whole, parts)) for whole in wholes
        )

    # -- straying ----------------------------------------------------------------------------------

    def _strays(self, words: list[str]) -> str:
        for word in words:
            self._step()
            if magic := _MAGIC.search(word):
                return f"{magic[0]} leads into another process"
            for path in self._paths(word):
                if self._is_closed(path):
                    return f"{path} is outside the workspace"
        return ""

    def _move(self, arguments: list[str]) -> str:
        targets = [word for word in arguments if not word.startswith("-") and word not in REDIRECTIONS] or ["~"]
        moved = self._was if "-" in arguments else self._path(targets[0]) or self._bare(targets[0])
        if not moved:
            return ""
        if not self._may_stray and self._is_closed(moved):
            return f"{moved} is outside the workspace"
        self._was, self._cwd = self._cwd, moved
        return ""

    def _is_closed(self, path: str) -> bool:
        if self._shut.hold(path):
            return True
        return self._closed.hold(path) and not self._inside.hold(path) and not self._named.hold(path)

    # -- paths -------------------------------------------------------------------------------------

    def _paths(self, word: str) -> Iterator[str]:
        """The paths that a word may name: as it stands, and behind `=`, `:` or `@`."""
        for part in (word, *_JOINTS.split(word)[1:]):
            self._step()
            path = self._path(part)
            if path:
                yield path

    def _path(self, word: str) -> str:
        if not word or word.startswith("-") or "://" in word:
            return ""
        if word == "~" or word.startswith("~/"):
            word = f"{self._home}{word[1:]}"
        elif word == "~+" or word.startswith("~+/"):
            word = f"{self._cwd}{word[2:]}"
        elif word.startswith("~"):
            word = f"/home/{word[1:]}"
        if "$" in word or "\n" in word or ("/" not in word and word != ".."):
            return ""
        return self._absolute(word)

    def _bare(self, word: str) -> str:
        """What a word without a slash names, in the directory that `cd` has led to."""
        return "" if not word or word[0] in "-+" or "$" in word or "\n" in word or len(word) > 255 else self._absolute(word)

    def _absolute(self, word: str) -> str:
        path = os.path.normpath(os.path.join(self._cwd, word))
        return path[1:] if path.startswith("//") else path


class _Endless(Exception):
    """More work than a command is worth."""


def _ends_it(name: str, arguments: list[str]) -> str:
    """Why a program with these arguments ends a machine, a disk or all of the owner's work, whatever else it names; "" where it does not."""
    given = set(arguments)
    if name in _POWER or (name == "systemctl" and _SYSTEMCTL & given) or (name in ("init", "telinit") and arguments[:1] in (["0"], ["6"])):
        return f"{name} would stop the machine"
    if (_FORMAT.fullmatch(name) and arguments and "-l" not in given) or _WIPES.get(name, set()) & given:
        return f"{name} would overwrite a disk"
    if name == "killall5" or (name == "kill" and "-1" in given and not _kills_one(arguments)):
        return "it would kill every process of the owner"
    if name == "crontab" and "-r" in _letters(arguments):
        return "it would remove all of the owner's scheduled work"
    return ""


def _programs(words: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The programs that a simple command runs, and their arguments: past assignments, keywords and programs that run others."""
    at = 0
    while at < len(words) and (words[at] in _KEYWORDS or _ASSIGNMENT.match(words[at])):
        at += 1
    if at == len(words):
        return
    name = _name(words[at])
    yield name, words[at + 1 :]
    if name not in _WRAPPERS and name not in ("find", "for"):
        return
    behind = [n for n in range(at + 1, len(words)) if _name(words[n]) in _NOTABLE or _FORMAT.fullmatch(_name(words[n]))]
    for n in behind[:_WRAPPED] if name != "find" else []:
        yield _name(words[n]), words[n + 1 :]


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _scripts(name: str, arguments: list[str], before: list[str]) -> Iterator[str]:
    """What a shell, or what runs one, is given to run: by `-c`, on its input, or, as by `env -S`, in a word."""
    if name == "env":
        yield from (script for flag, script in zip(arguments, arguments[1:], strict=False) if flag in ("-S", "--split-string"))
    elif name == "watch":
        yield " ".join(word for word in arguments if not word.startswith("-"))
    elif "-c" in _letters(arguments) or "--command" in arguments:
        flag = next(n for n, word in enumerate(arguments) if word == "--command" or re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word))
        yield from [word for word in arguments[flag + 1 :] if not word.startswith("-")][:1]
    elif "<<<" in arguments:
        yield from arguments[arguments.index("<<<") + 1 :][:1]
    elif before[:1] in (["echo"], ["printf"]):
        yield " ".join(word for word in before[1:] if not word.startswith("-"))


def _letters(arguments: list[str]) -> set[str]:
    return {f"-{letter}" for word in arguments if re.fullmatch(r"-[A-Za-z]+", word) for letter in word[1:]}


def _kills_one(arguments: list[str]) -> bool:
    """`kill -1 PID` sends signal 1 to one process; `kill -9 -1` and `kill -- -1` reach all."""
    return arguments[0] == "-1" and len(arguments) > 1 and "-1" not in arguments[1:]
