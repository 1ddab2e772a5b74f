"""What a jail is furnished with: the session's own directories, what was lent to it, the Python that runs us, and small files of ours.

Everything is opened here, link by link refused, and handed on as descriptors. It does not know bubblewrap's arguments, nor what runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import bubbles
from bubbles.errors import Misconfigured, Refused
from bubbles.lending import misplaced, refused, unbindable, ways
from bubbles.sandboxes.inside import seccomp
from bubbles.sandboxes.inside.jail import ETC, FILES, HOSTNAME, TOP, USER, Mount
from bubbles.workspace import Grant
from bubbles.workspace.beneath import O_PATH, open_beneath
from bubbles.workspace.grant import apart

RULES = "/etc/bubbles/limits.sh"  # read by the jail's bash before the command
DOORWAY = "/etc/bubbles/doorway.py"
WRITABLE, READABLE, NOTES = ("work", "data"), ("skills",), ("SOUL.md", "MEMORY.md")
_DIRECTORY = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class Furniture(contextlib.ExitStack):
    """The descriptors of one jail; leaving it closes them."""

    def __init__(self) -> None:
        super().__init__()
        self.fds: list[int] = []
        self.mounts: list[Mount] = []
        self.others: dict[str, str] = {}  # other spellings of what is mounted

    def hold(self, fd: int) -> int:
        """Keep a descriptor until the end, and have the jail's builder inherit it."""
        self.callback(os.close, fd)
        self.fds.append(fd)
        return fd

    def text(self, data: bytes) -> int:
        """A descriptor that `data` can be read from once."""
        fd = self.hold(os.memfd_create("text", os.MFD_CLOEXEC))
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def blank(self) -> int:
        """A descriptor that something can be written to, and read by os.pread."""
        return self.hold(os.memfd_create("blank", os.MFD_CLOEXEC))

    # -- what is mounted ---------------------------------------------------------------------------

    def session(self, directory: Path, home: Path) -> None:
        """The session's children at their places, and its HOME. Raises Refused where one of them is a link, or no directory."""
        self._link(Path(os.path.realpath(directory)), directory)
        root = _opened(directory)
        try:
            for name in (*WRITABLE, *READABLE):
                self._mount(directory / name, self._child(root, name, directory), name in WRITABLE)
            for name in NOTES:
                fd = self._note(root, name)
                if fd is not None:
                    self._mount(directory / name, fd, False)
        finally:
            os.close(root)
        if not os.path.lexists(home):
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._mount(home, _opened(home), True)

    def lend(self, grants: Sequence[Grant], home: Path) -> None:
        """What the owner lent, at its real place; a directory within one that is lent already is seen there. `home`: the root of this Bubbles.

        What is gone by now, or may not be lent any more, is not there: as for the file tools.
        """
        real = {}
        for grant in apart(grants):
            with contextlib.suppress(Misconfigured):
                real[grant.check(home)] = grant
        for path in sorted(real):
            if not self.shows(path, written=real[path].mode == "rw"):
                self._mount(path, _opened(path), real[path].mode == "rw")
            self._link(Path(os.path.abspath(os.path.expanduser(real[path].path))), path)

    def bind(self, source: Path, at: Path, home: Path, *, writable: bool) -> None:
        """One directory or file of the machine. Raises Misconfigured where it is not there, may not be shown, or would lie where a jail can write.

        What was opened is judged, and not what the settings were judged by: a link may lead elsewhere by now. `home`: the root of this Bubbles.
        """
        if self.shows(at) or any(Path(mount.at).is_relative_to(at) for mount in self.mounts):
            why = f"{at} cannot be bound in a jail: it lies in what is there already, or holds it"
            raise Misconfigured(why, remedy="choose another place for it")
        written = [Path(mount.at) for mount in self.mounts if mount.writable]
        if any(way.is_relative_to(place) for way in ways(source) for place in written):
            raise Misconfigured(f"{source} cannot be bound in a jail: commands can write where it lies", remedy="mend tools.sandbox.binds")
        try:
            fd = os.open(source, O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise Misconfigured(f"{source} cannot be bound in a jail: {error.strerror}", remedy="mend tools.sandbox.binds") from error
        self._mount(at, fd, writable)
        real = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if why := unbindable(real, "rw" if writable else "ro", home) or misplaced(at, moved=False, home=home, writable=written):
            raise Misconfigured(f"{source} cannot be bound in a jail: {why}", remedy="mend tools.sandbox.binds")

    def python(self, home: Path) -> None:
        """The interpreter that runs us and our own code, read-only, where they lie. Whatever holds the home, or much else, is left out."""
        for path, other in _interpreter(home):
            if not any(mount.at == path or mount.at.startswith(f"{path}/") or path.startswith(f"{mount.at}/") for mount in self.mounts):
                self.mounts.append(Mount(path, self.hold(_opened(path)), False))
            if other != path:
                self.others[other] = path

    def files(self) -> dict[str, int]:
        """Descriptors of the machine's own files that every jail has a copy of, by their paths."""
        found = {}
        for name in FILES:
            with contextlib.suppress(OSError):
                found[f"/etc/{name}"] = self.hold(os.open(f"/etc/{name}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        return found

    def shows(self, path: Path, *, written: bool = False) -> bool:
        """Whether `path` lies in something that is mounted already; with `written`, in something that can be written."""
        return any(path.is_relative_to(mount.at) for mount in self.mounts if mount.writable or not written)

    @property
    def links(self) -> dict[str, str]:
        """The other spellings that can be links: none in or around what is mounted, for there bubblewrap would make them outside."""
        taken = [*(mount.at for mount in self.mounts), *self.others]
        return {path: at for path, at in self.others.items() if not self.shows(Path(path)) and not any(_nested(path, other) for other in taken)}

    def spelt(self, path: Path) -> Path:
        """`path`, free of links, as the jail spells it."""
        place = next((other for other in self.others if path.is_relative_to(other)), None)
        return Path(self.others[place]) / path.relative_to(place) if place else path

    def _link(self, other: Path, at: Path) -> None:
        if other != at:
            self.others[str(other)] = str(at)

    def _mount(self, at: Path, fd: int, writable: bool) -> None:
        self.mounts.append(Mount(str(at), self.hold(fd), writable))

    def _child(self, root: int, name: str, directory: Path) -> int:
        for _ in range(2):
            try:
                return open_beneath(root, name, _DIRECTORY, links=False)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(directory / name, 0o700)
            except OSError as error:
                raise _odd(directory / name) from error
        raise _odd(directory / name)

    def _note(self, root: int, name: str) -> int | None:
        try:
            fd = open_beneath(root, name, _FILE, links=False)
        except OSError:
            return None
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        return None


def _nested(one: str, other: str) -> bool:
    """Whether one of two paths lies within the other."""
    return one != other and (one.startswith(f"{other}/") or other.startswith(f"{one}/"))


def _odd(path: Path) -> Refused:
    return Refused(f"the jail was not made: {path} is no directory", remedy=f"look at: ls -la {path.parent}")


def _opened(path: Path | str) -> int:
    try:
        return os.open(path, _DIRECTORY)
    except OSError as error:
        raise Refused(f"the jail was not made: {path}: {error.strerror}", remedy=f"look at: ls -lad {path}") from error


# -- what is the same in every jail --------------------------------------------------------------------


@functools.cache
def _interpreter(home: Path) -> tuple[tuple[str, str], ...]:
    """Where they lie, and how else they are spelt."""
    ours = sorted({(os.path.realpath(path), os.path.abspath(path)) for path in (sys.base_prefix, sys.prefix, Path(bubbles.__file__).parent)})
    return tuple((real, other) for real, other in ours if not Path(real).is_relative_to("/usr") and not refused(Path(real), home))


@functools.cache
def python() -> str:
    """The interpreter itself, as a jail sees it."""
    return os.path.realpath(sys.executable)


@functools.cache
def top() -> Mapping[str, str]:
    """What the names in TOP are on this machine: the target of a link, "" for a directory."""
    found = {name: f"/{name}" for name in TOP if os.path.lexists(f"/{name}")}
    return {name: os.readlink(path) if os.path.islink(path) else "" for name, path in found.items()}


@functools.cache
def etc() -> tuple[str, ...]:
    """Those of ETC that are there."""
    return tuple(name for name in ETC if os.path.exists(f"/etc/{name}"))


@functools.cache
def filter_of(machine: str, debug: bool) -> bytes:
    """The filter of system calls. Raises Refused where none is written for this kind of machine."""
    try:
        return seccomp.program(machine, debug=debug)
    except ValueError as error:
        raise Refused(f"the jail was not made: {error}", remedy="use another sandbox: /config sandbox local_isolated") from error


def identity() -> tuple[int, int]:
    """Who a command seems to be: the owner; for root, an ordinary user."""
    return (os.geteuid(), os.getegid()) if os.geteuid() else (1000, 1000)


@functools.lru_cache(maxsize=64)
def texts(home: str, network: str) -> Mapping[str, bytes]:
    """The small files of a jail by their paths, but for those that a use adds."""
    uid, gid = identity()
    hosts = "files dns" if network == "host" else "files"
    found = {
        "/etc/passwd": f"root:x:0:0::/root:/usr/sbin/nologin\n{USER}:x:{uid}:{gid}::{home}:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
        "/etc/group": f"root:x:0:\n{USER}:x:{gid}:\nnogroup:x:65534:\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOSTNAME}\n::1 localhost\n",
        "/etc/nsswitch.conf": f"passwd: files\ngroup: files\nhosts: {hosts}\n",
    }
    return {path: text.encode("utf-8", "surrogateescape") for path, text in found.items()}
