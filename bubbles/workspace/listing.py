"""What lies in a directory, told without following a link.

It does not know where the directory lies.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from bubbles.workspace.names import is_litter, shown
from bubbles.workspace.root import Root

SCAN_MOST = 10_000  # names looked at in one directory


@dataclass(frozen=True, slots=True)
class Entry:
    """One name: `kind` is "file", "directory", "link" or "other"; `path` and `target` (a link's text) are for showing, so escaped."""

    path: str
    kind: str
    size: int = 0
    mtime: float = 0.0
    target: str = ""

    @classmethod
    def of(cls, path: str, found: os.stat_result, target: str = "") -> Entry:
        """What stat told of `path`."""
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
        return cls(shown(path), kinds.get(stat.S_IFMT(found.st_mode), "other"), found.st_size, found.st_mtime, shown(target))


@dataclass(frozen=True, slots=True)
class Listing:
    """Sorted entries. `left_out` more were found and not told; `more`: there are still others, uncounted."""

    entries: tuple[Entry, ...]
    left_out: int = 0
    more: bool = False


def listing(root: Root, top: Sequence[str], depth: int, most: int, hidden: Set[tuple[int, int]]) -> Listing:
    """At most `most` entries below the directory `top` of `root`, the nearest first, but for those whose (dev, ino) is `hidden`."""
    told: list[tuple[list[str], Entry]] = []
    left_out, more = 0, False
    level: list[list[str]] = [[]]
    for _ in range(depth):
        found = [item for names in level for item in _scan(root, top, names, hidden)]
        more = more or any(entry is None for _, entry in found)
        entries = [(names, entry) for names, entry in found if entry is not None]
        room = max(0, most - len(told))
        told += entries[:room]
        left_out += len(entries[room:])
        level = [names for names, entry in entries[:room] if entry.kind == "directory"]
    told.sort(key=lambda item: item[0])
    return Listing(tuple(entry for _, entry in told), left_out, more)


def _scan(root: Root, top: Sequence[str], names: list[str], hidden: Set[tuple[int, int]]) -> Iterator[tuple[list[str], Entry | None]]:
    """The directory's entries, sorted, and a None where SCAN_MOST cut them. One that went away meanwhile holds nothing."""
    try:
        fd = root.descend([*top, *names])
    except OSError:
        return
    try:
        there, cut = _names(fd)
        for name in sorted(there):
            with contextlib.suppress(OSError):  # gone, or no link any more when it is asked where it points
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if (found.st_dev, found.st_ino) not in hidden:
                    path = [*names, name]
                    target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(found.st_mode) else ""
                    yield path, Entry.of("/".join(path), found, target)
        if cut:
            yield names, None
    finally:
        os.close(fd)


def _names(fd: int) -> tuple[list[str], bool]:
    names: list[str] = []
    with os.scandir(fd) as there:
        for item in there:
            if len(names) == SCAN_MOST:
                return names, True
            if not is_litter(item.name):
                names.append(item.name)
    return names, False
