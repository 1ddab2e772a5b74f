"""A small daemon in a process of its own, to be killed: `python -m tests.bus.child NAME`. It says its pid when its door is open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bubbles.bus.door import Door, Request
from bubbles.bus.feed import Feed
from bubbles.errors import TryAgain
from bubbles.paths import Home

ROOT = Path(__file__).parents[2]


async def _pid(request: Request) -> dict[str, Any]:
    return {"pid": os.getpid(), "id": request.id}


async def _die(request: Request) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


async def _hang(request: Request) -> dict[str, Any]:
    """Tells of itself once, and then never ends."""
    request.part({"pid": os.getpid()})
    await asyncio.sleep(3600)
    return {}


async def _die_once(request: Request) -> dict[str, Any]:
    """The first process that is asked dies of it; its successor answers."""
    mark = Path(request.body["mark"])
    if not mark.exists():
        mark.write_text(request.id)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"pid": os.getpid(), "id": request.id, "first": mark.read_text()}


async def _serve(name: str) -> None:
    home = Home.find()
    door = Door(name, home, {"pid": _pid, "die": _die, "hang": _hang, "die.once": _die_once}, alive_s=0.1)
    try:
        await door.open()
    except TryAgain as error:
        print(error.text, flush=True)
        raise SystemExit(error.exit) from None
    feed = Feed(home)
    if name == "agentd":
        feed.open()
    print(os.getpid(), flush=True)
    for n in range(10**9):
        feed.publish("tick/n", {"n": n, "pid": os.getpid()})
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def running(name: str) -> Iterator[subprocess.Popen[str]]:
    """That daemon, with its door open, until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bus.child", name], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == str(process.pid)
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
