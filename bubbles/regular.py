"""Files that are opened only where they are files: a pipe or a device in the place of one is refused at once, and holds nobody up.

It does not know what stands in them.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)  # Windows has none of them


def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of the file at `path`, and the opener of `open(path, opener=opened)`. Raises OSError; EINVAL for what is no regular file."""
    fd = os.open(path, flags | _FLAGS, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def read(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """All that the file holds. Raises OSError as `opened`; EFBIG where that is more than `most` bytes, if any are given."""
    with open(path, "rb", opener=opened) as file:
        return _all(file, path, most)


def trusted(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """As `read`, for a file that decides what is allowed: no link, and written by nobody but this user and root.

    Raises OSError as well where it is a link (ELOOP), or where another user owns it or may write it (EPERM).
    """
    with open(opened(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0):
            raise OSError(errno.EPERM, "it belongs to another user", os.fspath(path))
        if os.name == "posix" and found.st_mode & 0o022:
            raise OSError(errno.EPERM, f"others may write it (mode {stat.S_IMODE(found.st_mode):04o})", os.fspath(path))
        return _all(file, path, most)


def _all(file: BinaryIO, path: str | os.PathLike[str], most: int) -> bytes:
    data = file.read(most + 1 if most >= 0 else -1)
    if 0 <= most < len(data):
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", os.fspath(path))
    return data
