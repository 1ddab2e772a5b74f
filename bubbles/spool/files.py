"""The five directories of a queue, and what can be done with a file in them.

It does not know the order of messages, nor when one is due.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from contextlib import suppress
from pathlib import Path

from bubbles.errors import Misconfigured
from bubbles.spool.disk import Disk, orders_renames

STATES = ("tmp", "new", "cur", "done", "held")
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC

_serial = itertools.count()


class Files:
    """The files below `path`, by state and name. Nothing is kept open between two calls; errors are those of `os`."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._base = str(path)
        self._disk = disk
        self._sync_directory: bool | None = None

    def prepare(self) -> None:
        """Make the directories, mode 0700. Raises Misconfigured where one is somebody else's, no directory, or on a disk of its own."""
        root = self._make(self._path)
        for state in STATES:
            if self._make(self._path / state).st_dev != root.st_dev:
                raise Misconfigured(f"{self._path / state} lies on another disk than {self._path}", remedy="unmount it: a rename cannot cross disks")

    def store(self, name: str, content: bytes, at_ns: int, *, sync: bool) -> None:
        """A new file in new/, whole or not at all."""
        written = f"{name}.{os.getpid()}.{next(_serial)}"
        place = ("tmp", written)
        fd = self._disk.open(self._at(*place), _WRITE, 0o600)
        try:
            while content:
                content = content[self._disk.write(fd, content) :]
            self._disk.utime(fd, ns=(at_ns, at_ns))
            self._disk.rename(self._at("tmp", written), self._at("new", name))
            place = ("new", name)
            if sync:
                self._sync(fd)
        except OSError:
            self.unlink(*place)
            raise
        finally:
            self._disk.close(fd)

    def sync(self, state: str, name: str) -> bool:
        """Make a file durable where it lies. False if there is no such file."""
        try:
            fd = self._disk.open(self._at(state, name), _READ)
        except FileNotFoundError:
            return False
        try:
            self._sync(fd)
        finally:
            self._disk.close(fd)
        return True

    def read(self, state: str, name: str) -> tuple[bytes, int]:
        """The content and the mtime (ns). OSError EINVAL for what is no regular file."""
        fd = self._disk.open(self._at(state, name), _READ)
        try:
            found = self._disk.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", self._at(state, name))
            content = b""
            while len(content) < found.st_size and (more := self._disk.read(fd, found.st_size - len(content))):
                content += more
            return content, found.st_mtime_ns
        finally:
            self._disk.close(fd)

    def tail(self, state: str, name: str) -> bytes:
        """The last two bytes."""
        fd = self._disk.open(self._at(state, name), _READ)
        try:
            return self._disk.pread(fd, 2, max(0, self._disk.fstat(fd).st_size - 2))
        finally:
            self._disk.close(fd)

    def line(self, state: str, suffix: str) -> list[tuple[int, str]]:
        """(mtime in ns, name) of the files of a state whose names end so, sorted."""
        found = []
        try:
            for name in self._disk.listdir(f"{self._base}/{state}"):
                if name.endswith(suffix) and (at_ns := self.mtime(state, name)) is not None:
                    found.append((at_ns, name))
        except FileNotFoundError:
            return []
        found.sort()
        return found

    def move(self, name: str, source: str, target: str) -> bool:
        """One rename. False if there was no such file."""
        try:
            self._disk.rename(self._at(source, name), self._at(target, name))
        except FileNotFoundError:
            if not self.has(source, name):
                return False
            self.prepare()  # it was the target's directory that somebody had removed
            self._disk.rename(self._at(source, name), self._at(target, name))
        return True

    def rename(self, state: str, name: str, to: str) -> bool:
        """Give a file of a state another name there. False where it is gone, or that name is taken."""
        if self.has(state, to):
            return False
        try:
            self._disk.rename(self._at(state, name), self._at(state, to))
        except FileNotFoundError:
            return False
        return True

    def has(self, state: str, name: str) -> bool:
        return self._disk.access(self._at(state, name), os.F_OK)

    def unlink(self, state: str, name: str) -> None:
        """Remove it if it is there."""
        with suppress(FileNotFoundError):
            self._disk.unlink(self._at(state, name))

    def note(self, state: str, name: str, text: str) -> None:
        """Write a remark for a person; where the disk has no room for it, there is none."""
        try:
            fd = self._disk.open(self._at(state, name), _WRITE, 0o600)
        except OSError:
            return
        with suppress(OSError):
            self._disk.write(fd, text.encode("utf-8", "replace") + b"\n")
        self._disk.close(fd)

    def mtime(self, state: str = "", name: str = "") -> int | None:
        """Nanoseconds, None if there is no such file; without a name, of the queue's own directory."""
        try:
            return self._disk.stat(self._at(state, name) if name else self._base, follow_symlinks=not name).st_mtime_ns
        except FileNotFoundError:
            return None

    def set_mtime(self, at_ns: int, state: str = "", name: str = "") -> bool:
        """False if there is no such file."""
        try:
            self._disk.utime(self._at(state, name) if name else self._base, ns=(at_ns, at_ns))
        except FileNotFoundError:
            return False
        return True

    def _at(self, state: str, name: str) -> str:
        return f"{self._base}/{state}/{name}"

    def _sync(self, fd: int) -> None:
        self._disk.fsync(fd)  # not fdatasync: were the content on the disk by itself already, that would not wait for the rename
        if self._sync_directory is None:
            self._sync_directory = not orders_renames(self._path)
        if self._sync_directory:
            directory = self._disk.open(f"{self._base}/new", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self._disk.fsync(directory)
            finally:
                self._disk.close(directory)

    def _make(self, path: Path) -> os.stat_result:
        try:
            self._disk.mkdir(str(path), 0o700)
        except FileNotFoundError:
            self._make(path.parent)
            return self._make(path)
        except FileExistsError:  # or another process made it first
            pass
        found = self._disk.stat(str(path))
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if found.st_uid != os.geteuid():
            raise Misconfigured(f"{path} belongs to another user (uid {found.st_uid})", remedy=f"chown -R $USER {path}")
        if stat.S_IMODE(found.st_mode) != 0o700:
            self._disk.chmod(str(path), 0o700)
        return found
