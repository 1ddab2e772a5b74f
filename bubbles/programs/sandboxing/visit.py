"""A person in a jail: the same one that commands get, with their own terminal before it.

At a terminal the jail stays in the terminal's session, so that Ctrl-C, Ctrl-Z and the size of the window are the person's as everywhere; the
filter of system calls keeps what runs inside from typing there. It does not know what is typed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bubbles.errors import Misconfigured
from bubbles.programs.sandboxing.inside import Inside
from bubbles.sandboxes import public
from bubbles.sandboxes.furniture import DOORWAY, python
from bubbles.sandboxes.proxy import Proxy

_BASH = ("/bin/bash", "--noprofile", "--norc")
_CHUNK = 1 << 16


def visit(inside: Inside, network: str, command: Sequence[str]) -> int:
    """Run `command`, or a shell, in the jail of a session; its exit code, 128 and the signal's number where it was killed by one.

    Raises Misconfigured where the session has no jail, ToolError where none can be made.
    """
    if inside.backend != "bwrap":
        raise _no_inside(inside)
    box: Any = inside.open(network)
    at_terminal = os.isatty(0) and os.isatty(1)
    with _signals_are_theirs(at_terminal), box.made(inside.directory / "work", _variables(), terminal=at_terminal) as made:
        code, note = asyncio.run(_visited(box.network, inside, made, command, at_terminal))
    if note:
        print(f"bubbles: {note}", file=sys.stderr)
    return code if code >= 0 else 128 - code


async def _visited(network: str, inside: Inside, made: Any, command: Sequence[str], at_terminal: bool) -> tuple[int, str]:
    """The exit code, and what is to be known of the network."""
    inner = _inner(inside.key, command, os.isatty(0))
    if network != "public":
        return await _ended([*made.argv, *inner], made.fds, at_terminal), ""
    refusing = Proxy(tuple(inside.tools.sandbox.allow_domains), lambda _: None)
    async with public.opened(refusing) as way:
        code = await _ended([*made.argv, python(), "-I", "-S", DOORWAY, str(way.fd), "--", *inner], [*made.fds, way.fd], at_terminal)
    return code, way.note


async def _ended(argv: list[str], fds: Sequence[int], at_terminal: bool) -> int:
    """Started by this very thread, whose end would be the jail's."""
    with _streams() as ((stdin, stdout, stderr), begun):
        apart = not at_terminal
        child = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, env={}, cwd="/", pass_fds=fds, start_new_session=apart)
        begun()
        return await asyncio.to_thread(child.wait)


def _no_inside(inside: Inside) -> Misconfigured:
    work = inside.directory / "work"
    home = f"HOME={shlex.quote(str(inside.home.session_home(inside.key)))} " if inside.backend == "local_isolated" else ""
    return Misconfigured(
        f"the session {inside.key} has the sandbox {inside.backend}, which has no inside: its commands see what you see",
        remedy=f"(cd {shlex.quote(str(work))} && {home}bash); or give it a jail: bubbles ask -s {shlex.quote(inside.key)} '/config sandbox bwrap'",
    )


def _inner(key: str, command: Sequence[str], is_typed: bool) -> list[str]:
    """What the jail's bash, which has read the limits, is to become. One word is a line for a shell, as for ssh."""
    if not command and not is_typed:  # lines from a file or a pipe
        return [*_BASH, "-s"]
    if not command:  # the prompt as a word: a bash that nobody types at takes it out of its environment
        return [*_BASH, "-c", 'export PS1=$1; shift; exec "$@"', "bash", rf"[jail {key}] \w\$ ", *_BASH, "-i"]
    return [*_BASH, "-c", command[0]] if len(command) == 1 else [*_BASH, "-c", 'exec "$@"', "bash", *command]


def _variables() -> dict[str, str]:
    """What a person has besides: a terminal that can do something."""
    return {"TERM": os.environ.get("TERM") or "dumb"} if os.isatty(1) else {}


@contextlib.contextmanager
def _signals_are_theirs(at_terminal: bool) -> Iterator[None]:
    """What is typed is for whoever runs inside: we only wait. Afterwards the terminal is ours again, whichever group had it last."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}  # a handler: not inherited
    try:
        yield
    finally:
        if at_terminal:
            stopping = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with contextlib.suppress(OSError):
                os.tcsetpgrp(0, os.getpgrp())
            signal.signal(signal.SIGTTOU, stopping)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _streams() -> Iterator[tuple[list[int | None], Callable[[], None]]]:
    """Standard input, output and error for a child, and what is to be called once it has them.

    A file is never handed over, only a pipe to it: inside, `/proc/self/fd/1` opens the file itself again, and for more than was meant.
    """
    given: list[int | None] = [None, None, None]
    ends: list[int] = []
    outputs: list[threading.Thread] = []
    for number in range(3):
        if stat.S_ISREG(os.fstat(number).st_mode):
            reader, writer = os.pipe()
            ours, theirs = (writer, reader) if number == 0 else (reader, writer)
            copy = threading.Thread(target=_copied, args=(number, ours) if number == 0 else (ours, number), kwargs={"ours": ours}, daemon=True)
            copy.start()
            outputs += [copy] if number else []
            given[number] = theirs
            ends.append(theirs)

    def begun() -> None:
        while ends:
            os.close(ends.pop())

    try:
        yield given, begun
    finally:
        begun()
        for copy in outputs:
            copy.join()


def _copied(source: int, target: int, *, ours: int) -> None:
    """All of `source` to `target`, until either has an end; `ours` is closed then."""
    with contextlib.suppress(OSError):
        while data := os.read(source, _CHUNK):
            while data:
                data = data[os.write(target, data) :]
    os.close(ours)
