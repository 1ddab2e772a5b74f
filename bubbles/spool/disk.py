"""The system calls that a queue makes, and the two facts about a disk that it asks for.

The module `os` is a `Disk`; the tests put one in its place that stops at the n-th call, or loses what was not synced.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Protocol

from bubbles.errors import BubblesError, Misconfigured, TryAgain

_ORDERED = frozenset({"ext4", "xfs", "btrfs"})  # where a file's fsync also makes durable the rename that came before it
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Disk(Protocol):
    """Each as in `os`."""

    def open(self, path: str, flags: int, mode: int = 0o777, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def read(self, fd: int, most: int, /) -> bytes: ...
    def pread(self, fd: int, most: int, offset: int, /) -> bytes: ...
    def write(self, fd: int, data: bytes, /) -> int: ...
    def fdatasync(self, fd: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def fstat(self, fd: int, /) -> os.stat_result: ...
    def stat(self, path: str, /, *, follow_symlinks: bool = True) -> os.stat_result: ...
    def access(self, path: str, mode: int, /) -> bool: ...
    def utime(self, path: str | int, /, *, ns: tuple[int, int]) -> None: ...
    def rename(self, source: str, target: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def mkdir(self, path: str, mode: int = 0o777, /) -> None: ...
    def chmod(self, path: str, mode: int, /) -> None: ...


def filesystem(path: Path, mounts: str = "") -> str:
    """The type of the filesystem that `path` lies on ("ext4"), "" where that cannot be told. `mounts` is a mountinfo; else this process's own.

    The mount point is matched by name: a btrfs subvolume has a device number that stands in no table.

    >>> filesystem(Path("/a/b c"), "1 0 8:1 / / rw - ext4 /dev/x rw\\n2 1 0:5 / /a/b\\\\040c rw - tmpfs none rw")
    'tmpfs'
    """
    try:
        real = os.path.realpath(path)
        rows = (mounts or Path("/proc/self/mountinfo").read_text(errors="surrogateescape")).splitlines()
    except OSError:
        return ""
    best, found = -1, ""
    for row in rows:
        left, dash, right = row.partition(" - ")
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), left.split(" ")[4]) if dash else ""
        if point and len(point) >= best and (point == "/" or real == point or real.startswith(point + "/")):
            best, found = len(point), right.split(" ")[0]
    return found


def orders_renames(path: Path) -> bool:
    """Whether syncing a file there is enough to find it under its last name after a power cut; elsewhere its directory must be synced too."""
    return filesystem(path) in _ORDERED


def named(error: OSError, where: Path) -> BubblesError | None:
    """The error with a name and a remedy that `error` is, if a person can do something about it."""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return TryAgain(f"no room on the disk for {where}: {error.strerror}", remedy=f"make room there: df -h {where}; df -i {where}")
        case errno.EMFILE | errno.ENFILE | errno.ENOMEM | errno.EIO:
            return TryAgain(f"{where} cannot be used now: {error.strerror}", remedy="look at the system's log: journalctl -k -n 20")
        case errno.EACCES | errno.EPERM:
            return Misconfigured(f"no permission for {where}", remedy=f"chown -R $USER {where}; chmod -R u+rwX {where}")
        case errno.EROFS:
            return Misconfigured(f"{where} lies on a disk that may only be read", remedy="mount it for writing, or set BUBBLES_HOME to another place")
        case errno.EINVAL | errno.ELOOP:
            return Misconfigured(f"{error.filename} is not a regular file", remedy=f"move it away: {error.filename}")
        case errno.ENOTDIR:
            return Misconfigured(f"{where} is not made of directories", remedy=f"look at: ls -la {where}")
    return None
