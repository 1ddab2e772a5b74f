"""A file's content exchanged whole: a new file beside it, written and synced, then renamed over it.

Whoever reads sees the old content or the new, never a part; a hard link to the old file keeps the old content. A crash leaves at
most a file that `names.is_litter` knows and no listing shows. It does not know where the directory lies nor whether it may be written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets


def replace(directory: int, name: str, data: bytes, mode: int, old: os.stat_result | None) -> None:
    """Make `name` in the open `directory` hold `data` with the permission bits `mode`. `old` is what lies there now, as lstat told it.

    Raises OSError, ESTALE where that has changed meanwhile; what lies there is intact then.
    """
    litter = f".bubbles-{secrets.token_hex(8)}.tmp"
    fd = os.open(litter, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        try:
            _fill(fd, data, mode, old)
        finally:
            os.close(fd)
        _unchanged(directory, name, old)
        os.rename(litter, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(litter, dir_fd=directory)
        raise


def _fill(fd: int, data: bytes, mode: int, old: os.stat_result | None) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
        with contextlib.suppress(PermissionError):
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, mode & 0o777)
    os.fsync(fd)


def _unchanged(directory: int, name: str, old: os.stat_result | None) -> None:
    try:
        now: os.stat_result | None = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        now = None
    if _identity(now) != _identity(old):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)


def _identity(found: os.stat_result | None) -> tuple[int, ...]:
    return () if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
