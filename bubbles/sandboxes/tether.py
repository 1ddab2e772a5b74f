"""What ends this process's commands when it is killed: a small shell that waits for that and then becomes a sweep.

There is one a process, from its first command on. It is given nothing of our environment, which may hold keys. It does not know which
commands run: those are found by their mark. Where it cannot be had or is killed too, the next daemon's sweep does the same.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# It reads the homes to sweep; an empty line bids it go, and the end of its input, which the kernel brings about however we end, bids it sweep.
_WAIT = 'while read -r home; do [ "$home" ] || exit 0; set -- "$@" "$home"; done; exec "$@"'
_SWEEP = "import sys; sys.path.insert(0, sys.argv[1]); from bubbles.sandboxes.leftovers import end_of; end_of(sys.argv[2:])"
_GO_S = 1.0


class _Tether:
    def __init__(self) -> None:
        self._shell: subprocess.Popen[bytes] | None = None
        self._homes: set[str] = set()
        self._running = 0
        atexit.register(self._let_go)

    @contextlib.contextmanager
    def holding(self, home: str) -> Iterator[None]:
        """Have what runs meanwhile for `home`, 16 hex digits of its mark, ended should we be killed."""
        if self._shell is None or self._shell.poll() is not None:
            self._shell, self._homes = _shell(), set()
        if home not in self._homes:
            self._tell(home)
            self._homes.add(home)
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1

    def _tell(self, line: str) -> None:
        if self._shell and self._shell.stdin:
            with contextlib.suppress(OSError):  # it was killed just now
                self._shell.stdin.write(f"{line}\n".encode())

    def _let_go(self) -> None:
        if self._running or self._shell is None:
            return  # we end with a command running: it has to sweep
        self._tell("")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._shell.wait(_GO_S)


def _shell() -> subprocess.Popen[bytes] | None:
    sweep = [sys.executable, "-I", "-c", _SWEEP, str(Path(__file__).parents[2])]
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _WAIT, "sh", *sweep],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        return None


_tether = _Tether() if sys.platform.startswith("linux") else None


def holding(mark: str) -> contextlib.AbstractContextManager[None]:
    """While it is entered, a kill of this process ends what bears `mark` (see mark.fresh). To be entered in one thread only."""
    return _tether.holding(mark.partition(".")[0]) if _tether else contextlib.nullcontext()
