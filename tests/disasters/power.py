"""What may lie on a disk after the power went, made from a record of what was done to it (record.py).

What a sync has covered is there. Of the rest:

* of a file, the first so many writes; the one after them torn at any byte; zeros behind, up to the length it had; a page of zeros
* of a directory, the first so many changes (create, rename, unlink, mkdir); a rename is one change of two directories
* `ordered`, as ext4, xfs and btrfs are: a file's sync brings along each earlier change of its name. Elsewhere only a directory's sync does

Directories are not ordered among each other, though on those three they are: a state that can be lived with here can be lived with there.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from tests.disasters.record import CALLS, Entry

PAGE = 4096
Contents = dict[str, tuple[bytes, int] | None]  # path: (content, mtime in ns), None for a directory
_KINDS = frozenset({*CALLS, "size", "mtime", "mtime of", "syncing", "synced"})


@dataclass(eq=False)
class File:
    """One file whatever its name: what was done to its content, in order, each with its place in the record."""

    done: list[tuple[int, str, Any]] = field(default_factory=list)


@dataclass(eq=False)
class Change:
    """One change of names, with the directories that it concerns."""

    at: int
    kind: str
    path: str
    target: str = ""
    file: File | None = None

    @property
    def directories(self) -> set[str]:
        found = {_parent(self.path)} | ({_parent(self.target)} if self.target else set())
        return found | ({self.path} if self.kind in ("mkdir", "rmdir") else set())


@dataclass(eq=False)
class Sync:
    """A sync that came to its end: what was done before `begun` is durable from `ended` on."""

    begun: int
    ended: int
    file: File | None
    directory: str


class Record:
    """The entries of a record, understood. What lies before `start` is durable."""

    def __init__(self, entries: list[Entry], start: int = 0) -> None:
        self.entries = entries
        self.start = start
        self.changes: list[Change] = []
        self.files: list[File] = []
        self.syncs: list[Sync] = []
        self.remarks: list[tuple[int, Entry]] = []
        self._names: dict[str, File | None] = {}
        self._keys: dict[str, tuple[File | None, str]] = {}
        self._syncing: dict[str, tuple[int, str]] = {}
        for at, entry in enumerate(entries):
            if entry[0] in _KINDS:
                self._take(at, *entry)
            else:
                self.remarks.append((at, entry))

    def until(self, cut: int) -> list[Entry]:
        """The remarks before the cut."""
        return [entry for at, entry in self.remarks if at < cut]

    def cuts(self) -> list[int]:
        """Each moment at which the disk or what is known of it differs from the moment before."""
        return list(range(self.start, len(self.entries) + 1))

    def state(self, cut: int, chance: random.Random, keep: float, *, ordered: bool = True) -> Contents:
        """One state that a power cut right before the entry `cut` may leave. `keep` 0: nothing but what was synced, 1: all, else by chance."""
        names: dict[str, File | None] = {}
        stopped: set[str] = set()
        durable = self._durable_changes(cut, ordered)
        for change in self.changes:
            if change.at >= cut:
                break
            if change not in durable and (change.directories & stopped or not _kept(chance, keep)):
                stopped |= change.directories
            else:
                _apply(change, names)
        synced = self._synced(cut)
        return {path: None if file is None else self._content(file, cut, synced.get(file, 0), chance, keep) for path, file in names.items()}

    def states(self, chance: random.Random, cuts: int, each: int, *, ordered: bool = True) -> Iterator[tuple[int, Contents]]:
        """(cut, state) for so many moments, spread by chance: the least, the most, and some between."""
        all = self.cuts()
        for cut in sorted(chance.sample(all, min(cuts, len(all)))):
            for keep in (0.0, 1.0, *(chance.choice([0.3, 0.6, 0.9]) for _ in range(each - 2)))[:each]:
                yield cut, self.state(cut, chance, keep, ordered=ordered)

    # -- what is durable ---------------------------------------------------------------------------

    def _durable_changes(self, cut: int, ordered: bool) -> set[Change]:
        """The changes that are on the disk for sure, and with each the earlier ones of its directories."""
        ended = [sync for sync in self.syncs if sync.ended < cut]
        needed: set[str] = set()
        durable: set[Change] = set()
        for change in reversed(self.changes):
            if change.at >= cut:
                continue
            sure = change.at < self.start or any(
                change.at < sync.begun and (sync.directory in change.directories if sync.file is None else ordered and sync.file is change.file)
                for sync in ended
            )
            if sure or change.directories & needed:
                durable.add(change)
                needed |= change.directories
        return durable

    def _synced(self, cut: int) -> dict[File, int]:
        """Of each file, how much of what was done to it is on the disk for sure."""
        found: dict[File, int] = {}
        for sync in self.syncs:
            if sync.ended < cut and sync.file is not None:
                found[sync.file] = max(found.get(sync.file, 0), sync.begun)
        for file in self.files:
            found[file] = max(found.get(file, 0), self.start)
        return {file: sum(at < begun for at, _, _ in file.done) for file, begun in found.items()}

    def _content(self, file: File, cut: int, synced: int, chance: random.Random, keep: float) -> tuple[bytes, int]:
        done = [(kind, value) for at, kind, value in file.done if at < cut]
        rest = len(done) - synced
        kept = synced + (rest if keep == 1 else 0 if keep == 0 else chance.randint(0, rest))
        content, mtime = _played(done[:kept])
        if 0 < keep < 1 and rest:
            length = max(len(content), len(_played(done)[0]))
            if kept < len(done) and done[kept][0] == "write":
                content += done[kept][1][: chance.randint(0, len(done[kept][1]))]
            if chance.random() < 0.3:
                content += bytes(max(0, length - len(content)))
            sure = len(_played(done[:synced])[0])
            if len(content) - sure > PAGE and chance.random() < 0.3:  # a later page was written back, an earlier one was not
                page = chance.randrange(sure // PAGE, len(content) // PAGE) * PAGE
                begin = max(sure, page)
                content = content[:begin] + bytes(page + PAGE - begin) + content[page + PAGE :]
        return content, mtime

    # -- reading -----------------------------------------------------------------------------------

    def _take(self, at: int, kind: str, *rest: Any) -> None:
        match kind:
            case "open":
                self._open(at, *rest)
            case "write" | "size" | "mtime":
                file = self._keys[rest[0]][0]
                assert file is not None
                file.done.append((at, kind, rest[1]))
            case "mtime of":
                if (named := self._names.get(rest[0])) is not None:
                    named.done.append((at, "mtime", rest[1]))
            case "syncing":
                self._syncing[rest[1]] = (at, rest[0])
            case "synced":
                begun, key = self._syncing.pop(rest[1])
                file, path = self._keys[key]
                self.syncs.append(Sync(begun, at, file, "" if file else path))
            case _:
                self._change(Change(at, kind, *rest))

    def _open(self, at: int, key: str, path: str, flags: int) -> None:
        if flags & os.O_DIRECTORY:
            self._keys[key] = (None, path)
            return
        file = self._names.get(path)
        if file is None:
            self.files.append(file := File())
            self._change(Change(at, "create", path, file=file))
        elif flags & os.O_TRUNC:
            file.done.append((at, "size", 0))
        self._keys[key] = (file, path)

    def _change(self, change: Change) -> None:
        change.file = change.file or self._names.get(change.path)
        _apply(change, self._names)
        self.changes.append(change)


def _apply(change: Change, names: dict[str, File | None]) -> None:
    match change.kind:
        case "create" | "mkdir":
            names[change.path] = change.file
        case "rename":
            names[change.target] = names.pop(change.path)
        case "unlink" | "rmdir":
            del names[change.path]


def _played(done: list[tuple[str, Any]]) -> tuple[bytes, int]:
    content, mtime = b"", 0
    for kind, value in done:
        if kind == "write":
            content += value
        elif kind == "size":
            content = content[:value] + bytes(max(0, value - len(content)))
        else:
            mtime = value
    return content, mtime


def _kept(chance: random.Random, keep: float) -> bool:
    return chance.random() < keep


def _parent(path: str) -> str:
    return str(PurePosixPath(path).parent)


def lay(contents: Contents, root: Path) -> None:
    """Put a state onto a real disk, below `root`."""
    root.mkdir(parents=True, exist_ok=True)
    for path, found in contents.items():
        target = root / path
        if found is None:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.write_bytes(found[0])
        target.chmod(0o600)
        if found[1]:
            os.utime(target, ns=(found[1], found[1]))


def differences(contents: Contents, root: Path, wanted: Callable[[str], bool]) -> list[str]:
    """Where the files of a state are not those below `root` that are `wanted`: the record has missed something."""
    there = {place: path for path in root.rglob("*") if path.is_file() and wanted(place := str(path.relative_to(root)))}
    said = {place: found[0] for place, found in contents.items() if found is not None}
    found = [f"{place} is only {'on the disk' if place in there else 'in the record'}" for place in set(there) ^ set(said)]
    return found + [f"{place} has another content" for place in set(there) & set(said) if there[place].read_bytes() != said[place]]
