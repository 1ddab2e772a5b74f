"""Attacks by taking much: processes, memory, disk, time, output; and by taking back what bounds them.

Each takes a little more than assault.LIMITS allow, so that the machine does not feel those which succeed.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

from bubbles.sandboxes import Limits
from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import FOR_ROOT, HELD, NOT_APPLICABLE, ONCE, Attack, says
from tests.sandboxes.processes import left

# Long enough for whoever looks on; where nothing is bounded, nobody does.
_HOLD = """
import resource, time
time.sleep(5 if resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 32 << 20 else 0.2)
print("{word}")
"""
_PROCESSES = """
import os, time
for _ in range(200):
    if not os.fork():
        time.sleep(6)
        os._exit(0)
""" + _HOLD
_THREADS = """
import threading, time
threading.stack_size(64 << 10)
for _ in range(300):
    threading.Thread(target=time.sleep, args=(6,), daemon=True).start()
""" + _HOLD
_MEMORY = "held = b'x' * (400 << 20)\n" + _HOLD
_NAMELESS = """
import os
held = [os.memfd_create("m") for _ in range(14)]
for fd in held:
    for _ in range(30):
        os.write(fd, b"x" * (1 << 20))
""" + _HOLD
# Pages of zeros cost nothing, but the tables which say that they are there do: four kilobytes for each two megabytes.
_TABLES = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
size = 200 << 30
at = libc.mmap(None, size, 1, 0x4022, -1, 0)
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise(at, size, 15)
memory = (ctypes.c_char * size).from_address(at)
for n in range(0, size, 2 << 20):
    memory[n]
""" + _HOLD
_SEMAPHORES = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(50):
    if libc.semget(0, 32000, 0o1600) < 0:
        raise SystemExit(ctypes.get_errno())
print("{word}")
"""
_FILL = """
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
written = 0
for place in ("/tmp", "/dev/shm", "/run/user/1000", "/run/user/{uid}", "/dev", "/", "/run", "/var", "/etc"):
    for n in range(8):
        try:
            with open(f"{place}/b{n}", "wb", buffering=0) as file:
                while (size := file.write(b"x" * (1 << 20))) and file.tell() < 30 << 20:
                    written += size
        except OSError:
            continue
    print(place, written)
print("{word}" if written > 150 << 20 else "")
"""
_LARGE = """
import os, resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
except (ValueError, OSError) as error:
    print(error)
try:
    with open("big", "wb", buffering=0) as file:
        for _ in range(60):
            file.write(b"x" * (1 << 20))
except OSError as error:
    print(error)
print("{word}" if os.stat("big").st_size > 50 << 20 else "")
os.unlink("big")
"""
_SPARSE = _LARGE.replace("""        for _ in range(60):
            file.write(b"x" * (1 << 20))""", "        file.truncate(100 << 20)")
_RAISE = """
import resource
for name in ("NOFILE", "FSIZE", "CORE", "NPROC", "MEMLOCK", "RTPRIO", "NICE", "SIGPENDING", "MSGQUEUE"):
    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        continue
    soft, hard = resource.getrlimit(number)
    for wanted in (resource.RLIM_INFINITY, hard + 1):
        try:
            if hard != resource.RLIM_INFINITY and hard < 1 << 40:
                resource.setrlimit(number, (soft, wanted))
                print(name, hard, wanted)
                print("{word}")
        except (ValueError, OSError):
            continue
"""
_FIRST_TO_GO = "[ $(cat /proc/self/oom_score_adj) -ge 500 ] || echo {word}"
_LAST_TO_GO = """
for way in -1000:self/oom_score_adj -17:self/oom_adj -1:1/oom_score_adj; do echo ${way%:*} > /proc/${way#*:} && echo {word}; done; true
"""


async def multiply(scene: Scene) -> str:
    """Both ways to write a bomb of processes; told from outside by how many there are."""
    if os.geteuid() == 0:
        return "whom the kernel does not bind: row 64n shows the watch, and a bomb would be felt by whoever else is at work here"
    before, most = len(os.listdir("/proc")), 0
    bomb = "b() { b | b & }; b; :(){ :|:& };: ; exec -a bomb-{tag} sleep {tag}"
    started = time.monotonic()
    running = asyncio.ensure_future(scene.script(bomb, Limits(timeout_s=1)))
    while not running.done():
        most = max(most, len(os.listdir("/proc")) - before)
        await asyncio.sleep(0.05)
    took, outcome = time.monotonic() - started, await running
    there = left(scene.tag)
    told = f"{outcome}\n{most} more after {took:.1f} s, left: {there[:3]}"
    return told if most < 2000 and took < 5 and not there else f"{told}\n{scene.word}"


async def burn(scene: Scene) -> str:
    """Take every processor, for ever."""
    command = "for n in 1 2 3 4; do bash -c 'while :; do :; done' burn-{tag} & done; wait"
    outcome = await scene.script(command, Limits(timeout_s=0.5))
    return str(outcome) if outcome.timed_out and not left(scene.tag) else f"{outcome}\n{scene.word}"


async def print_for_ever(scene: Scene) -> str:
    """More output than anybody wants, in lines and without an end of line."""
    for command in ("yes {tag}", "tr '\\0' x < /dev/zero", "while :; do echo -n {tag}; done & yes >&2"):
        outcome = await scene.script(command, Limits(timeout_s=5, output_bytes=2_000_000, keep_bytes=10_000))
        if outcome.timed_out or len(outcome.output) > 20_000 or left(scene.tag):
            return f"{outcome.note}\n{scene.word}"
    return "ended"


async def print_no_text(scene: Scene) -> str:
    """Bytes that are no text."""
    outcome = await scene.script("head -c 3000 /dev/urandom; printf '\\0\\0\\377\\376'")
    return outcome.output if "binary output, 3004 bytes" in outcome.output else scene.word


async def lose_the_output(scene: Scene) -> str:
    """Close what is listened to, and go on as if ended."""
    outcome = await scene.script("exec > /dev/null 2>&1 < /dev/null; exec 1>&- 2>&-; exec -a quiet-{tag} sleep {tag}", Limits(timeout_s=0.5))
    return str(outcome) if outcome.timed_out and not left(scene.tag) else f"{outcome}\n{scene.word}"


async def fill_the_pipe(scene: Scene) -> str:
    """End, and leave behind writers that fill the output's pipe for ever, one of them in a session of its own that ignores what it is told."""
    started = time.monotonic()
    command = "trap '' TERM HUP PIPE; (setsid -f bash -c \"trap '' TERM HUP PIPE; yes {tag}\"); (yes {tag} &); echo begun"
    outcome = await scene.script(command, Limits(timeout_s=8, output_bytes=1 << 40))
    took = time.monotonic() - started
    return f"{outcome.note} {took}" if took < 4 and not outcome.timed_out and not left(scene.tag) else f"{took:.1f} s {outcome.note}\n{scene.word}"


def _resourceful() -> bool:
    """Whether root here has root's rights over limits; in some containers it has not."""
    found = re.search(r"^CapEff:\s+(\w+)$", Path("/proc/self/status").read_text(), flags=re.M)
    return bool(found and int(found[1], 16) & 1 << 24)


_RAISED = FOR_ROOT if _resourceful() else HELD
_RUNNER = "it is whoever runs commands that holds it, in a jail or not"

ATTACKS = [
    Attack("64", "a bomb of processes", multiply, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", **ONCE,
           uncontrolled="without a bound it would take the machine"),
    Attack("64n", "many processes", _PROCESSES, says(), HELD, NOT_APPLICABLE, "bounds", **ONCE, python=True, alone=True, timeout_s=12),
    Attack("64t", "many threads", _THREADS, says(), NOT_APPLICABLE, NOT_APPLICABLE, "bounds", **ONCE, python=True, alone=True, timeout_s=12),
    Attack("65", "much memory", _MEMORY, says(), HELD, HELD, "bounds", **ONCE, python=True, alone=True, timeout_s=12),
    Attack("65f", "much memory in files without a name", _NAMELESS, says(), HELD, NOT_APPLICABLE, "bounds", **ONCE, python=True, alone=True,
           timeout_s=12),
    Attack("65p", "much memory in tables of pages", _TABLES, says(), HELD, NOT_APPLICABLE, "bounds", **ONCE, python=True, alone=True, timeout_s=12),
    Attack("65v", "much memory in semaphores", _SEMAPHORES, says(), NOT_APPLICABLE, NOT_APPLICABLE, "filter", **ONCE, python=True, alone=True),
    Attack("66", "fill what is in memory", _FILL, says(), NOT_APPLICABLE, NOT_APPLICABLE, "bounds", python=True, alone=True),
    Attack("67", "take every processor", burn, says(), HELD, HELD, "", **ONCE, uncontrolled=_RUNNER),
    Attack("68", "one large file", _LARGE, says(), _RAISED, _RAISED, "bounds", python=True),
    Attack("68s", "one large file of nothing", _SPARSE, says(), _RAISED, _RAISED, "bounds", python=True),
    Attack("70", "print for ever", print_for_ever, says(), HELD, HELD, "", **ONCE, uncontrolled=_RUNNER),
    Attack("70c", "close the output, and go on", lose_the_output, says(), HELD, HELD, "", **ONCE, uncontrolled=_RUNNER),
    Attack("70f", "fill the pipe after the end", fill_the_pipe, says(), HELD, HELD, "", **ONCE, uncontrolled=_RUNNER),
    Attack("71", "print what is no text", print_no_text, says(), HELD, HELD, "", **ONCE, uncontrolled=_RUNNER),
    Attack("73", "raise its own limits", _RAISE, says(), _RAISED, _RAISED, "", python=True,
           uncontrolled="in a user namespace nobody has the right, whatever else is missing"),
    Attack("74", "be the last to go when memory runs out", _LAST_TO_GO, says(), _RAISED, _RAISED, "",
           uncontrolled="in a user namespace nobody has the right, whatever else is missing"),
    Attack("74f", "not be the first to go when memory runs out", _FIRST_TO_GO, says(), HELD, HELD, "", uncontrolled=_RUNNER),
]  # fmt: skip
