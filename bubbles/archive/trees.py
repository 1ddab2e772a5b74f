"""What is copied without haste: all that is no home of a message on its way. Of a session's files, later what changed since.

It does not know when a session stood still; who asks for `again` does. Sockets, pipes and devices are left out, links are kept as links,
and none is followed but the home's own topmost ones: there a person may have moved something to another disk.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bubbles.archive.form import DEEPEST, is_backup
from bubbles.archive.packing import Pack, opened

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TICK_NS = 100_000_000  # a file that changed so shortly before it was read may change again and look the same
_LITTER = re.compile(r"\.bubbles-[0-9a-f]{16}\.tmp|\.(config\.json|[A-Z]+\.md)\.\d+|config\.json\.tmp|jobs\.json\.tmp|chats\.json\.tmp")
SESSIONS = ("sessions", "session_homes")  # a directory each for a session
HISTORY = "session.jsonl"

Skip = Callable[[str], bool]  # told of a path in the home


class Trees:
    """The files of the home at `root`, on their way into a pack. `skip` says what is somebody else's to copy, or nobody's."""

    def __init__(self, root: Path, pack: Pack, skip: Skip, own: tuple[int, int] | None = None) -> None:
        self._root, self._pack, self._skip, self._own = root, pack, skip, own
        self._seen: dict[str, dict[str, int]] = {}  # by session: each path, and a number that changes with the file; 0: copy it again
        self._gone: set[str] = set()
        self.backups: list[str] = []  # of the home, that lie in it: each would hold all that is in the ones before, and keys that this one may not

    def all(self) -> None:
        """Everything, once."""
        with self._entered("") as fd:
            for name in sorted(os.listdir(fd) if fd >= 0 else ()):
                if name in SESSIONS and not self._skip(name):
                    self._sessions(name)
                else:
                    self._entry(fd, name, name, {}, follow=True)

    def again(self, session: str) -> None:
        """What of a session has changed, has come or has gone since it was last copied."""
        before = self._seen.get(session, {})
        now: dict[str, int] = {}
        for top in (top for top in SESSIONS if not self._skip(top)):
            with self._entered(top) as fd:
                if fd >= 0:
                    self._entry(fd, session, f"{top}/{session}", now, before)
        self._gone |= before.keys() - now.keys()
        self._gone -= now.keys()
        self._seen[session] = now

    @property
    def gone(self) -> list[str]:
        """What was copied and was not there any more when its session was copied again."""
        return sorted(self._gone)

    def _sessions(self, top: str) -> None:
        with self._entered(top) as fd:
            if fd < 0:
                return
            self._pack.directory(top, os.fstat(fd))
            for name in sorted(os.listdir(fd)):
                self._entry(fd, name, f"{top}/{name}", self._seen.setdefault(name, {}))

    def _entry(self, at: int, name: str, path: str, now: dict[str, int], before: dict[str, int] | None = None, *, follow: bool = False) -> None:
        if self._skip(path) or (path.count("/") < 4 and _LITTER.fullmatch(name)):
            return
        try:
            info = os.stat(name, dir_fd=at, follow_symlinks=follow)
            if stat.S_ISDIR(info.st_mode):
                self._directory(at, name, path, now, before, follow)
            elif (info.st_dev, info.st_ino) == self._own:
                return
            elif follow and stat.S_ISREG(info.st_mode) and is_backup(self._root / name):
                self.backups.append(path)
            elif before and (was := before.get(path)) and was == _number(info):
                now[path] = was
            elif stat.S_ISLNK(info.st_mode):
                self._pack.link(path, os.readlink(name, dir_fd=at), info)
                now[path] = _number(info)
            elif stat.S_ISREG(info.st_mode):
                now[path] = self._file(at, os.path.realpath(self._root / name) if follow else name, path)
        except FileNotFoundError:  # it went while we looked
            pass
        except OSError as error:
            self._pack.end.unread[path] = error.strerror or str(error)
            self._gone.add(path)

    def _directory(self, at: int, name: str, path: str, now: dict[str, int], before: dict[str, int] | None, follow: bool) -> None:
        if path.count("/") >= DEEPEST:
            self._pack.end.unread[path] = "it lies too deep"
            return
        fd = os.open(name, _DIRECTORY | (0 if follow else os.O_NOFOLLOW), dir_fd=at)
        try:
            now[path] = 1
            if before is None or path not in before:
                self._pack.directory(path, os.fstat(fd))
            for each in sorted(os.listdir(fd)):
                self._entry(fd, each, f"{path}/{each}", now, before)
        finally:
            os.close(fd)

    def _file(self, at: int, name: str, path: str) -> int:
        found = opened(at, name)
        if found is None:
            return 0
        fd, info = found
        try:
            self._pack.file(path, fd, info.st_size, info)
            after = os.fstat(fd)
        finally:
            os.close(fd)
        is_settled = time.time_ns() - max(info.st_mtime_ns, info.st_ctime_ns) > _TICK_NS
        return _number(info) if is_settled and _number(info) == _number(after) else 0

    @contextmanager
    def _entered(self, top: str) -> Iterator[int]:
        """One of the home's topmost directories, open; -1 where there is none."""
        try:
            fd = os.open(self._root / top, _DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            yield -1
            return
        except PermissionError as error:
            if not top:
                raise
            self._pack.end.unread[top] = error.strerror or str(error)
            yield -1
            return
        try:
            yield fd
        finally:
            os.close(fd)


def _number(info: os.stat_result) -> int:
    return hash((info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_mode)) | 1
