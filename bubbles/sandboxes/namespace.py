"""A command in a process namespace of its own: ended as a whole, by its first process.

The kernel ends all that lives in a namespace when its first process dies, and lets that be reaped only after the last of them is gone. It
does not know what the command was.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess

from bubbles.sandboxes.tree import has_ended

_QUICK_S = 0.1  # nearly all are gone by then; what has thousands of files open takes the kernel seconds, which are not waited for here
_MOST = 4096


class Namespace:
    """What hangs on `monitor`, a bubblewrap that writes the numbers of its jail's first process and namespaces to the file open as `info`."""

    def __init__(self, monitor: subprocess.Popen[bytes], info: int) -> None:
        self._monitor = monitor
        self._info = info

    def end(self) -> int:
        """Kill everything, and reap the monitor where all is gone quickly. Otherwise it ends by itself when the last of them is gone.

        Always 0: whatever was still there belonged to the jail, and went with it.
        """
        fd = self._hold()
        try:
            if fd is None:
                _kill_group(self._monitor)  # it has not begun: its setup ends with its parent
            elif not (has_ended(self._monitor) and self._is_alone()):  # else there is nothing to kill or to wait for
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
                if not _is_gone(fd, _QUICK_S):
                    return 0
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._monitor.wait(_QUICK_S)
        finally:
            if fd is not None:
                os.close(fd)
        return 0

    def _hold(self) -> int | None:
        """A descriptor of the jail's first process; None where it has not begun, or is gone with all that it held: its number may be another's."""
        info = self._told()
        pid, space = info.get("child-pid"), info.get("pid-namespace")
        if not pid:
            return None
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return None
        try:
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == space or space is None:
                return fd
        except OSError:
            pass
        os.close(fd)
        return None

    def _is_alone(self) -> bool:
        """Whether the first process, on which all others hang, has no child left. False where the kernel does not tell."""
        first = self._told()["child-pid"]
        try:
            with open(f"/proc/{first}/task/{first}/children", "rb") as file:
                return not file.read()
        except OSError:
            return False

    def _told(self) -> dict[str, int]:
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(os.pread(self._info, _MOST, 0))
            return found if isinstance(found, dict) else {}
        return {}


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def _is_gone(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))
