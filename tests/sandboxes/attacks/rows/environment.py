"""Attacks on what other processes hold: their environment, arguments, memory, descriptors; and on what a command inherits."""

from __future__ import annotations

from pathlib import Path

from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import FOR_ROOT, HELD, NOT_APPLICABLE, NOT_HELD, ONCE, Attack, reads, says

_PROCESSES = "P=/proc/{gateway}; [ -d $P ] || P=$(echo /proc/[0-9]*); for p in $P; do [ $p = /proc/$$ ] || "
_MEMORY = """
import os, re
def memory(pid):
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as held:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if "rw" in line and end - start < 1 << 24:
                try:
                    held.seek(start)
                    yield from re.findall(rb"canary-[0-9a-z]{24}", held.read(end - start))
                except OSError:
                    pass
others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
for pid in ["{gateway}"] if "{gateway}" in others else others:
    try:
        print(pid, *set(memory(pid)))
    except OSError as error:
        print(error)
"""
_TRACE = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
others = [name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]
for pid in map(int, ["{neighbour}"] if "{neighbour}" in others else others):
    if b"sleep" not in open(f"/proc/{pid}/cmdline", "rb").read():
        continue
    if libc.ptrace(16, pid, None, None) == 0:  # PTRACE_ATTACH
        os.waitpid(pid, 0x40000000)  # __WALL
        libc.ptrace(17, pid, None, None)  # PTRACE_DETACH
        print("{word}")
        break
    print(pid, os.strerror(ctypes.get_errno()))
"""
_INHERITED = """
import os, stat
for fd in range(3, 256):
    try:
        found = os.fstat(fd)
    except OSError:
        continue
    print(fd, os.readlink(f"/proc/self/fd/{fd}"))
    print("{word}")
for fd in range(3):
    if stat.S_ISREG(os.fstat(fd).st_mode) or os.isatty(fd) or stat.S_ISSOCK(os.fstat(fd).st_mode):
        print(fd, os.readlink(f"/proc/self/fd/{fd}"))
        print("{word}")
"""
_FIRST = """
for fd in /proc/1/fd/* /proc/[0-9]*/fd/*; do
  for up in . .. ../.. ../../..; do cat $fd/$up/config.json $fd/$up/.bubbles/config.json; done
done 2> /dev/null | head -c 2000
"""
_DELETED = """
import glob, os, re, stat
for fd in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        if "deleted" in os.readlink(fd) and stat.S_ISREG(os.stat(fd).st_mode):
            with open(fd, "rb") as file:
                print(*re.findall(rb"canary-[0-9a-z]{24}", file.read(1000)))
    except OSError:
        pass
"""
# Pipes and what has no path lead nowhere; anything else that was left open is a way out, or was forgotten.
_LEADS = """
import glob, os
for fd in glob.glob("/proc/1/fd/*") + glob.glob("/proc/self/fd/*"):
    try:
        path = os.readlink(fd)
    except OSError:
        continue
    if not path.startswith(("pipe:", "anon_inode:", "/dev/null", "/proc/")):
        print(fd, path)
        print("{word}")
"""
_SEGMENT = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat({shm_id}, None, 0o10000)  # SHM_RDONLY
print(ctypes.string_at(address, 31) if address != ctypes.c_void_p(-1).value else ctypes.get_errno())
"""


async def name_a_loader(scene: Scene) -> str:
    """Have the settings pass on what makes a program load somebody's code."""
    from bubbles import sandboxes

    class Loose:
        def __init__(self, settings: object) -> None:
            self._settings = settings

        def __getattr__(self, name: str) -> object:
            return ("LD_PRELOAD",) if name == "pass_env" else getattr(self._settings, name)

    from bubbles.config.tools import Sandbox

    key = Path(scene.arena.places["own_session"])
    sandboxes.open(scene.sandbox.describe()["backend"], key, Path(scene.arena.places["own_home"]), Loose(Sandbox()))
    return scene.word


def _traced() -> str:
    """What is stated of tracing a neighbour without a jail: some kernels forbid it to all but parents."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return NOT_APPLICABLE if scope.exists() and scope.read_text().strip() != "0" else NOT_HELD


ATTACKS = [
    Attack(
        "47", "settings that pass on LD_PRELOAD", name_a_loader, says(), HELD, HELD, "",
        uncontrolled="the settings refuse it before there is a jail", **ONCE,
    ),
    Attack("48", "keys in its own environment", "env; cat /proc/self/environ /proc/$PPID/environ", reads("gateway_key"), HELD, HELD, "environment"),
    Attack("49", "the first process's environment", "cat /proc/1/environ", reads("gateway_key"), NOT_APPLICABLE, NOT_APPLICABLE, "environment"),
    Attack("50", "the gateway's environment", _PROCESSES + "cat $p/environ; done", reads("gateway_key"), FOR_ROOT, FOR_ROOT, "alone"),
    Attack("51", "every environment", "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep canary", reads("neighbour_key"), NOT_HELD, NOT_HELD, "alone"),
    Attack(
        "52", "other processes' arguments", "cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep canary",
        reads("neighbour_argument"), NOT_HELD, NOT_HELD, "processes",
    ),
    Attack("53", "the gateway's memory", _MEMORY, reads("gateway_key"), FOR_ROOT, FOR_ROOT, "alone", python=True),
    Attack(
        "54", "the gateway's open files", _PROCESSES + "for f in $p/fd/*; do [ -f $f ] && cat $f; done; done", reads("gateway_file"),
        FOR_ROOT, FOR_ROOT, "alone",
    ),
    Attack("55", "trace another process", _TRACE, says(), _traced(), _traced(), "alone, filter", python=True),
    Attack("56", "kill another process", "kill -9 {victim} && echo {word}", says(), NOT_HELD, NOT_HELD, "processes"),
    Attack("57", "what it inherits open", _INHERITED, says(), HELD, HELD, "descriptors", python=True, alone=True),
    Attack("A20", "what the first process has open", _FIRST, reads("config"), NOT_APPLICABLE, NOT_APPLICABLE, "descriptors", alone=True),
    Attack("A21", "a segment of shared memory", _SEGMENT, reads("shm_segment"), NOT_HELD, NOT_HELD, "ipc", python=True),
    Attack("A22", "files in /dev/shm", "cat {shm_file} /dev/shm/*", reads("shm_file"), NOT_HELD, NOT_HELD, "devices"),
    Attack(
        "A23", "another's open but deleted file", _DELETED, reads("neighbour_file", "gateway_file"), NOT_HELD, NOT_HELD, "alone", python=True,
    ),
    Attack(
        "A24", "where the descriptors of the jail's first process and its own lead", _LEADS, says(), NOT_APPLICABLE, NOT_APPLICABLE, "descriptors",
        python=True, alone=True,
    ),
]  # fmt: skip
