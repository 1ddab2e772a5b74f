"""The lock that makes a process the one daemon of its name in its home.

It is taken before a socket is bound, because a second `bind` would succeed and steal every new caller. The
kernel gives it back when its holder dies, however that happens; nothing is ever removed by hand.
"""

from __future__ import annotations

import fcntl
import os
import time

from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home, typed

_PATIENCE_S = 0.1  # a look of `is_running` holds the lock for microseconds; a daemon holds it for good


class Lock:
    """The lock `name` of a home, held from `acquire` to `release` or to the process's end."""

    def __init__(self, home: Home, name: str) -> None:
        self._home, self._name = home, name
        self._fd = -1

    def acquire(self) -> None:
        """Take it and write our pid into it. Raises TryAgain naming the holder's pid, or where the disk is full."""
        fd = -1
        try:
            fd = os.open(self._home.lock(self._name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not _take(fd):
                raise TryAgain(f"{self._name} is already running{_named(_pid(fd))}", remedy="bubbles status")
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        except PermissionError as error:
            raise Misconfigured(f"no permission for {error.filename}", remedy=f"chmod -R u+rwX {typed(self._home.run)}") from error
        except OSError as error:
            _close(fd)
            path = self._home.lock(self._name)
            raise TryAgain(f"cannot lock {path}: {error.strerror}", remedy=f"look at: df -h {typed(path.parent)}") from error
        except TryAgain:
            _close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Give it back. Harmless where it is not held."""
        _close(self._fd)
        self._fd = -1


def is_running(home: Home, name: str) -> int | None:
    """The pid of the daemon `name` of this home; None where there is none. Looks, and changes nothing."""
    try:
        fd = os.open(home.lock(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return _pid(fd)
    finally:
        os.close(fd)


def _take(fd: int) -> bool:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)


def _pid(fd: int) -> int:
    """What the holder wrote; it may still be about to. 0 where it does not say."""
    for _ in range(20):
        text = os.pread(fd, 20, 0).strip()
        if text.isdigit():
            return int(text)
        time.sleep(0.001)
    return 0


def _named(pid: int) -> str:
    return f" (pid {pid})" if pid else ""


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
