"""What a login leaves: HOME/tokens/NAME.json, mode 0600, read by whoever asks with it and made new by one process at a time.

It does not know any provider's endpoints: how a token is made new is handed in. A new one is on the disk before it is used, for with many
providers the old one ends with it; and whoever waits for it may be cancelled, the renewal is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bubbles import log, regular
from bubbles.config import file
from bubbles.errors import ModelDown, ModelError, NotAuthorized, RateLimited, TryAgain
from bubbles.paths import Home

VERSION = 1
_MOST = 256 << 10  # bytes of a file
_EARLY_S = 300.0  # a token is made new so long before its end, or in the last tenth of its life
_BACK_S = 300.0  # a clock that was set back by more than this says nothing of a token's end
_LOCK_S, _LOOK_S = 60.0, 0.05
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Login:
    """One login. Times are epoch seconds by this machine's clock; `expires_at` 0: the access token does not say.

    `refresh` is what lasts, `access` what requests carry ("": none yet); `account` is for people, `account_id` for the provider, and `api` is
    where the provider wants to be asked ("": at its usual address).
    """

    since: float
    refresh: str = field(repr=False)
    access: str = field(default="", repr=False)
    made_at: float = 0.0
    expires_at: float = 0.0
    account: str = ""
    account_id: str = ""
    plan: str = ""
    api: str = ""

    def is_due(self, now: float) -> bool:
        """Whether a new access token is to be had before the next request."""
        if not self.access or now < self.made_at - _BACK_S:
            return True
        return bool(self.expires_at) and now >= self.expires_at - min(_EARLY_S, (self.expires_at - self.made_at) / 10)

    def is_over(self, now: float) -> bool:
        """Whether its access token is of no use any more."""
        return not self.access or (bool(self.expires_at) and now >= self.expires_at)


Renew = Callable[[Login], Awaitable[Login]]


class Tokens:
    """The login at the provider `name`. `renew` makes an access token new: it raises ModelError."""

    def __init__(self, home: Home, name: str, renew: Renew, now: Callable[[], float] = time.time) -> None:
        self._name, self._renew_at, self._now = name, renew, now
        self.path = path(home, name)
        self._held: tuple[object, Login | None] | None = None  # by what the file looked like
        self._unwritten: Login | None = None  # new, and the disk would not take it
        self._renewing: asyncio.Task[Login] | None = None

    def login(self) -> Login | None:
        """What is on the disk, None where nobody is signed in. Raises NotAuthorized where it cannot be read."""
        look = _look(self.path)
        if self._held is None or self._held[0] != look:
            self._held = (look, read(self.path, self._name) if look else None)
        return self._held[1]

    async def fresh(self) -> Login:
        """A login whose access token is good. Raises NotAuthorized where there is none, and what `renew` raises."""
        login = self.login()
        if login is None:
            raise nobody(self._name)
        if self._unwritten is None and not login.is_due(self._now()):
            return login
        try:
            return await self.renewed(login)
        except RateLimited as error:  # ModelDown among them
            if login.is_over(self._now()):
                raise
            log.event("daemon.warning", f"{self._name}: its token could not be made new yet: {error.text}", priority="warning")
            return login

    async def renewed(self, stale: Login) -> Login:
        """A login with another access token than `stale` has, by one renewal for all who wait. Raises as `fresh`."""
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renewed(stale.access))
            self._renewing.add_done_callback(_seen)
        return await asyncio.shield(self._renewing)

    async def close(self) -> None:
        """Let a renewal that is under way come to its end."""
        if self._renewing is not None and not self._renewing.done():
            await asyncio.wait([self._renewing], timeout=_CLOSE_S)

    async def _renewed(self, stale: str) -> Login:
        async with self._locked():
            login, made = self.login(), self._unwritten
            if login is None:
                self._unwritten = None
                raise nobody(self._name)
            if made is not None and made.since == login.since:
                return await self._written(made)
            self._unwritten = None  # a new login has taken its place
            if login.access != stale and not login.is_due(self._now()):
                return login  # somebody else was first
            return await self._written(await self._renew_at(login))

    async def _written(self, login: Login) -> Login:
        """Raises ModelDown where the disk would not have it: the next try begins with what is held here."""
        self._unwritten = login
        known = self._held[1] if self._held else None
        log.redact([each for one in (known, login) if one for each in (one.refresh, one.access)], of=self._name)
        try:
            await asyncio.to_thread(write, self.path, login)
        except TryAgain as error:
            raise ModelDown(f"a new token cannot be kept: {error.text}", remedy=error.remedy) from error
        self._unwritten = None
        return login

    @contextlib.asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        fd, end = _opened_lock(self.path), time.monotonic() + _LOCK_S
        try:
            while not _took(fd):
                if time.monotonic() > end:
                    raise ModelDown(f"another process has been making the token of {self._name} new for {_LOCK_S:g} s")
                await asyncio.sleep(_LOOK_S)
            yield
        finally:
            os.close(fd)


def path(home: Home, name: str) -> Path:
    """The file of the login at a provider."""
    return home.tokens / f"{name}.json"


def nobody(name: str) -> NotAuthorized:
    """The error where nobody is signed in."""
    return NotAuthorized(f"nobody is signed in to {name}", remedy=remedy(name), attempts=0)


def remedy(name: str) -> str:
    """What to type to sign in."""
    return f"bubbles provider login {name.replace('_', '-')}"


def read(path: Path, name: str) -> Login | None:
    """The login in a file; None where there is no file. Raises NotAuthorized where it is none, or not this user's own."""
    try:
        if warning := file.tighten(path):
            log.event("daemon.warning", warning, priority="warning")
        told = json.loads(regular.trusted(path, _MOST))
        if told["version"] > VERSION:
            raise NotAuthorized(f"{path} is of a newer Bubbles", remedy="run that one", attempts=0)
        values: dict[str, Any] = {one.name: _typed(told.get(one.name, one.default), one.type == "float") for one in fields(Login)}
        found = Login(**values)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotAuthorized(f"cannot read {path}: {error.strerror}", remedy=remedy(name), attempts=0) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotAuthorized(f"{path} holds no login", remedy=remedy(name), attempts=0) from error
    log.redact([found.refresh, found.access], of=name)
    return found


def _typed(value: object, number: bool) -> object:
    if number and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if not number and isinstance(value, str):
        return value
    raise ValueError("not of its type")


def write(path: Path, login: Login) -> None:
    """Put a login on the disk, whole or not at all. Hold `locked`. Raises TryAgain where the disk refuses."""
    _prepare(path)
    file.replace(path, (json.dumps({"version": VERSION, **asdict(login)}, indent=2) + "\n").encode())


def remove(path: Path) -> None:
    """Take a login away, and what a killed program left of another. Hold `locked`."""
    for name in (path, path.with_name(f"{path.name}.tmp")):
        name.unlink(missing_ok=True)
    if path.parent.is_dir():
        file.sync_directory(path.parent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a login while it is changed: a renewal under way is waited for. Raises TryAgain where the disk refuses."""
    try:
        fd = _opened_lock(path)
    except ModelError as error:
        raise TryAgain(error.text, remedy=error.remedy) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _prepare(path: Path) -> None:
    """Its directory, for nobody else's eyes."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if path.parent.stat().st_mode & 0o077:
        path.parent.chmod(0o700)


def _opened_lock(path: Path) -> int:
    try:
        _prepare(path)
        return os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise ModelDown(f"cannot lock {path}: {error.strerror}", remedy=f"ls -ld {path.parent}") from error


def _took(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _look(path: Path) -> object:
    """What a file looks like from outside: another one looks otherwise. None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _seen(task: asyncio.Task[Login]) -> None:
    """Nobody may be left to be told."""
    if not task.cancelled():
        task.exception()
