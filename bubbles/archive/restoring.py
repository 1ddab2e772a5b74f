"""A backup put in place as a home: whole or not at all, beside where it is to be and then renamed.

What lies beside is locked as long as its maker lives, so the next one knows what a killed one left. It does not know what a file in
a home means: `settle` is told when all of them are there, and has the last word before the name is.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bubbles.archive.form import End, Head, Stream
from bubbles.archive.unpacking import Member, Unpack
from bubbles.bus.lock import is_running
from bubbles.errors import DataError, Misconfigured, TryAgain, Usage
from bubbles.paths import Home
from bubbles.spool.disk import named

ROOM = 64 << 20  # bytes of a disk that are left alone
_INODES = 1000
_LOOK = 256  # members between two looks at how much room there is
_MADE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Told = Callable[[str, int], object]


@dataclass(slots=True)
class Restored:
    """What was put in place. `links`: those that were left out because they lead out of the home."""

    head: Head
    end: End
    links: list[str] = field(default_factory=list)


class Runs(TryAgain):
    """Daemons of this home run."""

    def __init__(self, home: Home, names: list[str]) -> None:
        remedy = "systemctl --user stop bubbles.target, or end bubbles gateway, or wait: what a terminal started ends by itself"
        super().__init__(f"{', '.join(names)} of {home.root} {'runs' if len(names) == 1 else 'run'}", remedy=remedy)


def refuse(home: Home) -> None:
    """Raises Usage where something is there that would be overwritten, Runs where a daemon of this home runs."""
    if running := sorted({*_running(home)}):
        raise Runs(home, running)
    try:
        is_empty = not os.listdir(home.root)
    except FileNotFoundError:
        is_empty = True
    except NotADirectoryError:
        is_empty = False
    if not is_empty:
        moved = f"{home.root}.{time.strftime('%Y-%m-%d')}"
        raise Usage(f"{home.root} is not empty, and nothing is overwritten", remedy=f"mv {home.root} {moved}, or BUBBLES_HOME=OTHER bubbles restore")


def _running(home: Home) -> Iterator[str]:
    """The daemons that hold a lock in it; else those that answer where its doors are: their home may have been moved away under them."""
    with suppress(OSError):
        locked = [path.stem for path in home.run.glob("*.lock") if is_running(home, path.stem) is not None]
        yield from (name.removesuffix(".idle") for name in locked)  # one that a terminal started holds two
        if locked:
            return
    with suppress(OSError):
        for path in home.sockets.glob("*.sock"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, suppress(OSError):
                probe.connect(str(path))
                yield "agentd" if path.stem == "feed" else path.stem


def restore(
    home: Home,
    file: Stream,
    *,
    told: Told = lambda path, size: None,
    links: bool = False,
    settle: Callable[[Home, Head], object] = lambda home, head: None,
) -> Restored:
    """Make `home` what a backup holds. `links`: those that lead out of it, too.

    Raises Usage, TryAgain (see `refuse`; no room), Misconfigured (the place cannot be used) or DataError (it is no backup, cut short, or
    hostile); then nothing has changed.
    """
    refuse(home)
    target = Path(os.path.realpath(home.root))
    try:
        with _stage(target) as stage:
            unpack = Unpack(file)
            restored = _Placing(stage, told, links).all(unpack)
            settle(Home(stage), unpack.head)
            _sync(stage)
            refuse(home)
            _rename(stage, target)
            return restored
    except OSError as error:
        raise named(error, target.parent) or error from error


@contextmanager
def _stage(target: Path) -> Iterator[Path]:
    """A directory beside `target` that goes with us, unless it was renamed."""
    prefix = f".{target.name}.restoring-"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in target.parent.glob(f"{prefix}*"):
        _sweep(path)
    stage = target.with_name(prefix + secrets.token_hex(4))
    stage.mkdir(mode=0o700)
    fd = os.open(stage, _DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        os.close(fd)


def _sweep(path: Path) -> None:
    """Remove what a killed restore left."""
    with suppress(OSError):
        fd = os.open(path, _DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(fd)


def _sync(path: Path) -> None:
    """Have all of a disk's files on it: one call, for however many there are."""
    fd = os.open(path, _DIRECTORY)
    try:
        if ctypes.CDLL(None).syncfs(fd) != 0:
            os.sync()
    except AttributeError:  # no Linux
        os.sync()
    finally:
        os.close(fd)


def _rename(stage: Path, target: Path) -> None:
    try:
        os.rename(stage, target)  # in the place of an empty directory, too, and of no other
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise Usage(f"{target} came to be meanwhile, and nothing is overwritten", remedy="look at what made it") from error
        if error.errno in (errno.EBUSY, errno.EXDEV):
            raise Misconfigured(f"{target} is where a disk is mounted", remedy=f"BUBBLES_HOME={target}/home bubbles restore") from error
        raise
    with suppress(OSError):
        fd = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


class _Placing:
    """The files of a backup on their way into the directory `stage`, in which nobody else writes."""

    def __init__(self, stage: Path, told: Told, links: bool) -> None:
        self._stage, self._told, self._with_links = stage, told, links
        self._root = -1
        self._links: dict[str, Member] = {}
        self._times: dict[str, int] = {}
        self._count = 0

    def all(self, unpack: Unpack) -> Restored:
        self._root = os.open(self._stage, _DIRECTORY)
        try:
            for member, pieces in unpack.members():
                self._place(member, pieces)
            assert unpack.end is not None
            for path in sorted(unpack.end.removed, key=lambda path: -path.count("/")):
                self._remove(path)
            for path, at_ns in sorted(self._times.items(), key=lambda item: -item[0].count("/")):
                with suppress(FileNotFoundError, NotADirectoryError):
                    os.utime(self._stage / path, ns=(at_ns, at_ns), follow_symlinks=False)
            return Restored(unpack.head, unpack.end, self._link())
        finally:
            os.close(self._root)

    def _place(self, member: Member, pieces: Iterator[bytes]) -> None:
        self._look_at_the_room(member.size)
        self._links.pop(member.path, None)
        if member.kind == "directory":
            with self._entered(member.path.split("/") if member.path else []):
                self._times[member.path] = member.at_ns
        elif member.kind == "link":
            self._remove(member.path)
            self._links[member.path] = member
        else:
            self._file(member, pieces)

    def _file(self, member: Member, pieces: Iterator[bytes]) -> None:
        *parents, name = member.path.split("/")
        with self._entered(parents) as at:
            fd = self._made(at, name, member)
            try:
                for piece in pieces:
                    _write(fd, piece)
                    self._told(member.path, len(piece))
                os.utime(fd, ns=(member.at_ns, member.at_ns))
            finally:
                os.close(fd)

    def _made(self, at: int, name: str, member: Member) -> int:
        mode = 0o700 if member.executable else 0o600
        try:
            return os.open(name, _MADE, mode, dir_fd=at)
        except FileExistsError:  # what stands in a backup twice counts as it stands last
            self._clear(at, name)
            return os.open(name, _MADE, mode, dir_fd=at)

    @contextmanager
    def _entered(self, names: list[str]) -> Iterator[int]:
        """The directory that `names` lead to, open; made where it is missing. No link is there to be followed: they are made last."""
        at = os.dup(self._root)
        try:
            for name in names:
                at = self._step(at, name)
            yield at
        finally:
            os.close(at)

    def _step(self, at: int, name: str) -> int:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=at)
        except (FileNotFoundError, NotADirectoryError):
            self._clear(at, name)
            os.mkdir(name, 0o700, dir_fd=at)
            below = os.open(name, _DIRECTORY, dir_fd=at)
        os.close(at)
        return below

    def _clear(self, at: int, name: str) -> None:
        try:
            os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(name, dir_fd=at)

    def _remove(self, path: str) -> None:
        """What was in the home no more at the end."""
        parts = path.split("/")
        if not path or any(part in ("", ".", "..") for part in parts):
            raise DataError("this backup removes what is not in it", remedy="do not use this file")
        self._links.pop(path, None)
        at = os.dup(self._root)
        try:
            for name in parts[:-1]:
                below = os.open(name, _DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
            self._clear(at, parts[-1])
        except (FileNotFoundError, NotADirectoryError):
            pass
        finally:
            os.close(at)

    def _link(self) -> list[str]:
        """Make the links. Those that were left out."""
        left_out = []
        for path, member in self._links.items():
            if member.leads_out and not self._with_links:
                left_out.append(path)
                continue
            *parents, name = path.split("/")
            with self._entered(parents) as at:
                self._clear(at, name)
                os.symlink(member.target, name, dir_fd=at)
        return left_out

    def _look_at_the_room(self, size: int) -> None:
        self._count += 1
        if size < 1 << 20 and self._count % _LOOK:
            return
        found = os.fstatvfs(self._root)
        if size + ROOM > found.f_bavail * found.f_frsize or (found.f_files and found.f_favail < _INODES):
            raise TryAgain(f"no room on the disk for {self._stage.parent}", remedy=f"make room there: df -h {self._stage.parent}")


def _write(fd: int, piece: bytes) -> None:
    while piece:
        piece = piece[os.write(fd, piece) :]
