"""Attacks on the terminal of a person who sits at a jail, or at the program that started it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import tty
from collections.abc import Iterator
from pathlib import Path

from bubbles.sandboxes.bwrap import Bwrap
from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import HELD, NOT_APPLICABLE, Attack, says

# TIOCSTI and TIOCLINUX, also with a bit that the kernel does not look at.
_TYPES = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
number = 16 if platform.machine() == "x86_64" else 29
for request in (0x5412, 0x541C, 1 << 32 | 0x5412, 1 << 63 | 0x5412):
    for fd in (0, 1, 2):
        for byte in b"evil\\n":
            libc.syscall(ctypes.c_long(number), ctypes.c_long(fd), ctypes.c_long(request), ctypes.c_char_p(bytes([byte])))
"""
_LINE = """
import fcntl, struct
for discipline in range(1, 31):
    try:
        fcntl.ioctl(0, 0x5423, struct.pack("i", discipline))
        print("{word}")
    except OSError:
        continue
"""
_OWN = """
import os
os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
print("{word}")
"""


@contextlib.contextmanager
def _terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal that hands on what is typed as it is."""
    master, slave = pty.openpty()
    try:
        tty.setraw(slave)
        yield master, slave
    finally:
        os.close(master)
        os.close(slave)


async def _sits(scene: Scene, program: str) -> tuple[str, int]:
    """A person's jail with `program` in it, at a terminal: what was printed, and how many bytes wait there as if they had been typed."""
    assert isinstance(scene.sandbox, Bwrap)
    work = Path(scene.arena.places["own_work"])
    (work / "sits.py").write_text(scene.fill(program))
    with _terminal() as (master, slave), scene.sandbox.made(work, terminal=True) as made:
        command = ["setsid", "--ctty", "--wait", *made.argv, scene.arena.places["python"], "-I", "-S", "sits.py"]
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        child = subprocess.Popen(command, env={}, cwd="/", pass_fds=made.fds, **streams)  # type: ignore[call-overload]
        await asyncio.to_thread(child.wait, 10)
        typed = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0" * 4))[0]
        os.set_blocking(master, False)
        with contextlib.suppress(BlockingIOError):
            return os.read(master, 4096).decode(), typed
        return "", typed


async def type_for_a_person(scene: Scene) -> str:
    """Put words into the terminal that the person's shell reads when the jail has ended."""
    printed, typed = await _sits(scene, _TYPES)
    return f"{printed}\n{scene.word}" if typed else f"{printed}: nothing"


async def change_the_line(scene: Scene) -> str:
    """Have the terminal's line read by another part of the kernel, of which there are some that hardly anybody has looked at."""
    printed, _ = await _sits(scene, _LINE)
    return printed


def _no_typing() -> str:
    with contextlib.suppress(OSError):
        if Path("/proc/sys/dev/tty/legacy_tiocsti").read_text().strip() == "0":
            return "this kernel lets nobody type for others"
    return ""


ATTACKS = [
    Attack("85", "type for the person at the terminal", type_for_a_person, says(), NOT_APPLICABLE, NOT_APPLICABLE, "" if _no_typing() else "filter",
           public=NOT_APPLICABLE, host=NOT_APPLICABLE, uncontrolled=_no_typing()),
    Attack("85l", "another line discipline", change_the_line, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", public=NOT_APPLICABLE, host=NOT_APPLICABLE,
           uncontrolled="which of them a kernel has, and for whom, differs"),
    Attack("85n", "the terminal that the gateway was started at", _OWN, says(), HELD, HELD, "", python=True,
           uncontrolled="commands of a session are in a session of their own, in a jail or not"),
]  # fmt: skip
