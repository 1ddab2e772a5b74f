"""An act killed after each of its system calls, one child process a call: what a crash leaves is then there to be looked at.

It stops a child by ptrace and kills it with SIGKILL, so nothing is caught, flushed or tidied. It does not know what the act is.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterator

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_SYSGOOD, _EXITKILL = 0x1, 0x100000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def crashes(act: Callable[[], object], before: Callable[[], object], most: int = 2000) -> Iterator[int]:
    """For n = 1, 2, …: call `before`, run `act` in a child that is killed right after its n-th system call, and yield n.

    Ends when the act has come to its end unharmed. Raises AssertionError where it fails by itself, or makes more than `most` calls.
    """
    for calls in range(1, most):
        before()
        if _survives(act, calls):
            return
        yield calls
    raise AssertionError(f"more than {most} system calls")


def _survives(act: Callable[[], object], calls: int) -> bool:
    child = os.fork()
    if child == 0:
        _be_traced(act)
    _wait(child)  # its SIGSTOP: the act begins
    _ptrace(_SETOPTIONS, child, _SYSGOOD | _EXITKILL)
    seen, inside, pending = 0, False, 0
    while True:
        _ptrace(_SYSCALL, child, pending)
        status = _wait(child)
        if status is None:
            return True
        pending = 0
        if status != signal.SIGTRAP | 0x80:
            pending = status  # a signal on its way: hand it on
            continue
        inside = not inside
        seen += not inside
        if seen == calls:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False


def _be_traced(act: Callable[[], object]) -> None:
    try:
        _ptrace(_TRACEME, 0, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        act()
    except BaseException as error:
        os.write(2, f"the act itself failed: {error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def _wait(child: int) -> int | None:
    """The signal that stopped the child, or None where it has ended well."""
    _, status = os.waitpid(child, 0)
    if os.WIFSTOPPED(status):
        return os.WSTOPSIG(status)
    assert os.waitstatus_to_exitcode(status) == 0, "the act failed by itself; see stderr"
    return None


def _ptrace(request: int, child: int, data: int) -> None:
    if _libc.ptrace(request, child, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
