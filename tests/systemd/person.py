"""An ordinary user of a booted machine, with a service manager of their own.

It does not know how the machine came to be.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.systemd.machine import Machine

_LOOK_S = 0.05
_ATTEMPTS = 3  # what a just booted machine refuses once may be its own affair


class Person:
    """An ordinary user of the machine. `home`: a path inside."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine, self.name = machine, name
        machine.run(["useradd", "--create-home", "--shell", "/bin/bash", name])
        self.uid, self.gid, home = machine.account(name)
        self.home = Path(home)
        self._lingers = True
        machine.run(["loginctl", "enable-linger", name])
        self.arrive()

    def arrive(self) -> None:
        """Return when the manager runs, unless this user has left."""
        if not self._lingers:
            return
        manager = f"user@{self.uid}.service"
        for _ in range(_ATTEMPTS):
            if self.machine.run(["systemctl", "start", manager], check=False).returncode == 0:
                return
            self.machine.run(["systemctl", "reset-failed", manager], check=False)
        told = self.machine.run(["journalctl", "-b", "--no-pager", "-n", "60", "-o", "short-monotonic"], check=False).stdout
        raise AssertionError(f"{manager} does not start; the machine's journal ends so:\n{told}")

    def leave(self) -> None:
        """Log out for good: the manager ends, and nothing of this user's starts at a boot any more. Files and log stay."""
        self._lingers = False
        self.machine.run(["loginctl", "disable-linger", self.name])
        self.machine.run(["systemctl", "stop", f"user@{self.uid}.service"])

    def run(self, argv: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """As `Machine.run`, as this user, in the home directory."""
        return self.machine.run(argv, user=self.name, **options)

    def systemctl(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """`systemctl --user` with `args`."""
        return self.run(["systemctl", "--user", *args], **options)

    def write(self, path: str | Path, text: str) -> Path:
        """Write a file that only this user reads (`path` from home), its directories too; returns its path inside."""
        whole = self.home / path
        self.run(["sh", "-c", 'umask 077; mkdir -p "${1%/*}" && cat >"$1"', "write", whole], input=text)
        return whole

    def read(self, path: str | Path) -> str:
        """What is in a file, `path` from home."""
        return self.machine.path(self.home / path).read_text()

    def unit(self, name: str) -> dict[str, str]:
        """Every property that `systemctl --user show` tells."""
        lines = self.systemctl("show", name).stdout.splitlines()
        return {key: value for key, parted, value in (line.partition("=") for line in lines) if parted}

    def until(self, claim: Callable[[], Any], timeout_s: float = 20) -> Any:
        """What `claim` returns once that is true. AssertionError, with the user's last log lines, after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not (found := claim()):
            if time.monotonic() > deadline:
                log = self.machine.run(["journalctl", f"_UID={self.uid}", "-n", "30", "--no-pager"], check=False).stdout
                raise AssertionError(f"not so after {timeout_s:g} s; {self.name}'s log:\n{log}")
            time.sleep(_LOOK_S)
        return found
