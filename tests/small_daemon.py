"""A daemon of a few lines in a process of its own: `python -m tests.small_daemon STORY [options]`, told apart by its story."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time

from bubbles import daemon, log
from bubbles.bus.door import Door
from bubbles.daemon import Daemon
from bubbles.errors import Misconfigured, TryAgain

STARTED_WITH = [name for name in os.environ if name.upper().startswith("BUBBLES_")]


async def until_stopped(self: Daemon) -> None:
    self.ready("waiting – 等")
    await self.stopping.wait()
    (self.home.root / "stopped").write_text("cleanly")


async def with_door(self: Daemon) -> None:
    door = Door(self.name, self.home, {})
    await door.open()
    self.ready()
    await self.stopping.wait()
    door.close()


async def busy_for_a_while(self: Daemon) -> None:
    work = asyncio.create_task(asyncio.sleep(1.0))
    self.busy = lambda: not work.done()
    await with_door(self)
    assert work.done()


async def misconfigured(self: Daemon) -> None:
    raise Misconfigured("config.json: line 3 – 错", remedy="edit it")


async def disk_full(self: Daemon) -> None:
    raise TryAgain("the disk is full", remedy="df -h")


async def bug(self: Daemon) -> None:
    raise KeyError("where it was")


async def bug_in_the_beat(self: Daemon) -> None:
    def broken() -> bool:
        raise RuntimeError("not busy, broken")

    self.busy = broken
    await until_stopped(self)


async def silent(self: Daemon) -> None:
    await self.stopping.wait()


async def deaf(self: Daemon) -> None:
    self.stop_s = 0.2
    self.ready()
    await asyncio.sleep(3600)


async def deaf_with_door(self: Daemon) -> None:
    self.stop_s = 3600
    await Door(self.name, self.home, {}).open()
    self.ready()
    await asyncio.sleep(3600)


async def immortal(self: Daemon) -> None:
    self.stop_s = 0.1
    self.ready()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(3600)


async def deaf_to_aborting(self: Daemon) -> None:
    signal.signal(signal.SIGABRT, signal.SIG_IGN)
    self.ready()
    time.sleep(3600)


async def slow_to_start(self: Daemon) -> None:
    self.extend_each_s = 0.02
    while not (self.home.root / "go").exists():
        await asyncio.sleep(0.01)
    await until_stopped(self)


async def once(self: Daemon) -> None:
    self.ready()
    if not self.once:
        await self.stopping.wait()


async def talks(self: Daemon) -> None:
    self._tick_s = 0.02
    self.ready()
    for n in range(450):
        log.event("daemon.warning", f"line {n} {'x' * 15_000}")
        await asyncio.sleep(0.002)
    await self.stopping.wait()


async def shows_itself(self: Daemon) -> None:
    (self.home.root / "made").write_text("")
    child = subprocess.run(["sh", "-c", 'echo "$NOTIFY_SOCKET$WATCHDOG_USEC"; ls /proc/self/fd'], capture_output=True, text=True)
    print(f"dumpable={ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)} mode={(self.home.root / 'made').stat().st_mode & 0o777:o}")
    print(f"child={child.stdout.split()}", flush=True)
    print(f"group={os.getpgid(0) == os.getpid()} cwd={os.getcwd()}", flush=True)
    self.ready()


async def tells_its_environment(self: Daemon) -> None:
    print(f"started with: {sorted(STARTED_WITH)}\nhas: {sorted(name for name in os.environ if name.upper().startswith('BUBBLES_'))}", flush=True)
    self.ready()


if __name__ == "__main__":
    story = sys.argv.pop(1)
    daemon.main("agentd" if story == "busy_for_a_while" else os.environ.get("NAME", "small"), globals()[story])
