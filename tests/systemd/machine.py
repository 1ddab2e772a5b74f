"""A real systemd, booted on a copy of this machine's files in namespaces of its own, and the ordinary people who live there.

It does not know Bubbles. Network and kernel are those of the machine that the tests run on; files (an overlay in memory), processes,
cgroups and the journal are the booted one's alone. Whatever ends the tests ends it: nothing of it is left, processes, mounts or files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.systemd.person import Person

CHECKOUT = Path(__file__).resolve().parents[2]
SYSTEMD = Path("/usr/lib/systemd/systemd")
_BOOT = Path(__file__).with_name("boot.sh")
_NEEDED = ("unshare", "nsenter", "setpriv", "pivot_root", "systemctl", "loginctl", "useradd", "dbus-daemon")
_PAM = ("lib/*/security/pam_systemd.so", "lib*/security/pam_systemd.so")  # of Debian and its kin, and of the others
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_BOOT_S = 60.0
_STOP_S = 60.0
_LOOK_S = 0.05
# Keeps the files in memory and the cgroup until whoever started it is gone, however it went, and then ends what is left in the cgroup.
_KEEP = """
mount -t tmpfs -o mode=0755 machine /run && mkdir /run/cgroup /run/store || exit
mount -t cgroup2 cgroup /run/cgroup && mkdir -p /run/cgroup/$0/machine /run/cgroup/$0/guests || exit
for controller in memory pids cpu; do echo +$controller >/run/cgroup/$0/cgroup.subtree_control; done 2>/dev/null
echo kept
read -r _
echo 1 >/run/cgroup/$0/cgroup.kill
while grep -q 'populated 1' /run/cgroup/$0/cgroup.events; do sleep 0.05; done
find /run/cgroup/$0 -depth -type d -exec rmdir {} +
rmdir /sys/fs/cgroup/memory/$0 2>/dev/null || :
"""


class Impossible(Exception):
    """No systemd can be booted here; says why."""


class Machine:
    """One booted systemd. `name`: that of its cgroup; `pid`: its process 1 as seen from outside, another after `reboot`."""

    def __init__(self, keeper: subprocess.Popen[str], name: str) -> None:
        self._keeper, self.name = keeper, name
        self._cgroup = Path(f"/proc/{keeper.pid}/root/run/cgroup") / name
        self._people: list[Person] = []
        self._named = 0
        self._start()

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        user: str = "",
        input: str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root or as `user` with what a login would have set.

        Raises AssertionError with its words where it fails and `check` is set, subprocess.TimeoutExpired (it may then go on inside).
        """
        command = self.command(argv, user=user, env=env)
        stdin: dict[str, Any] = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        done = subprocess.run(command, text=True, errors="replace", capture_output=True, timeout=timeout_s, **stdin)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(map(str, argv))}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def command(self, argv: Sequence[str | Path], *, user: str = "", env: Mapping[str, str] | None = None) -> list[str]:
        """The arguments that start `argv` inside, for a test that wants the process itself."""
        variables, as_whom = {"PATH": _PATH, "HOME": "/root", "LANG": "C.UTF-8"}, []
        if user:
            uid, gid, home = self.account(user)
            as_whom = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--init-groups", "--"]
            variables |= {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": f"{CHECKOUT}/bin:{_PATH}"}
            variables |= {"XDG_RUNTIME_DIR": f"/run/user/{uid}", "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus"}
        variables |= env or {}
        join = ["sh", "-c", f'echo 0 >{self._cgroup}/guests/cgroup.procs; exec "$@"', "join"]
        enter = ["nsenter", "-t", str(self.pid), "-m", "-p", "-u", "-i", "-C", "--"]
        clean = ["env", "-i", "-C", variables["HOME"], *(f"{name}={value}" for name, value in variables.items())]
        return [*join, *enter, *as_whom, *clean, *map(str, argv)]

    def path(self, path: str | Path) -> Path:
        """Where a file of the machine is seen from outside, with root's eyes."""
        return Path(f"/proc/{self.pid}/root/{str(path).lstrip('/')}")

    def outside(self, pid: int) -> int:
        """The number that a process of the machine has where the tests run."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        for found in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                names = next(line for line in (found / "status").read_text().splitlines() if line.startswith("NSpid:")).split()
                if names[-1] == str(pid) and os.readlink(found / "ns/pid") == space:
                    return int(found.name)
        raise ProcessLookupError(pid)

    def person(self) -> Person:
        """A new ordinary user, whose user manager runs and goes on without a login."""
        self._named += 1  # also for one who could not come: the name is taken
        person = Person(self, f"person{self._named}")
        self._people.append(person)
        return person

    def reboot(self, *, cleanly: bool = True) -> None:
        """Stop, and boot again from the same files: in order, or (not `cleanly`) as after a power cut. Commands that `run` began end first.

        Returns when the managers of all who are here run again.
        """
        if cleanly:
            self._end_guests()
            self.run(["systemctl", "poweroff", "--no-block"])
            self._first.wait(_STOP_S)
        else:
            self.cut()
        self._start()
        for person in self._people:
            person.arrive()

    def cut(self) -> None:
        """The power is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._first.wait(_STOP_S)

    def _end_guests(self) -> None:
        """Whoever shuts a machine down stops all processes first, and nsenter stops with what it waits for: then it would never end."""
        for pid in (self._cgroup / "guests/cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{self.pid}/ns/pid"):
                    os.kill(int(pid), signal.SIGKILL)  # and its nsenter ends by itself

    def _start(self) -> None:
        shown = sorted({str(path) for path in (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_prefix).resolve())})
        inside = ["nsenter", "-t", str(self._keeper.pid), "-m", "--"]
        spaces = ["unshare", "--fork", "--kill-child", "--mount", "--pid", "--uts", "--ipc", "--propagation", "private"]
        script = [str(_BOOT), "/run/store", f"/run/cgroup/{self.name}/machine", *shown]
        argv = [*inside, *spaces, *script]
        self._first = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True)
        deadline = time.monotonic() + _BOOT_S
        while (state := self._state()) not in ("running", "degraded"):
            if self._first.poll() is not None:
                raise Impossible(f"systemd cannot be booted: {' '.join(self._first.communicate()[1].split())}")
            if time.monotonic() > deadline:
                raise Impossible(f"systemd has not booted in {_BOOT_S:g} s: {state}")
            time.sleep(_LOOK_S)

    def _state(self) -> str:
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children")
        try:
            self.pid = int(children.read_text())
            if Path(f"/proc/{self.pid}/exe").resolve() != SYSTEMD:
                return "not begun"
        except (OSError, ValueError):
            return "not begun"
        return self.run(["systemctl", "is-system-running", "--wait"], check=False).stdout.strip()

    def account(self, user: str) -> tuple[int, int, str]:
        """Number, group and home of a user; KeyError where there is none."""
        for line in self.path("/etc/passwd").read_text().splitlines():
            name, _, uid, gid, _, home, _ = line.split(":")
            if name == user:
                return int(uid), int(gid), home
        raise KeyError(user)


@contextlib.contextmanager
def boot() -> Iterator[Machine]:
    """A booted machine, which ends with the block. Raises Impossible where that cannot be."""
    if why := _lacking():
        raise Impossible(why)
    name = f"bubbles-test-{os.getpid()}-{os.urandom(4).hex()}"
    command = ["unshare", "--mount", "--propagation", "private", "--", "sh", "-c", _KEEP, name]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    keeper = subprocess.Popen(command, **pipes, text=True, start_new_session=True)  # whatever ends a whole group leaves it to its work
    assert keeper.stdout
    if keeper.stdout.readline() != "kept\n":
        raise Impossible(f"no namespaces: {' '.join(keeper.communicate()[1].split())}")
    machine = None
    try:
        machine = Machine(keeper, name)
        yield machine
    finally:
        if machine is not None:
            machine.cut()
        keeper.communicate("\n")


def _lacking() -> str:
    """Why no machine can be booted here; empty if there is no reason known yet."""
    if os.geteuid() != 0:
        return "booting systemd takes root"
    if not SYSTEMD.exists():
        return f"there is no {SYSTEMD}: install systemd"
    missing = [name for name in _NEEDED if not shutil.which(name, path=_PATH)]
    missing += [] if Path("/usr/lib/systemd/user/dbus.socket").exists() else ["dbus-user-session"]
    missing += [] if any(list(Path("/usr").glob(pattern)) for pattern in _PAM) else ["libpam-systemd"]
    return f"missing here: {' '.join(missing)}" if missing else ""
