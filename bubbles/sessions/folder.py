"""A session's directory: what is in it, how it comes to be, and what it overrides of the owner's settings.

    sessions/KEY/
    ├─ session.jsonl    history                       ├─ work/     the shell's working directory, kept for ever
    ├─ SOUL.md          persona                       ├─ data/     media and scratch, cleaned after three days
    ├─ MEMORY.md        long-term memory              └─ skills/   abilities, one directory each
    └─ config.json      what differs here from the owner's settings
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import bubbles
from bubbles import config, regular
from bubbles.config import file
from bubbles.errors import Misconfigured
from bubbles.paths import typed

Signature: TypeAlias = tuple[int, int, int, int]
_NOTE_MOST = 64 * 1024  # bytes of SOUL.md and of MEMORY.md that are read
_OWN_MOST = 4 << 20  # bytes of config.json


def templates() -> Path:
    """The directory of templates: in an installed package beside its modules, in a checkout at the top level."""
    package = Path(bubbles.__file__).parent
    inside = package / "templates"
    return inside if inside.is_dir() else package.parent / "templates"


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory of one session. `key` is its name on disk."""

    key: str
    path: Path

    @property
    def history(self) -> Path:
        return self.path / "session.jsonl"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    def exists(self) -> bool:
        return self.path.is_dir()

    def prepare(self) -> None:
        """Make what is missing, from the templates; nothing that is there is touched."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("work", "data", "skills"):
            _directory(self.path / name)
        template = templates() / "session"
        for source in sorted(template.rglob("*")) if template.is_dir() else ():
            target = self.path / source.relative_to(template)
            if source.is_dir():
                _directory(target)
            elif not os.path.lexists(target):
                _copy(source, target)

    def signature(self, name: str) -> Signature | None:
        """What changes when a file is changed or replaced; None where there is none."""
        try:
            found = os.stat(os.path.join(self.path, name), follow_symlinks=False)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def note(self, name: str) -> str:
        """The text of SOUL.md or MEMORY.md, "" where there is none. A link is not followed."""
        return head(self.path / name, _NOTE_MOST).replace("\0", "\ufffd").strip()

    def overrides(self) -> dict[str, Any]:
        """What this session's config.json says. It decides about the sandbox, so one that another than this user wrote, or may have, is not believed.

        Raises Misconfigured there, and where it is not a JSON object; the file stays as it is.
        """
        path = self.config
        try:
            text = regular.trusted(path, _OWN_MOST).decode("utf-8")
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise _unbelieved(path, error) from error
        except UnicodeError as error:
            raise Misconfigured(f"cannot read {path}: {error}", remedy=f"mend or remove {path}") from error
        try:
            found = json.loads(text)
        except ValueError as error:
            raise Misconfigured(f"{path} is not JSON: {error}", remedy=f"mend or remove {path}") from error
        if not isinstance(found, dict):
            raise Misconfigured(f"{path} is not a JSON object", remedy=f"mend or remove {path}")
        return found

    def override(self, key: str, value: Any) -> None:
        """Write one setting into this session's config.json; None takes it out. Raises TryAgain where the disk refuses."""
        found = config.session_file(self.overrides(), str(self.config))
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
        file.write(self.config, found)


def _unbelieved(path: Path, error: OSError) -> Misconfigured:
    if error.errno == errno.EPERM:
        remedy = f"look at what it says, then: chown $USER {typed(path)}; chmod 600 {typed(path)}"
        return Misconfigured(f"{path} is not believed: {error.strerror}", remedy=remedy)
    if error.errno == errno.ELOOP:
        return Misconfigured(f"{path} is a link", remedy=f"put a file of its own there, or: rm {typed(path)}")
    return Misconfigured(f"cannot read {path}: {error.strerror}", remedy=f"mend or remove {path}")


def head(path: Path, most: int) -> str:
    """The first `most` bytes of a regular file as text; "" for anything else, which may be a link, a pipe or a directory."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return os.pread(fd, most, 0).decode("utf-8", "replace") if stat.S_ISREG(os.fstat(fd).st_mode) else ""
    finally:
        os.close(fd)


def _directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:
        raise Misconfigured(f"{path} is no directory", remedy=f"move {path} away") from error


def _copy(source: Path, target: Path) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, beside)
    beside.chmod(0o600)
    beside.replace(target)
