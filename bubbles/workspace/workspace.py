"""A session's tree and the workspaces lent to it: what is read, written and listed there, and what is refused.

Every operation starts at a descriptor of a root and cannot leave it; policy is decided on where a path leads, not on how it is
spelt. It does not know tools, shells or turns. All methods are synchronous, and several threads may call them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bubbles.errors import Misconfigured, OutsideWorkspace, Refused, ToolError
from bubbles.workspace import beneath
from bubbles.workspace.editing import exchange
from bubbles.workspace.faults import told
from bubbles.workspace.grant import Grant, apart
from bubbles.workspace.listing import Entry, Listing, listing
from bubbles.workspace.names import is_litter, shown, taken
from bubbles.workspace.replacing import replace
from bubbles.workspace.root import Root

READ_MOST = 16 * 1024 * 1024  # bytes of one read, and of a file that is edited
WRITE_MOST = 16 * 1024 * 1024
MEDIA_MOST = 20 * 1024 * 1024
DEPTH_MOST = 8
READABLE = ("MEMORY.md", "SOUL.md", "HEARTBEATS.md")  # of what lies in a session's directory itself; all else there is neither read nor written
TREES = ("work", "data", "skills")
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a")


@dataclass(frozen=True, slots=True)
class WritePolicy:
    """Which of a session's own files may be written beside work/ and data/, which always may."""

    memory: bool = True
    soul: bool = False
    skills: bool = False
    heartbeats: bool = False  # true only in the owner's own turn

    def allows(self, names: Sequence[str]) -> bool:
        """Whether the file that `names` lead to from the session's directory, free of links and `..`, may be written."""
        match list(names):
            case ["work" | "data", _, *_]:
                return True
            case ["skills", _, *_]:
                return self.skills
            case [name]:
                return {"MEMORY.md": self.memory, "SOUL.md": self.soul, "HEARTBEATS.md": self.heartbeats}.get(name, False)
        return False

    def __str__(self) -> str:
        also = {"../MEMORY.md": self.memory, "../SOUL.md": self.soul, "../skills/": self.skills, "../HEARTBEATS.md": self.heartbeats}
        return ", ".join(["work/ (where relative paths start)", "../data/", *(name for name, given in also.items() if given)])


@dataclass(frozen=True, slots=True)
class Page:
    """A stretch of a file: `data` from byte `offset` on, of `size` bytes in all."""

    data: bytes
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Target:
    """A file that may be written: its open directory, its name there, the bits it shall have, and what lies there now."""

    directory: int
    name: str
    mode: int
    old: os.stat_result | None


class Workspace:
    """The files of one session, as its tools may use them. `refused` says which grants were left out, and why."""

    def __init__(self, roots: Sequence[Root], home: Path, write: WritePolicy, refused: Sequence[str] = ()) -> None:
        self._roots, self._home, self._write = tuple(roots), home, write
        self.refused = tuple(refused)
        self._lock = threading.Lock()
        self._users = 1  # the owner, and each method while it runs

    @classmethod
    def open(cls, session_dir: Path, *, grants: Sequence[Grant] = (), write: WritePolicy | None = None, kernel: bool | None = None) -> Workspace:
        """The workspace of the session in `session_dir` (HOME/sessions/KEY); makes its work/ and data/. `kernel=False` does without openat2.

        A grant that may not or cannot be lent is left out: a lost disk must not end a session. Raises OSError where the session's
        directory cannot be opened.
        """
        resolves = beneath.kernel_resolves() if kernel is None else kernel
        home = session_dir.parent.parent
        roots, refused = [Root.of(session_dir, None, resolves)], []
        for name in ("work", "data"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=roots[0].fd)
        alone = apart(grants)
        refused += [f"the workspace {grant.path} is a part of one that may be written" for grant in grants if grant not in alone]
        for grant in alone:
            try:
                roots.append(Root.of(grant.check(home), grant, resolves))
            except Misconfigured as error:
                refused.append(error.text)
            except OSError as error:
                refused.append(f"the workspace {grant.path} cannot be opened: {error.strerror}")
        return cls(roots, home, write or WritePolicy(), refused)

    def close(self) -> None:
        """Let go of the roots, as soon as no method runs any more."""
        self._leave()

    @property
    def allowed(self) -> str:
        """What may be reached, in words for the model."""
        lent = [f"{root.grant.path} ({'read and write' if root.grant.mode == 'rw' else 'read only'})" for root in self._roots if root.grant]
        return ", ".join([f"{self._roots[0].spelt[0]} (relative paths start at its work/)", *lent])

    # -- what tools ask

    def read(self, path: str, offset: int = 0, limit: int = READ_MOST) -> Page:
        """`limit` bytes (at most READ_MOST) from byte `offset` on. Raises ToolError where there is no readable regular file."""
        with self._file(path) as (fd, found):
            return Page(_pread(fd, offset, min(limit, READ_MOST)), offset, found.st_size)

    def open_media(self, path: str) -> bytes:
        """The whole of a picture (PNG, JPEG, GIF, WebP). Raises ToolError for anything else, and above MEDIA_MOST bytes."""
        with self._file(path) as (fd, found):
            head = _pread(fd, 0, 12)
            if not head.startswith(_PICTURES) and not (head[:4] == b"RIFF" and head[8:] == b"WEBP"):
                raise ToolError(f"{shown(path)} is not a PNG, JPEG, GIF or WebP picture")
            _small(path, found, MEDIA_MOST)
            return _pread(fd, 0, MEDIA_MOST)

    def copy(self, path: str, into: int, most: int) -> int:
        """Write the whole of a file into an open descriptor; its bytes. Raises ToolError where there is no readable regular file, or it is larger."""
        with self._file(path) as (fd, found):
            _small(path, found, most)
            size = 0
            while piece := os.pread(fd, 1 << 20, size):
                size += len(piece)
                if size > most:  # it grows while it is read
                    raise ToolError(f"{shown(path)} is too large: more than {most} bytes")
                while piece:
                    piece = piece[os.write(into, piece) :]
            return size

    def write(self, path: str, text: str) -> bool:
        """Make the file hold `text` in UTF-8, and its directories where they are missing. Returns whether it is new.

        The content is exchanged whole; a link inside the tree is followed. Raises Refused where it may not be written, ToolError where it cannot.
        """
        data = _encoded(path, text)
        with self._target(path, create=True) as target:
            replace(target.directory, target.name, data, target.mode, target.old)
            return target.old is None

    def edit(self, path: str, old: str, new: str, replace_all: bool = False) -> tuple[int, ...]:
        """Exchange `old` for `new` in a UTF-8 file; returns the lines (from 1) where it stood. Raises ToolError as `exchange` and `write` do."""
        with self._target(path, create=False) as target:
            text, lines = exchange(_text(path, target), old, new, replace_all)
            replace(target.directory, target.name, _encoded(path, text), target.mode, target.old)
            return tuple(lines)

    def list(self, path: str = "", depth: int = 1, most: int = 1000) -> Listing:
        """What lies in a directory, down to `depth` (1: only itself, at most DEPTH_MOST); the nearest of more than `most`. No link is entered."""
        with self._at(path or ".", os.O_RDONLY | os.O_DIRECTORY) as (root, fd, below):
            return listing(root, root.canonical(fd, below), min(max(depth, 1), DEPTH_MOST), most, self._hidden())

    def stat(self, path: str) -> Entry:
        """What `path` leads to. Raises ToolError where there is nothing."""
        with self._at(path, beneath.O_PATH) as (_, fd, _below):
            return Entry.of(path, os.fstat(fd))

    def directory(self, path: str = "") -> Path:
        """The absolute path, free of links, of a directory: where a shell may be started. "" is work/."""
        with self._at(path or ".", os.O_RDONLY | os.O_DIRECTORY) as (root, fd, below):
            return Path(root.spelt[-1], *root.canonical(fd, below))

    # -- how they are answered

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                raise ToolError("this workspace is closed")
            self._users += 1
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for root in self._roots:
                    os.close(root.fd)

    def _locate(self, path: str) -> tuple[Root, str]:
        """The root that `path` names, and the rest of it."""
        taken(path)
        if not path.startswith(("/", "~/")) and path != "~":
            return self._roots[0], f"work/{path}"
        fits = [(spelt, root) for root in self._roots for spelt in root.spelt if f"{path}/".startswith(f"{spelt}/")]
        if not fits:
            raise OutsideWorkspace(f"{shown(path)} is outside the workspace", remedy=f"allowed: {self.allowed}")
        spelt, root = max(fits, key=lambda fit: len(fit[0]))
        return root, path[len(spelt) :].lstrip("/") or "."

    @contextlib.contextmanager
    def _at(self, path: str, flags: int) -> Iterator[tuple[Root, int, str]]:
        """The root of `path`, a descriptor of what it leads to, and the rest of the path below the root."""
        with self._using(), told(path, self.allowed):
            root, below = self._locate(path)
            fd = root.open(below, flags)
            try:
                yield root, fd, below
            finally:
                os.close(fd)

    @contextlib.contextmanager
    def _file(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        with self._at(path, os.O_RDONLY) as (root, fd, below):
            found = os.fstat(fd)
            self._ordinary(path, found)
            if root.grant is None and not _is_readable(root.last(fd, below)):
                raise _own(path)  # by its name too: between the opening and the look at the others it may have been replaced
            yield fd, found

    @contextlib.contextmanager
    def _target(self, path: str, *, create: bool) -> Iterator[_Target]:
        with self._using(), told(path, self.allowed):
            root, below = self._locate(path)
            names = root.place(below)
            self._writable(path, root, names)
            directory = root.descend(names[:-1], create=create)
            try:
                yield self._found(path, directory, names[-1], root.mode & 0o666, create)
            finally:
                os.close(directory)

    def _found(self, path: str, directory: int, name: str, mode: int, create: bool) -> _Target:
        try:
            old = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            if not create:
                raise
            return _Target(directory, name, mode, None)
        self._ordinary(path, old)
        if not old.st_mode & 0o200:
            raise Refused(f"{shown(path)} is marked read-only (mode {stat.S_IMODE(old.st_mode):04o})")
        return _Target(directory, name, old.st_mode, old)

    def _writable(self, path: str, root: Root, names: Sequence[str]) -> None:
        if not names or (root.grant is None and list(names) in (["work"], ["data"], ["skills"])):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if any(map(is_litter, names)):
            raise Refused(f"{shown(path)} has a name that is kept for files being written")
        if root.grant is None and not self._write.allows(names):
            raise Refused(f"{shown(path)} may not be written", remedy=f"writable: {self._write}")
        if root.grant is not None and root.grant.mode != "rw":
            raise Refused(f"the workspace {root.grant.path} is lent read-only", remedy="ask the owner to lend it with mode rw")

    def _ordinary(self, path: str, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(found.st_mode):
            raise ToolError(f"{shown(path)} is not a regular file")
        if (found.st_dev, found.st_ino) in self._hidden():
            raise _own(path)

    def _hidden(self) -> frozenset[tuple[int, int]]:
        """(dev, ino) of our own files as they lie now, in the session and at the top of the home: a hard link or another spelling does not help."""
        beside, own = _files_at(self._roots[0].descend([])), {}
        with contextlib.suppress(OSError):
            own = _files_at(os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        readable = [beside.pop(name) for name in READABLE if name in beside]
        return frozenset(_ids([*own.values(), *beside.values()]) - _ids(readable))


def _files_at(fd: int) -> dict[str, os.stat_result]:
    """What lies in the open directory and is none itself, by its name; closes it. What is half written is left out."""
    found = {}
    try:
        for name in itertools.filterfalse(is_litter, os.listdir(fd)):
            with contextlib.suppress(OSError):
                found[name] = os.stat(name, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)
    return {name: one for name, one in found.items() if not stat.S_ISDIR(one.st_mode)}


def _ids(found: Iterable[os.stat_result]) -> set[tuple[int, int]]:
    return {(one.st_dev, one.st_ino) for one in found}


def _is_readable(names: Sequence[str]) -> bool:
    """Whether what `names` lead to from the session's directory may be read, if it is a file."""
    return names[0] in (READABLE if len(names) == 1 else TREES) if names else False


def _own(path: str) -> Refused:
    return Refused(f"{shown(path)} is one of Bubbles' own files, which tools neither read nor write")


def _small(path: str, found: os.stat_result, most: int) -> None:
    if found.st_size > most:
        raise ToolError(f"{shown(path)} is too large: {found.st_size} bytes, at most {most}", remedy="use the shell")


def _encoded(path: str, text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    if len(data) > WRITE_MOST:
        raise ToolError(f"{shown(path)} was not written: {len(data)} bytes, at most {WRITE_MOST}", remedy="write it in parts, by the shell")
    return data


def _text(path: str, target: _Target) -> str:
    fd = os.open(target.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=target.directory)
    try:
        found = os.fstat(fd)
        if target.old is None or not os.path.samestat(found, target.old):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        _small(path, found, READ_MOST)
        return _pread(fd, 0, READ_MOST).decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{shown(path)} is not UTF-8 text (at byte {error.start}); it was not changed", remedy="use the shell") from error
    finally:
        os.close(fd)


def _pread(fd: int, offset: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (part := os.pread(fd, min(limit, 1 << 20), offset)):
        parts.append(part)
        offset, limit = offset + len(part), limit - len(part)
    return b"".join(parts)
