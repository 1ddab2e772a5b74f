"""One command as a process: started, listened to, and ended with all that it started.

It does not know what the command may see or do: argv, environment and directory are given.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from bubbles.errors import ToolError
from bubbles.sandboxes.mark import MARK
from bubbles.sandboxes.output import Output
from bubbles.sandboxes.sandbox import Limits, Outcome
from bubbles.sandboxes.tree import Tree, has_ended

COMMAND_MOST = 128 * 1024 - 1  # bytes of one argument on Linux
_CHUNK = 64 * 1024
_DRAIN_S, _IDLE_S = 0.3, 0.1  # how long output is awaited after the shell has ended, and how long a silence ends that
_SYSTEM = "/usr/bin:/bin:/run/current-system/sw/bin"
_POLL_S = 0.02  # where there is no pidfd
# Core dumps, open files, and 2 GiB for one file (in blocks of 512 bytes); set by a shell because nothing of Python may run between fork and exec.
_RLIMITS = 'ulimit -c 0; ulimit -n 4096 2>/dev/null; ulimit -f 4194304 2>/dev/null; exec "$@"'


def shell(command: str) -> list[str]:
    """The argv that runs `command` in a shell which reads no start-up file. Raises ToolError for a text that no shell can be given."""
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise ToolError("the command is not valid Unicode text") from error
    if "\0" in command:
        raise ToolError("the command holds a NUL character")
    if size > COMMAND_MOST:
        raise ToolError(f"the command is too long: {size} bytes, at most {COMMAND_MOST}", remedy="write it to a file, then run that")
    inner = ["/bin/bash", "--noprofile", "--norc", "-c", command] if os.path.exists("/bin/bash") else ["/bin/sh", "-c", command]
    return ["/bin/sh", "-c", _RLIMITS, "sh", *inner]


async def run(argv: Sequence[str], env: Mapping[str, str], cwd: Path, limits: Limits, mark: str) -> Outcome:
    """Run `argv` to its end, its time-out, its cap of output, or our cancellation; nothing of it is left when this returns or raises.

    `mark` (see mark.fresh) is this command's alone: what it started is found by it, also by others once we are killed.
    To be called in the event loop's own thread. Raises ToolError where it cannot be started.
    """
    begun = time.monotonic()
    output = Output(limits.keep_bytes)
    with _pipe() as (reader, writer):
        child = _start([*_tether(), *argv], {**env, MARK: mark}, cwd, writer)
        tree = Tree(child, mark)
        left = 0
        try:
            os.close(writer)
            why = await _Watch(child, reader, output, limits).end()
        finally:
            left = tree.end()
    return _outcome(child, output, why, left, begun, limits)


@functools.cache
def _tether() -> tuple[str, ...]:
    """What has the kernel end the shell at once when we are killed, if this machine has it. What the shell started is the next daemon's to sweep."""
    found = shutil.which("setpriv", path=_SYSTEM) if sys.platform.startswith("linux") else None
    if found is None:
        return ()
    tether = (found, "--pdeathsig", "KILL", "--")
    try:
        subprocess.run([*tether, "/bin/sh", "-c", ":"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()  # another setpriv, or not allowed here
    return tether


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path, writer: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, env=env, cwd=cwd, start_new_session=True)
    except OSError as error:
        os.close(writer)
        raise ToolError(f"the command could not be started: {error.strerror} ({error.filename})") from error


class _Watch:
    """Reads a child's output and waits for the first of: its end, the time-out, too much output."""

    def __init__(self, child: subprocess.Popen[bytes], reader: int, output: Output, limits: Limits) -> None:
        self._child, self._reader, self._output, self._limits = child, reader, output, limits
        self._loop = asyncio.get_running_loop()
        self._why: asyncio.Future[str] = self._loop.create_future()
        self._closed = asyncio.Event()

    async def end(self) -> str:
        """ "exit", "timeout" or "output"."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._loop.remove_reader, self._reader)
            self._loop.add_reader(self._reader, self._read)
            stack.callback(self._on_exit(self._settle))
            stack.callback(self._loop.call_later(self._limits.timeout_s, self._settle, "timeout").cancel)
            why = await self._why
            if why == "exit":
                await self._drain()
            return why

    def _settle(self, why: str) -> None:
        if not self._why.done():
            self._why.set_result(why)

    def _read(self) -> None:
        try:
            part = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        if not part:
            self._loop.remove_reader(self._reader)
            self._closed.set()
            return
        self._output.add(part)
        if self._output.count > self._limits.output_bytes:
            self._loop.remove_reader(self._reader)
            self._closed.set()
            self._settle("output")

    async def _drain(self) -> None:
        """What lies in the pipe still; a background process that holds it open is not waited for."""
        end = self._loop.time() + _DRAIN_S
        while self._loop.time() < end:
            before = self._output.count
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), _IDLE_S)
            if self._closed.is_set() or self._output.count == before:
                return

    def _on_exit(self, settle: Callable[[str], None]) -> Callable[[], None]:
        """Have `settle("exit")` called when the child has ended, without reaping it. Returns what undoes that."""
        if not hasattr(os, "pidfd_open"):
            return self._poll(settle)
        fd = os.pidfd_open(self._child.pid)

        def ended() -> None:
            self._loop.remove_reader(fd)  # it stays readable for ever
            settle("exit")

        def undo() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)

        self._loop.add_reader(fd, ended)
        return undo

    def _poll(self, settle: Callable[[str], None]) -> Callable[[], None]:
        async def look() -> None:
            while not has_ended(self._child):
                await asyncio.sleep(_POLL_S)
            settle("exit")

        task = asyncio.ensure_future(look())

        def undo() -> None:
            task.cancel()

        return undo


def _outcome(child: subprocess.Popen[bytes], output: Output, why: str, left: int, begun: float, limits: Limits) -> Outcome:
    code = child.returncode
    notes = []
    if why == "output":
        notes.append(f"it was ended because it printed more than {limits.output_bytes} bytes")
    if why == "exit" and left:
        notes.append(f"{left} background process{'es' if left > 1 else ''} that it left running {'were' if left > 1 else 'was'} ended")
    return Outcome(
        output=output.text,
        exit=code if code is not None and code >= 0 else None,
        signal=-code if code is not None and code < 0 else None,
        timed_out=why == "timeout",
        truncated=output.truncated,
        ms=round((time.monotonic() - begun) * 1000),
        note="; ".join(notes),
    )
