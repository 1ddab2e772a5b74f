"""One tree that tools may use: the session's directory, or a workspace lent to it.

It knows where a path leads inside the tree, and never leaves it. It does not know which of its files may be read or written.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bubbles.workspace import beneath
from bubbles.workspace.grant import Grant

_GONE = " (deleted)"  # what the kernel puts behind the last name
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Root:
    """An open directory. `spelt`: the absolute paths that name it, the last without links; `mode`: its permission bits."""

    fd: int
    spelt: tuple[str, ...]
    grant: Grant | None
    mode: int
    kernel: bool  # whether openat2 resolves paths; else no link is followed

    @classmethod
    def of(cls, path: Path, grant: Grant | None, kernel: bool) -> Root:
        """Open `path`. Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        given = os.path.abspath(os.path.expanduser(grant.path if grant else path))
        return cls(fd, tuple(dict.fromkeys((given, _real(fd, path, kernel)))), grant, os.fstat(fd).st_mode & 0o777, kernel)

    def open(self, below: str, flags: int, *, links: bool = True) -> int:
        """A descriptor of what `below` leads to. Raises OSError: EXDEV where it leads out."""
        if self.kernel:
            return beneath.open_beneath(self.fd, below, flags, links=links)
        return beneath.walk(self.fd, below, flags)

    def canonical(self, fd: int, below: str) -> list[str]:
        """The names that lead to what `fd` was opened on by `below`, free of links and `..`. Raises OSError where it is gone or outside by now."""
        names, gone = self._told(fd, below)
        if gone and not self._leads_to(names, fd):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return names

    def last(self, fd: int, below: str) -> list[str]:
        """As `canonical`; of what is gone by now, the names that it had last."""
        names, gone = self._told(fd, below)
        return [*names[:-1], names[-1].removesuffix(_GONE)] if gone else names

    def _told(self, fd: int, below: str) -> tuple[list[str], bool]:
        """The names as the kernel tells them, and whether it may be telling that what they led to is gone."""
        if not self.kernel:
            return [name for name in beneath.plain(below) if name != "."], False
        top, real = (os.readlink(f"/proc/self/fd/{number}") for number in (self.fd, fd))
        if real != top and not real.startswith(f"{top}/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        names = [name for name in real[len(top) :].split("/") if name]
        return names, bool(names) and names[-1].endswith(_GONE)

    def _leads_to(self, names: Sequence[str], fd: int) -> bool:
        try:
            again = self.open("/".join(names), beneath.O_PATH, links=False)
        except OSError:
            return False
        try:
            return os.path.samestat(os.fstat(again), os.fstat(fd))
        finally:
            os.close(again)

    def place(self, below: str) -> list[str]:
        """The names of where `below` leads, free of links and `..`, though the last may not exist yet. Raises OSError: ELOOP for a dead link."""
        try:
            fd = self.open(below, beneath.O_PATH)
        except FileNotFoundError:
            parent, _, name = below.rstrip("/").rpartition("/")
            if not name or name in (".", ".."):
                raise
            names = self.place(parent or ".")
            if self._holds(names, name):
                raise OSError(errno.ELOOP, "a link that leads nowhere") from None
            return [*names, name]
        try:
            return self.canonical(fd, below)
        finally:
            os.close(fd)

    def _holds(self, names: Sequence[str], name: str) -> bool:
        try:
            os.close(self.open("/".join([*names, name]), beneath.O_PATH | os.O_NOFOLLOW))
        except FileNotFoundError:
            return False
        return True

    def descend(self, names: Sequence[str], *, create: bool = False) -> int:
        """A descriptor of the directory `names`, each opened without following a link, and made where it is missing and `create`."""
        at = os.open(".", _DIRECTORY, dir_fd=self.fd)  # a copy of it would share the place up to which somebody else has listed it
        try:
            for name in names:
                below = self._enter(at, name, create)
                os.close(at)
                at = below
        except BaseException:
            os.close(at)
            raise
        return at

    def _enter(self, at: int, name: str, create: bool) -> int:
        try:
            return os.open(name, _DIRECTORY, dir_fd=at)
        except FileNotFoundError:
            if not create:
                raise
        with contextlib.suppress(FileExistsError):  # somebody else may make it just now
            os.mkdir(name, self.mode, dir_fd=at)
        return os.open(name, _DIRECTORY, dir_fd=at)


def _real(fd: int, path: Path, kernel: bool) -> str:
    """Where `path`, opened as `fd`, lies, free of links: as the kernel tells it of what was opened, where it can."""
    with contextlib.suppress(OSError):
        real = os.readlink(f"/proc/self/fd/{fd}") if kernel else ""
        if real.startswith("/") and not real.endswith(_GONE):
            return real
    return os.path.realpath(path)
