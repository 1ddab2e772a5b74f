"""Directories that an open terminal lends to a session's tools: `bubbles agent --here`.

A loan is a file that its lender holds locked: it ends with the process, however that ends, and nobody has to take it
back. It stands beside the session's settings and never in them; several may lend one directory, each for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from bubbles import regular
from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.workspace.grant import Grant


@contextlib.contextmanager
def lend(home: Home, key: str, grant: Grant) -> Iterator[None]:
    """Lend to the session `key` until the block, or this process, ends. Raises Misconfigured where it may not be lent, TryAgain on a full disk."""
    body = json.dumps({"path": str(grant.check(home.root)), "mode": grant.mode})
    directory = _loans(home, key)
    path = directory / f"{os.getpid()}-{secrets.token_hex(4)}"
    begun = path.with_name(f".{path.name}")
    fd = -1
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _clear(directory)
        fd = os.open(begun, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, body.encode())
        begun.rename(path)  # whoever sees it sees it locked
    except OSError as error:
        begun.unlink(missing_ok=True)
        if fd >= 0:
            os.close(fd)
        raise TryAgain(f"cannot write {path}: {error.strerror}", remedy=f"look at: df -h {home.run}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def lent(home: Home, key: str) -> list[Grant]:
    """What is lent to the session `key` now, each directory once: writable where one of its lenders says so."""
    found: dict[Path, Grant] = {}
    for path in _files(_loans_at(home, key)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            grant = _read(path)
            if grant is not None and (grant.mode == "rw" or grant.path not in found):
                found[grant.path] = grant
    return list(found.values())


def together(own: Iterable[Grant], loans: Iterable[Grant]) -> list[Grant]:
    """What a session has with what is lent to it: a loan takes nothing from a grant, and may add writing to it."""
    found = {_real(grant): grant for grant in own}
    for loan in loans:
        if loan.mode == "rw" or _real(loan) not in found:
            found[_real(loan)] = loan
    return list(found.values())


def _real(grant: Grant) -> str:
    return os.path.realpath(os.path.expanduser(grant.path))


def _loans(home: Home, key: str) -> Path:
    return Path(_loans_at(home, key))


def _loans_at(home: Home, key: str) -> str:
    return os.path.join(home.root, "run", "lent", key)


def _files(directory: str | Path) -> list[Path]:
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Path(directory, name) for name in sorted(names) if not name.startswith(".")]


def _read(path: Path) -> Grant | None:
    """None where its lender is gone."""
    fd = regular.opened(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(fd, "rb") as file:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            body = json.loads(file.read())
            return Grant(Path(body["path"]), str(body["mode"]))
    return None


def _clear(directory: Path) -> None:
    """Remove what killed terminals left."""
    for path in _files(directory):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if _read(path) is None:
                path.unlink()
