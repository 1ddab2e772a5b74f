"""Attacks that no report tells of: on the kill at the end, on the first process, between two jails, on whoever reads what a jail leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubbles.errors import BubblesError
from bubbles.kernel.clean import clean
from bubbles.log import escaped
from bubbles.programs import lines
from bubbles.programs.terminal import markdown
from bubbles.sandboxes import Limits
from bubbles.workspace import Workspace
from tests.sandboxes.attacks.assault import Scene
from tests.sandboxes.attacks.corpus import HELD, NOT_APPLICABLE, NOT_HELD, ONCE, Attack, breaks, reads, says
from tests.sandboxes.processes import left

# --- the kill ----------------------------------------------------------------------------------------------------------------------

_RELAY = """
import os, sys, time
if os.fork():
    time.sleep(3600)
os.setsid()
end = time.time() + 30
os.write(1, b"begun")
while time.time() < end:
    if os.fork():
        os._exit(0)
    time.sleep(0.5)
"""
_FLOOD = "trap '' TERM HUP INT; while :; do setsid -f bash -c \"trap '' TERM HUP INT; echo begun; sleep {tag}; :\"; done"
_DEEP = """
import os, sys, time
for n in range(40):
    if os.fork():
        if n % 2:
            time.sleep(3600)
        os._exit(0)
    os.setsid()
time.sleep(3600)
"""


def _ended(command: str, timeout_s: float = 0.5) -> Callable[[Scene], Any]:
    """Run a command into its time-out, or until a moment after it says that it has begun; nothing of it may be there when that returns.

    As one process may pass on to another while it is looked for, it is looked for several times.
    """

    async def tries(scene: Scene) -> str:
        begun = asyncio.Event()
        said = "begun" in command
        running = asyncio.ensure_future(scene.script(command, Limits(timeout_s=30 if said else timeout_s), output=lambda _: begun.set()))
        if said:
            waiting = asyncio.ensure_future(begun.wait())
            await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([running], timeout=timeout_s)
            waiting.cancel()
            running.cancel()
        [outcome] = await asyncio.gather(running, return_exceptions=True)
        there = [line for _ in range(5) for line in left(scene.tag)]
        return f"{outcome!r}" if not there else f"{there[:3]}\n{scene.word}"

    return tries


_relay = _ended(f"exec {{python}} -I -S -c '{_RELAY}' {{tag}}")
_deep = _ended(f"exec {{python}} -I -S -c '{_DEEP}' {{tag}}")
_flood = _ended(_FLOOD)
_stop_all = _ended(
    "sleep {tag} & echo begun; kill -STOP 1 $PPID; kill -TERM 1; kill -KILL 1; kill -STOP -1; kill -CONT -1; kill -STOP $!; sleep {tag}"
)

# --- the first process -------------------------------------------------------------------------------------------------------------

_TRACE_FIRST = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(0x4206, 1, 0, 0) == 0:  # PTRACE_SEIZE: what it attaches to is not stopped
    print("{word}")
"""
_REWRITE_FIRST = """
import os
for pid in [1, *range(2, os.getpid())]:
    for name in ("mem", "oom_score_adj", "uid_map", "setgroups", "attr/current", "clear_refs", "comm", "timerslack_ns"):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDWR))
            print(pid, name)
            print("{word}")
        except OSError:
            continue
"""
# Whoever writes there says which process outside is killed at the end.
_FORGE = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for fd in range(256):
        path = f"/proc/{pid}/fd/{fd}"
        try:
            if "memfd" in os.readlink(path):
                with open(path, "r+b", buffering=0) as file:
                    file.write(b'{"child-pid": {neighbour}}')
                    print("{word}")
        except OSError:
            continue
"""

# --- between two jails -------------------------------------------------------------------------------------------------------------

# The kernel counts what waits by user, across all namespaces: where one program has it all, no other can set a timer.
_SIGNALS = """
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
signal.pthread_sigmask(signal.SIG_BLOCK, {40})
count = 0
while count < 20000 and libc.sigqueue(os.getpid(), 40, ctypes.c_void_p(0)) == 0:
    count += 1
print(count)
print("{word}" if count == 20000 else "")
"""
_LISTENS = """
import os, socket, time
listeners = [socket.socket(socket.AF_UNIX), socket.socket()]
listeners[0].bind("\\0{word}")
listeners[1].bind(("127.0.0.1", 0))
for listener in listeners:
    listener.listen()
with open("port.new", "w") as file:
    file.write(str(listeners[1].getsockname()[1]))
os.rename("port.new", "port")
time.sleep(2)
"""
_CONNECTS = """
import socket, time
for _ in range(100):
    try:
        port = int(open("port").read())
        break
    except OSError:
        time.sleep(0.02)
for family, address in ((socket.AF_UNIX, "\\0{word}"), (socket.AF_INET, ("127.0.0.1", port))):
    try:
        socket.socket(family).connect(address)
        print("{word}")
    except OSError as error:
        print(error)
"""


async def bridge(scene: Scene) -> str:
    """Two commands of one session at once, one that listens and one that calls."""
    _placed(scene, "listens.py", _LISTENS)
    _placed(scene, "connects.py", _CONNECTS)
    listening = asyncio.ensure_future(scene.run("{python} -I -S listens.py", Limits(timeout_s=2.5)))
    found = await scene.run("{python} -I -S connects.py", Limits(timeout_s=5))
    await _cancelled(listening)
    return found.output


def _placed(scene: Scene, name: str, program: str) -> str:
    (Path(scene.arena.places["own_work"]) / name).write_text(scene.fill(program))
    return name


async def _ready(scene: Scene, running: asyncio.Future[Any]) -> None:
    while not (Path(scene.arena.places["own_work"]) / "ready").exists() and not running.done():
        await asyncio.sleep(0.02)


async def _cancelled(running: asyncio.Future[Any]) -> None:
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


# --- whoever reads what is left ----------------------------------------------------------------------------------------------------

_HOLDS = """
import fcntl, os, signal, socket, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
open("leased", "w").write("x")
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
os.symlink("/dev/zero", "zero")
os.symlink("/proc/self/fd/0", "own")
held = []
for path in (".", "..", "../data", "../skills", "../MEMORY.md", "../SOUL.md", "../skills/pdf/SKILL.md"):
    try:
        held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        print(path, error)
held.append(os.open("leased", os.O_RDWR))
fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.lockf(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
fcntl.fcntl(held[-1], fcntl.F_SETLEASE, fcntl.F_WRLCK)
open("ready", "w").close()
time.sleep(3)
"""
_READ_S = 1.5


async def hold_up_a_reader(scene: Scene) -> str:
    """Have locks, leases and odd files in the way of the file tools, which belong to whoever keeps all sessions."""
    holding = asyncio.ensure_future(scene.run(f"{{python}} -I -S {_placed(scene, 'holds.py', _HOLDS)}", Limits(timeout_s=5)))
    await _ready(scene, holding)
    started = time.monotonic()
    told = await asyncio.to_thread(_uses, Path(scene.arena.places["own_session"]))
    took = time.monotonic() - started
    await _cancelled(holding)
    return f"{told} {took:.2f} s\n{scene.word if took > _READ_S else ''}"


def _uses(session: Path) -> list[str]:
    """What each use of the file tools came to."""
    workspace = Workspace.open(session)
    told = []
    try:
        for name in ("leased", "pipe", "socket", "zero", "own", "../data/new"):
            uses: tuple[Callable[[str], Any], ...] = (
                workspace.read,
                lambda name: workspace.edit(name, "x", "y"),
                lambda name: workspace.write(name, "z"),
            )
            for use in uses:
                try:
                    told.append(f"{name}: {use(name)!r:.40}")
                except BubblesError as error:
                    told.append(f"{name}: {error.text:.60}")
        told.append(f"{len(workspace.list('').entries)} entries")
    finally:
        workspace.close()
    return told


_STEERING = r"printf 'a\033]52;c;ZXZpbA==\007b\033[2J\033[1;1Hc\302\233Kd\302\2355e\r\nf\342\200\256g\342\201\246h\033P1;1|x\033\\i\010\010j\n'"
_STEERS = ("\x1b", "\x07", "\x08", "\x9b", "\x9d", "\x90", chr(0x202E), chr(0x2066))


async def steer_a_terminal(scene: Scene) -> str:
    """Print what steers a terminal: its clipboard, its screen, the direction of writing; as each program of ours shows a command's output."""
    output = (await scene.script(_STEERING)).output
    shown = {
        "a line": escaped(output),
        "a line of JSON": lines.rendered({"text": output}),
        "an answer": markdown.render(clean(output), 80, colour=False),
        "an answer as code": markdown.render(clean(f"```\n{output}\n```"), 80, colour=False),
    }
    steers = [f"{how}: {json.dumps(text)}" for how, text in shown.items() if any(character in text for character in _STEERS)]
    return "\n".join([*steers, scene.word]) if steers else json.dumps(shown)


# --- words that are not what they seem -----------------------------------------------------------------------------------------------

_SPELT = """
r\\m -rf {other_session}/work/p*; c=rm; $c -r -f {other_session}/data; rm --recursive {other_session}/skills
find {other_home} -delete; perl -e 'unlink "{other_memory}"'; : > {other_soul}; dd if=/dev/null of={other_history} 2> /dev/null
tee {other_config} < /dev/null; {python} -I -S -c 'import shutil; shutil.rmtree("{other_session}")'; mv {other_session} ./stolen
$(printf '\\162\\155') -rf {other_session}; eval "$(echo cm0gLXJm | base64 -d) {other_session}"; env -S "rm -rf {other_session}"
truncate -s 0 {other_memory}; install -m 600 /dev/null {other_memory}; sed -i d {other_memory}; cp /dev/null {other_memory}; ln -sf x {other_memory}
"""
_BESIDE = (
    "echo ok; cat $(echo {config})",
    "cat `echo {config}` # echo ok",
    "env bash -lc 'cat \"$0\"' {config}",
    "git status 2> /dev/null; x={config}; cat < $x",
    "ls --help > /dev/null && xargs cat <<< {config}",
    "printf ok\ncat {config}",
    'echo ok; cat "$(dirname "$(dirname "$(dirname "$PWD")")")/config.json"',  # of these, the one that the guard does not read
)


async def stand_beside_a_harmless_word(scene: Scene) -> str:
    """What a list of harmless commands would let pass that is searched for words."""
    found = []
    for command in _BESIDE:
        try:
            found.append((await scene.run(command)).output)
        except BubblesError as error:
            found.append(error.text)
    return "\n".join(found)


def _untraceable() -> str:
    """Why a process that is not one's own child may not be traced here, whatever is missing; "" if it may."""
    with contextlib.suppress(OSError):
        if Path("/proc/sys/kernel/yama/ptrace_scope").read_text().strip() != "0":
            return "this kernel lets nobody trace but their own children"
    return ""


_NAMESPACE = "outside a namespace of its own it would be the machine's end"

ATTACKS = [
    Attack("B1", "always another process, in a session of its own", _relay, says(), NOT_APPLICABLE, NOT_APPLICABLE, "lasting", **ONCE),
    Attack("B2", "new stubborn processes until the last moment", _flood, says(), NOT_APPLICABLE, NOT_APPLICABLE, "lasting", **ONCE),
    Attack("B3", "sessions forty deep, half of them orphans", _deep, says(), HELD, HELD, "lasting", **ONCE),
    Attack("B4", "stop the first process, and all others", _stop_all, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", **ONCE, uncontrolled=_NAMESPACE),
    Attack("B5", "trace the first process", _TRACE_FIRST, says(), NOT_APPLICABLE, NOT_APPLICABLE, "" if _untraceable() else "filter", python=True,
           uncontrolled=_untraceable()),
    Attack("B6", "rewrite other processes by /proc", _REWRITE_FIRST, says(), NOT_APPLICABLE, NOT_APPLICABLE, "proc", python=True),
    Attack("B7", "say which process is killed at the end", _FORGE, says(), NOT_APPLICABLE, NOT_APPLICABLE, "", python=True,
           uncontrolled="bubblewrap keeps to itself what it writes that to, and nothing takes that away"),
    Attack("B8", "a bridge to another jail of the session", bridge, says(), NOT_HELD, NOT_HELD, "network", host=NOT_HELD),
    Attack("B9", "hold up whoever reads its files", hold_up_a_reader, says(), HELD, HELD, "", **ONCE,
           uncontrolled="the file tools stand outside of every jail"),
    Attack("B10", "queue the signals of all the owner's programs", _SIGNALS, says(), HELD, HELD, "", python=True,
           uncontrolled="it is a limit that any shell may set, in a jail or not"),
    Attack("107", "steer the terminal of whoever reads", steer_a_terminal, says(), HELD, HELD, "", **ONCE,
           uncontrolled="no jail looks at what is printed"),
    Attack("110", "destroy in words that no guard reads", _SPELT, breaks("other_session", "other_home"), NOT_HELD, NOT_HELD, "files", alone=True),
    Attack("111", "stand beside a harmless word", stand_beside_a_harmless_word, reads("config"), NOT_HELD, NOT_HELD, "files"),
]  # fmt: skip
