"""What a sandbox costs: one `true` in each, a thousand one after another, and fifty at once with the memory of each.

    python bench/sandboxes.py

All times are of one interleaved run, each beside a plain spawn of `bash -c true` that ran right before it. "bwrap itself" is the same jail around
the same shell, started without us. CPU is ours and that of children we wait for, which the first process of a jail is not. The fifty are turns
of a real agentd.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import disk
import reading
from chain import Chain, Channel, chain, model
from row import Row, main, median

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import BubblesError
from bubbles.paths import Home
from bubbles.sandboxes import Limits, Sandbox, binary
from bubbles.sandboxes.bwrap import Bwrap

ROUNDS, MANY, AT_ONCE, HOLD_S = 101, 1000, 50, 20
KINDS = {"local": "local", "local_isolated": "local_isolated", "bwrap none": "bwrap", "bwrap public": "bwrap", "bwrap host": "bwrap"}
JAIL = "bwrap none"
_PATIENCE_S = 120.0


def measure() -> list[Row]:
    with disk.here() as path:
        home = Home(path / "home")
        home.prepare()
        made = {kind: _opened(home, kind) for kind in KINDS}
        rows = asyncio.run(_each(made, home.session("bench") / "work"))
        many = asyncio.run(_many(made[JAIL]))
    return [*rows, *many, *_at_once()]


def _opened(home: Home, kind: str) -> Sandbox:
    session = home.session("bench")
    (session / "work").mkdir(parents=True, exist_ok=True)
    return sandboxes.open(KINDS[kind], session, home.session_home("bench"), Settings(), network=kind.partition(" ")[2])


# -- one command --------------------------------------------------------------------------------------


async def _each(made: dict[str, Sandbox], work: Path) -> list[Row]:
    works = {kind: sandbox for kind, sandbox in made.items() if await _works(kind, sandbox)}
    walls: dict[str, list[float]] = {kind: [] for kind in works}
    more: dict[str, list[float]] = {kind: [] for kind in works}
    cpus: dict[str, float] = dict.fromkeys([*works, ""], 0.0)
    bare: list[float] = []
    itself: list[float] = []
    for _ in range(ROUNDS):
        for kind, sandbox in random.sample(sorted(works.items()), len(works)):
            plain, cpu = _plain()
            bare.append(plain)
            cpus[""] += cpu / len(works)
            wall, cpu = await _timed(sandbox)
            walls[kind].append(wall)
            more[kind].append(wall - plain)
            cpus[kind] += cpu
            if isinstance(sandbox, Bwrap) and kind == JAIL:
                itself.append(_bare_jail(sandbox, work) - plain)
    floor = median(bare)
    rows = [Row("a plain spawn of bash -c true", floor, "ms", beside=f"CPU {cpus[''] / ROUNDS:.1f} ms; least {min(bare):.1f}")]
    for kind, times in walls.items():
        beside = f"CPU {(cpus[kind] - cpus['']) / ROUNDS:.1f} ms; {median(times) / floor:.1f} x the plain spawn; least {min(times) - min(bare):.1f}"
        beside += f"; bwrap itself {median(itself):.1f}" if kind == JAIL else ""
        bounds = (8, 16) if kind == JAIL else (None, None)
        rows.append(Row(f"exec true over it, {kind}", median(more[kind]), "ms", *bounds, beside=beside))
    return rows


async def _works(kind: str, sandbox: Sandbox) -> bool:
    try:
        return (await sandbox.run("true", Limits())).exit == 0  # and what is kept for the next is there now
    except BubblesError as why:
        print(f"bench: {kind} is left out: {why.text}", flush=True)
        return False


def _plain() -> tuple[float, float]:
    return _clocked(lambda: subprocess.run(["bash", "-c", "true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True))


def _clocked(act: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU in ms, children's included."""
    cpu, began = _cpu_ms(), time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000, _cpu_ms() - cpu


async def _timed(sandbox: Sandbox) -> tuple[float, float]:
    cpu, began = _cpu_ms(), time.perf_counter()
    await sandbox.run("true", Limits())
    return (time.perf_counter() - began) * 1000, _cpu_ms() - cpu


def _bare_jail(sandbox: Bwrap, work: Path) -> float:
    with sandbox.made(work) as made:
        argv = [*made.argv, "/bin/bash", "--noprofile", "--norc", "-c", "true"]
        return _clocked(lambda: subprocess.run(argv, env={}, cwd="/", pass_fds=made.fds, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))[0]


def _cpu_ms() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) * 1000


# -- many, one after another --------------------------------------------------------------------------


async def _many(sandbox: Sandbox) -> list[Row]:
    before, began = _held(), time.perf_counter()
    try:
        for _ in range(MANY):
            await sandbox.run("true", Limits())
    except BubblesError as why:
        return [Row(f"{MANY} commands", float("nan"), "ms", beside=f"not measured: {why.text}")]
    wall = (time.perf_counter() - began) * 1000
    after = _held()
    kept = f"descriptors {before[0]} -> {after[0]}, threads {before[1]} -> {after[1]}, memory {before[2]:.1f} -> {after[2]:.1f} MiB"
    return [Row(f"{MANY} one after another, {JAIL}", wall / MANY, "ms", beside=f"{wall / 1000:.1f} s in all; {kept}")]


def _held() -> tuple[int, int, float]:
    return len(os.listdir("/proc/self/fd")), threading.active_count(), reading.rss_mib(os.getpid())


# -- many at once -------------------------------------------------------------------------------------


def _at_once() -> list[Row]:
    """Turns of as many sessions, each with a jail that is asleep."""
    if not [one for one in binary.candidates() if not one.missing]:
        return []
    settings: dict[str, Any] = {"tools.sandbox.backend": "bwrap", "tools.sandbox.network": "none", "tools.sandbox.unattended_network": "none"}
    with disk.here() as path, model() as url, chain(path, url, settings=settings) as made:
        channel = Channel(made.home)
        chats = [f"c{n}" for n in range(AT_ONCE)]
        channel.turns(chats, 1)  # sessions wake
        agentd = made.pids()["agentd"]
        calm = reading.pss_mib(agentd)
        ended = threading.Thread(target=channel.turns, args=(chats, 1, f"hold={HOLD_S}"))
        began = time.perf_counter()
        ended.start()
        jails = _awaited(agentd, began)
        took = time.perf_counter() - began
        busy = reading.pss_mib(agentd)
        walls, inside = zip(*map(_memory, jails), strict=True) if jails else ((), ())
        ended.join()
        after = _settled(made)
    if len(jails) < AT_ONCE:
        return [Row(f"{AT_ONCE} jails at once", len(jails), "jails", beside="the others did not come up")]
    told = f"PSS; {median(list(inside)):.2f} MiB besides for bash and sleep within; all {AT_ONCE} up after {took:.1f} s"
    each = (busy - calm) / AT_ONCE
    return [
        Row(f"a jail's two bwraps, {AT_ONCE} at once", median(list(walls)), "MiB", 0.5, 1, beside=told),
        Row("agentd for each of them", each, "MiB", 0.2, 0.5, beside=f"PSS {calm:.1f} -> {busy:.1f} MiB, and {after:.1f} when all had ended"),
    ]


def _awaited(agentd: int, began: float) -> list[int]:
    """The bwraps that agentd has started, once in each of their jails a command is asleep."""
    jails: list[int] = []
    while len(jails) < AT_ONCE and time.perf_counter() < began + min(_PATIENCE_S, HOLD_S - 2):
        time.sleep(0.1)
        jails = [pid for pid in _children(agentd) if any(_name(one) == "sleep" for one in _below(pid))]
    return jails


def _memory(jail: int) -> tuple[float, float]:
    """MiB of a jail's own processes, and of those that it is for."""
    found = [jail, *_below(jail)]
    walls = [pid for pid in found if _name(pid) == "bwrap"]
    return sum(map(reading.pss_mib, walls)), sum(reading.pss_mib(pid) for pid in found if pid not in walls)


def _settled(made: Chain) -> float:
    time.sleep(1)
    return reading.pss_mib(made.pids()["agentd"])


def _below(pid: int) -> list[int]:
    found = _children(pid)
    return [*found, *(one for child in found for one in _below(child))]


def _children(pid: int) -> list[int]:
    return [int(word) for task in Path(f"/proc/{pid}/task").glob("*/children") for word in task.read_text().split()]


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main(measure)
