"""Opening a path so that it cannot lead out of the directory it starts from.

On Linux the kernel itself resolves it (openat2, RESOLVE_BENEATH): a link may be followed as long as it stays inside, and no
exchange of directories during the walk leads out. Elsewhere, and where openat2 is missing, the path is walked name by name and
no link is followed at all. It does not know what is opened, nor whether that is allowed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import sys
from collections.abc import Iterable

_OPENAT2 = 437  # the same number on every architecture that has the call
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08
_TRIES = 32  # EAGAIN: something was renamed meanwhile and the kernel cannot be sure
O_PATH = getattr(os, "O_PATH", 0)
_COMMON = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
_WAY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MACHINES = ("x86_64", "aarch64", "arm64")


class _How(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0, *, links: bool = True) -> int:
    """A descriptor of `path`, which starts at the directory `root` and stays in it; never blocks on a FIFO. `links=False` follows none.

    Raises OSError: EXDEV where the path leads out, ELOOP for a link that is not followed, and what open(2) has.
    """
    if "\0" in path:
        raise ValueError("embedded null byte")  # C would end the path there
    if kernel_resolves():
        return _openat2(root, path or ".", flags | _COMMON, mode, _BENEATH | _NO_MAGICLINKS | (0 if links else _NO_SYMLINKS))
    return walk(root, path, flags, mode)


def _openat2(root: int, path: str, flags: int, mode: int, resolve: int) -> int:
    if flags & O_PATH:
        flags &= ~(os.O_NONBLOCK | os.O_NOCTTY)  # openat2 refuses what O_PATH would ignore
    how = _How(flags, mode, resolve)
    for _ in range(_TRIES):
        fd: int = _libc.syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


_known: bool | None = None


def kernel_resolves() -> bool:
    """Whether openat2 is there: not before Linux 5.6, nor under a filter that hides it."""
    global _known
    if _known is None:
        _known = sys.platform == "linux" and platform.machine() in _MACHINES and _probe()
    return _known


def _probe() -> bool:
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(_openat2(root, ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, _BENEATH))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def walk(root: int, path: str, flags: int = os.O_RDONLY, mode: int = 0) -> int:
    """The same without openat2: each name is opened with O_NOFOLLOW, and `..` leads back to the directory that the one before it was opened in."""
    plain(path)
    names = [name for name in path.split("/") if name not in ("", ".")]
    last = names.pop() if names and names[-1] != ".." else "."
    way: list[str] = []
    at = os.dup(root)
    try:
        for name in names:
            way = way[:-1] if name == ".." else [*way, name]
            below = _down(root, way) if name == ".." else os.open(name, _WAY, dir_fd=at)
            os.close(at)
            at = below
        return _last(last, flags, mode, at)
    finally:
        os.close(at)


def _last(name: str, flags: int, mode: int, at: int) -> int:
    fd = os.open(name, flags | _COMMON | os.O_NOFOLLOW, mode, dir_fd=at)
    if flags & O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):  # there O_NOFOLLOW opens the link itself
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return fd


def _down(root: int, names: Iterable[str]) -> int:
    at = os.dup(root)
    for name in names:
        try:
            below = os.open(name, _WAY, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def plain(path: str) -> list[str]:
    """The names of `path` with `..` taken out by its text; ["."] for the start itself. Raises OSError EXDEV where it leads out."""
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            if not names:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return names or ["."]
