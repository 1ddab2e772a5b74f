"""A home of its own of which every program, and all that it starts, is traced by strace from its first call on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bubbles import config
from bubbles.bus.lock import is_running
from bubbles.paths import Home
from tests.egress.judge import Law
from tests.egress.record import TRACED

ROOT = Path(__file__).resolve().parents[2]
BUBBLES = str(ROOT / "bin" / "bubbles")
_INJECT = Path(__file__).with_name("inject")
_SHOWN = 512  # bytes of a text that strace shows: a question to a name server is no longer
_END_S = 20.0
_DAEMONS = ("agentd", "modeld", "cron", "channel-test")


class Scene:
    """`directory` holds the home, the traces and at the end scene.json. `told` is what that says besides the law."""

    def __init__(self, directory: Path, settings: dict[str, Any] | None = None, *, tick_s: float = 2.0) -> None:
        self.directory = directory
        self.traces = directory / "traces"
        runtime = directory / "run"
        for path in (self.traces, runtime):
            path.mkdir(parents=True, mode=0o700)
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("BUBBLES_", "NOTIFY_", "WATCHDOG_"))}
        self.env |= {"HOME": str(directory), "BUBBLES_HOME": str(directory / "home"), "XDG_RUNTIME_DIR": str(runtime), "EGRESS_TICK_S": f"{tick_s}"}
        self.env["PYTHONPATH"] = os.pathsep.join([str(_INJECT), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        self.home = Home(directory / "home")
        self.home.prepare()
        with _variable("XDG_RUNTIME_DIR", str(runtime)):  # what the programs of this scene will find
            self.sockets = self.home.sockets
        if settings:
            config.save(self.home, settings)
        self.told: dict[str, Any] = {}
        self._count = 0
        self._started: list[subprocess.Popen[bytes]] = []

    def traced(self, *argv: str) -> list[str]:
        """The command line that starts `argv` traced. The tracer is its grandchild, so that waits and signals meet the program itself."""
        self._count += 1
        prefix = str(self.traces / f"{self._count:03d}")
        own = ["strace", "-D", "-q", "-f", "-ff", "--seccomp-bpf", "--pidns-translation", "-ttt", "-yy", "-s", str(_SHOWN), "-e", "signal=none"]
        return [*own, "-e", f"trace={','.join(TRACED)}", "-o", prefix, *argv]

    def start(self, *argv: str, **more: str) -> subprocess.Popen[bytes]:
        """Begin it; its words go to a file NAME.err beside the home."""
        with open(self.directory / f"{Path(argv[0]).name}-{self._count + 1}.err", "wb") as file:
            process = subprocess.Popen(
                self.traced(*argv), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env={**self.env, **more}, cwd=self.directory
            )
        self._started.append(process)
        return process

    def run(self, *argv: str, stdin: str = "", code: int | None = 0, timeout_s: float = 120, **more: str) -> str:
        """Run it to its end, which is to be `code` unless that is None; what it printed. Daemons that it starts are left, and hold nothing of it."""
        with open(self.directory / "out", "w+b") as out, open(self.directory / "err", "w+b") as err:
            process = subprocess.Popen(
                self.traced(*argv), stdin=subprocess.PIPE, stdout=out, stderr=err, env={**self.env, **more}, cwd=self.directory
            )
            assert process.stdin
            process.stdin.write(stdin.encode())
            process.stdin.close()
            process.wait(timeout_s)
            out.seek(0)
            err.seek(0)
            said, words = out.read().decode(), err.read().decode()
        assert process.returncode == (process.returncode if code is None else code), f"{argv}: {process.returncode}\n{said}\n{words}"
        return said

    def bubbles(self, *argv: str, **more: Any) -> str:
        return self.run(BUBBLES, *argv, **more)

    def running(self) -> set[str]:
        """The daemons that are there. AssertionError where a program that was started is not."""
        for process in self._started:
            assert process.poll() is None, "\n".join(path.read_text() for path in self.directory.glob("*.err"))
        return {name for name in _DAEMONS if is_running(self.home, name)}

    def wakes(self) -> dict[str, int]:
        """How often each daemon that runs has woken since it was started."""
        found = {}
        for name in self.running():
            if pid := is_running(self.home, name):
                counts = [path.read_text().partition("\nvoluntary_ctxt_switches:")[2] for path in Path(f"/proc/{pid}/task").glob("*/status")]
                found[name] = sum(int(count.split()[0]) for count in counts)
        return found

    def end(self) -> None:
        """End all that runs, and wait until the last line of its traces is written."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._started:
            process.wait(_END_S)
        asked: set[int] = set()
        until(lambda: not self._ask_to_end(asked) and not _traced_into(self.traces), _END_S)

    def _ask_to_end(self, asked: set[int]) -> set[int]:
        """Who runs still; whoever was not `asked` yet is now: one may have been on its way up."""
        running = {pid for name in _DAEMONS if (pid := is_running(self.home, name))}
        for pid in running - asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        asked |= running
        return running

    def leave(self, **law: Any) -> None:
        """Write down what is allowed here, for the judge."""
        own = (str(self.sockets), str(self.directory / "run"))
        told = {"law": Law(own, **law).to_dict(), **self.told}
        (self.directory / "scene.json").write_text(json.dumps(told, indent=1))


def until(claim: Callable[[], Any], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def _traced_into(traces: Path) -> list[int]:
    """The tracers that write there still."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0] == b"strace" and any(word.startswith(os.fsencode(traces) + b"/") for word in words):
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)


PYTHON = sys.executable
