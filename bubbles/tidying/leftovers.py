"""What processes left that are gone: loans of closed terminals, sockets that nobody listens at; and turns that were long decided on,
background jobs that ended days ago.

It does not know whose process it was: the kernel says whether somebody holds a lock, or answers at a socket.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from bubbles.errors import DataError
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.tidying.ages import JOB_S, LITTER_S, RELEASED_S, Clock
from bubbles.tidying.walk import Left, Old, directories, entered, files, tree

_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_JOB = re.compile(r"j([0-9]{1,9})\.json")
_JOB_STRAY = re.compile(r"j([0-9]{1,9})\.(?:out|json\.tmp)")
_NOBODY = (errno.ECONNREFUSED, errno.ENOENT)


def old_turns(root: int, clock: Clock) -> Iterator[Old]:
    """Journals of turns that a person has released or dropped. Those that are held stay until somebody decides."""
    with entered(root, "turns", "released") as fd:
        for file, found in files(fd) if fd is not None else ():
            if clock.is_old(found.st_mtime, RELEASED_S):
                yield Old("released", f"turns/released/{file}", fd, file, found)  # type: ignore[arg-type]


def old_jobs(root: int, clock: Clock) -> Iterator[Old]:
    """Background jobs that have ended, and what they printed. One whose end is not told yet stays, and so does each session's last: the next
    one's number follows it."""
    for key in directories(root, "jobs"):
        with entered(root, "jobs", key) as fd:
            if fd is None:
                continue
            found = dict(files(fd))
            numbers = {int(match[1]): match[0] for name in found if (match := _JOB.fullmatch(name))}
            for number, record in sorted(numbers.items()):
                if not clock.is_old(found[record].st_mtime, JOB_S) or not _is_over(fd, record):
                    continue
                for name in (f"j{number}.out", *([record] if number != max(numbers) else ())):
                    if name in found:
                        yield Old("job", f"jobs/{key}/{name}", fd, name, found[name])
            for name, info in found.items():
                if (stray := _JOB_STRAY.fullmatch(name)) and int(stray[1]) not in numbers and clock.is_old(info.st_mtime, JOB_S):
                    yield Old("job", f"jobs/{key}/{name}", fd, name, info)


def _is_over(at: int, record: str) -> bool:
    """Whether a job's record says that its end was told. What cannot be read stays."""
    try:
        fd = os.open(record, _LOOK, dir_fd=at)
        with os.fdopen(fd, "rb") as file:
            return from_line(file.read()).get("told") is True
    except (OSError, DataError):
        return False


def old_loans(root: int, clock: Clock, left: Left) -> Iterator[Old]:
    """What terminals lent that were killed."""
    with entered(root, "run") as fd:
        if fd is not None:
            yield from tree(fd, "lent", "run/lent", _Loans(root, clock), left)


class _Loans:
    def __init__(self, root: int, clock: Clock) -> None:
        self._root, self._clock = root, clock

    def file(self, names: tuple[str, ...], info: Callable[[], os.stat_result]) -> str:
        return "loan" if self._clock.is_old(info().st_mtime, LITTER_S) and not self._is_held(names) else ""

    def directory(self, names: tuple[str, ...], info: os.stat_result) -> str:
        return "loan" if names and self._clock.is_old(info.st_mtime, LITTER_S) else ""

    def matters(self, names: tuple[str, ...]) -> bool:
        return False

    def _is_held(self, names: tuple[str, ...]) -> bool:
        with entered(self._root, "run", "lent", *names[:-1]) as directory:
            if directory is None:
                return True
            try:
                fd = os.open(names[-1], _LOOK, dir_fd=directory)
            except OSError:
                return True
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except OSError:
                return True
            finally:
                os.close(fd)


def places(home: Home) -> dict[Path, re.Pattern[str]]:
    """Where homes have their sockets, and how the directories are named there (paths.py)."""
    found = {Path("/tmp"): re.compile(rf"bubbles-{os.geteuid()}-[0-9a-f]{{8}}")}
    if home.sockets.parent not in found:
        found[home.sockets.parent] = re.compile(r"bubbles(-[0-9a-f]{8})?")
    return found


def old_sockets(home: Home, clock: Clock, left: Left, where: dict[Path, re.Pattern[str]]) -> Iterator[Old]:
    """Sockets that nobody listens at, of this home and of others, and the directories of homes that are gone, once they are empty."""
    for parent, names in where.items():
        try:
            fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            for name in sorted(name for name in os.listdir(fd) if names.fullmatch(name) and _is_ours(fd, name)):
                yield from tree(fd, name, str(parent / name), _Sockets(parent / name, home, clock), left)
        finally:
            os.close(fd)


def _is_ours(fd: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


class _Sockets:
    def __init__(self, path: Path, home: Home, clock: Clock) -> None:
        self._path, self._is_own, self._clock = path, path == home.sockets, clock

    def file(self, names: tuple[str, ...], info: Callable[[], os.stat_result]) -> str:
        found = info()
        is_old = stat.S_ISSOCK(found.st_mode) and self._clock.is_old(found.st_mtime, LITTER_S)
        return "socket" if is_old and _is_deserted(str(self._path.joinpath(*names))) else ""

    def directory(self, names: tuple[str, ...], info: os.stat_result) -> str:
        return "socket" if not names and not self._is_own and self._clock.is_old(info.st_mtime, LITTER_S) else ""

    def matters(self, names: tuple[str, ...]) -> bool:
        return False


def _is_deserted(path: str) -> bool:
    """Whether nobody listens at a socket, neither for connections nor for datagrams."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
                return False
            except OSError as error:
                if error.errno in _NOBODY:
                    return True
                if error.errno != errno.EPROTOTYPE:
                    return False
    return False
