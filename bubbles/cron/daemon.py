"""The daemon that keeps time: cron's lock, its door, and the loop that sleeps until something is due.

It does not know what a job means. It wakes when a job is due, when it was asked something, when agentd tells what became of
a job, and at the daemon's own slow tick, which notices that a clock was set or the machine slept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from bubbles import daemon
from bubbles.bus.caller import Caller
from bubbles.bus.door import Door, Op, Request
from bubbles.bus.follower import follow
from bubbles.cron.ops import Ops
from bubbles.cron.service import Service
from bubbles.daemon import Daemon


async def serve(daemon: Daemon) -> None:
    """Live until the daemon is told to stop; with `--once`, until what was due has been sent."""
    agentd, woken = Caller(daemon.home, "agentd"), asyncio.Event()
    service = Service(daemon.home, agentd.ring)
    ops = Ops(service)
    door = Door("cron", daemon.home, {op: _asked(ops, woken.set) for op in ops.table}, on_ring=woken.set)
    await door.open()  # nobody is answered before this function waits for the first time
    tasks: list[asyncio.Task[None]] = []
    try:
        service.open()
        service.recover()
        service.look()
        daemon.busy = lambda: door.answering > 0
        daemon.on_tick.append(woken.set)
        daemon.ready(service.summary)
        if daemon.once:
            await agentd.ring()
            return
        tasks += [asyncio.create_task(work) for work in (_keep_time(service, woken, daemon), _listen(daemon, woken), _until_stopped(daemon))]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # or what it raised
    finally:
        for task in tasks:
            task.cancel()
        agentd.close()
        door.close()


async def _keep_time(service: Service, woken: asyncio.Event, daemon: Daemon) -> None:
    said = ""
    while True:
        woken.clear()
        pause_s = service.look()
        if service.summary != said:
            daemon.status(said := service.summary)
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), pause_s)


async def _listen(daemon: Daemon, woken: asyncio.Event) -> None:
    """agentd's feed rings when it has told cron something."""
    async for _ in follow(daemon.home, "out/cron"):
        woken.set()


async def _until_stopped(daemon: Daemon) -> None:
    await daemon.stopping.wait()


def _asked(ops: Ops, wake: Callable[[], object]) -> Op:
    async def answer(request: Request) -> dict[str, Any]:
        try:
            return ops.answer(request.op, request.body, request.id)
        finally:
            wake()

    return answer


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """The daemon, with its options alone: its page is that of `bubbles cron`."""
    daemon.main("cron", serve, argv)


if __name__ == "__main__":
    main()
