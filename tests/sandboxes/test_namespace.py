"""What takes the kernel long to end: it is killed at once, and waited for while other things go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bubbles.sandboxes import spawn
from bubbles.sandboxes.namespace import Namespace
from bubbles.sandboxes.sandbox import Limits

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there are no namespaces")

SLOW = "trap 'sleep 0.4; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


class Late:
    """Has the child end by itself, a moment after it was told."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child, self.told = child, False

    def end(self) -> int:
        self.told = True
        os.kill(self.child.pid, signal.SIGTERM)
        return 0


def test_what_goes_slowly_is_waited_for_while_other_things_go_on(tmp_path: Path) -> None:
    made: list[Late] = []
    turns: list[int | None] = []

    def ending(child: subprocess.Popen[bytes]) -> Late:
        made.append(Late(child))
        return made[0]

    async def others() -> None:
        while True:
            await asyncio.sleep(0.01)
            turns.extend(one.child.returncode for one in made if one.told)

    async def run(*, cancelled: bool) -> None:
        other, ready = asyncio.ensure_future(others()), asyncio.Event()

        async def watcher(_: int, stop: spawn.Stop) -> None:
            await ready.wait()
            command.cancel() if cancelled else stop("disk")

        more: dict[str, Any] = {"output": lambda _: ready.set(), "watchers": [watcher]}
        command = asyncio.ensure_future(spawn.run(["sh", "-c", SLOW], dict(os.environ), tmp_path, Limits(timeout_s=60), ending, **more))
        [ended] = await asyncio.gather(command, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError) == cancelled
        other.cancel()

    for cancelled in (False, True):
        asyncio.run(run(cancelled=cancelled))
        assert turns.count(None) > 1
        assert made[0].child.returncode == 0  # reaped, and not killed for its slowness
        made.clear()
        turns.clear()


def test_a_monitor_that_waits_for_its_jail_is_left_to_it() -> None:
    with open(os.memfd_create("info"), "r+b", buffering=0) as info, subprocess.Popen(["sleep", "60"], start_new_session=True) as monitor:
        with subprocess.Popen(["sleep", "60"]) as first:
            info.write(json.dumps({"child-pid": first.pid}).encode())
            assert Namespace(monitor, info.fileno()).end() == 0
            assert first.wait(20) == -signal.SIGKILL
        assert monitor.poll() is None
        monitor.kill()
