"""A JSON file of settings on disk: read whole or refused with line and column, and replaced in one step or not at all.

It does not know what the settings mean. Besides config.json it serves the config.json of a session.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bubbles import regular
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import typed

FAULT = "misconfigured"  # the one key of what a unit is shown in place of a config.json that cannot be used: {"text", "remedy"}
_MOST = 4 << 20  # bytes; nobody writes that by hand
_REMEDY = "mend it there, or move the file away and run: bubbles onboard"


def read(path: Path) -> dict[str, Any]:
    """The JSON object in the file, {} where there is no file. Raises Misconfigured naming line and column where it is none,
    and where it says itself that the file which it stands for could not be used."""
    try:
        data = regular.read(path, _MOST)
    except FileNotFoundError:
        return {}
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise Misconfigured(f"{path} is larger than {_MOST >> 20} MiB", remedy="keep settings in it and nothing else") from error
        raise Misconfigured(f"cannot read {path}: {error.strerror}", remedy=f"chown $USER {typed(path)}; chmod 600 {typed(path)}") from error
    found = parse(data, str(path))
    if isinstance(fault := found.get(FAULT), dict):
        raise Misconfigured(str(fault.get("text")), remedy=str(fault.get("remedy", "")))
    return found


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` is. `where` names it in the error.

    >>> parse(b'{"version": 1}', "config.json")
    {'version': 1}
    """
    try:
        text = data.decode("utf-8-sig")
        found = json.loads(text, object_pairs_hook=_once, parse_float=_finite, parse_constant=_constant)
    except UnicodeDecodeError as error:
        line, column = _position(data[: error.start])
        raise Misconfigured(f"{where}: line {line}, column {column}: not UTF-8", remedy=_REMEDY) from error
    except json.JSONDecodeError as error:
        raise Misconfigured(f"{where}: line {error.lineno}, column {error.colno}: {_said(error.msg)}", remedy=_REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise Misconfigured(f"{where}: {str(error)[:200]}", remedy=_REMEDY) from error
    if not isinstance(found, dict):
        raise Misconfigured(f"{where}: line 1, column 1: not a JSON object", remedy=_REMEDY)
    return found


def _said(message: str) -> str:
    return f"{message[:1].lower()}{message[1:]}"


def _position(before: bytes) -> tuple[int, int]:
    line_start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:  # the reader would take the last and the next writing would drop the first
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text} is too large")
    return value


def _constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON value")


def render(raw: dict[str, Any]) -> bytes:
    """The file's bytes: indented, in the order of the keys, every script readable as it is.

    >>> render({"agents": {"defaults": {"language": "zh"}}}).decode().splitlines()[0]
    '{'
    """
    try:
        return (json.dumps(raw, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8
        return (json.dumps(raw, indent=2, allow_nan=False) + "\n").encode()


def write(path: Path, raw: dict[str, Any]) -> None:
    """Replace the file, mode 0600, following a symbolic link to where it leads. Raises TryAgain where the disk refuses; the old file stands."""
    replace(path, render(raw))


def replace(path: Path, data: bytes) -> None:
    """As `write`, for bytes. Two must not write the same file at once: hold `locked`."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f"{target.name}.tmp")  # one name: what a killed program left, the next one writes over
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_directory(target.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        parent = typed(target.parent)
        raise TryAgain(f"cannot write {target}: {error.strerror}", remedy=f"look at: df -h {parent}; ls -ld {parent}") from error


def sync_directory(path: Path) -> None:
    """Make a rename in `path` outlast a power cut."""
    with contextlib.suppress(OSError):  # some file systems have no such thing, and the file itself is synced
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def tighten(path: Path) -> str:
    """Take everybody else's rights to the file away. The warning to give, "" where there was nothing to do."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if os.name != "posix" or not mode & 0o077:
            return ""
        path.chmod(0o600)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{path} may be read by other users, and its mode cannot be changed ({error.strerror})"
    return f"{path} could be read by other users (mode {mode:04o}); it is 0600 now. Keys in it may be known to them"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while reading, changing and writing. Waits: nobody holds it longer than a write takes."""
    try:
        import fcntl  # here, because a channel on Windows reads settings too
    except ImportError:
        yield
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
