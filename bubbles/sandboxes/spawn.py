"""One command as a process: started, listened to, and ended with all that it started.

It does not know what the command may see or do: argv, environment and directory are given.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from bubbles.errors import ToolError
from bubbles.sandboxes.output import Output
from bubbles.sandboxes.sandbox import Bounds, Limits, Outcome
from bubbles.sandboxes.tree import has_ended

COMMAND_MOST = 128 * 1024 - 1  # bytes of one argument on Linux
_CHUNK = 64 * 1024
_WHY = {
    "output": "it printed more than {} bytes",
    "memory": "it took more memory than it may",
    "scarce": "the machine had hardly any memory left",
    "processes": "it started more processes than it may",
    "files": "its processes had more files open than can be watched",
    "disk": "the disk was nearly full",
}
_DRAIN_S, _IDLE_S = 0.3, 0.1  # how long output is awaited after the shell has ended, and how long a silence ends that
_POLL_S = 0.02  # where there is no pidfd
_PATIENCE_S = 10.0  # what was killed may take the kernel so long
_BUSY = "wait until some of what runs in this session has ended, then try again"
_SHORT = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), _BUSY)  # what the machine is short of for the moment
_LIMITS = re.sub(r'([$`"\\])', r"\\\1", str(Path(__file__).with_name("limits.sh")))  # bash expands what BASH_ENV says
# For a shell that does not read that file: the same, by one that then becomes it; in blocks of 512 bytes.
_RLIMITS = 'ulimit -c 0; ulimit -n 4096 2>/dev/null; ulimit -f 4194304 2>/dev/null; exec "$@"'
# In a jail are its first process, this shell, and what the command left; four looks of 50 ms.
_LINGER = (
    'exec 3>&2 2>/dev/null; (exec "$@" 2>&3 3>&-); code=$?; exec 3>&-; '
    "for look in 1 2 3 4; do set -- /proc/[0-9]*; [ $# -gt 2 ] || break; sleep 0.05; done; exit $code"
)
_BEFORE = '{ echo 800 >/proc/self/oom_score_adj; } 2>/dev/null; [ -z "$0" ] || echo 0 >"$0" || exit 125; exec "$@"'
_POSIX = {"POSIXLY_CORRECT", "POSIX_PEDANTIC"}  # with one of them bash reads nothing


def shell(command: str, env: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The argv and the environment, made from `env`, that run `command` in a shell which reads no start-up file but our limits.

    Raises ToolError for a text that no shell can be given.
    """
    _check(command)
    if not _has_bash():
        return ["/bin/sh", "-c", _RLIMITS, "sh", "/bin/sh", "-c", command], dict(env)
    bash = ["/bin/bash", "--noprofile", "--norc", "-c", command]
    if env.keys() & _POSIX:
        return ["/bin/sh", "-c", _RLIMITS, "sh", *bash], dict(env)
    return bash, {**env, "BASH_ENV": _LIMITS}


def bounded(bounds: Bounds, join: str = "", processes: int = 0) -> dict[str, str]:
    """The variables by which our limits (limits.sh) are told what to set; they are gone when the command begins."""
    told = {"BUBBLES_FILE_KIB": str(bounds.file_bytes // 1024), "BUBBLES_JOIN": join, "BUBBLES_PROCESSES": str(processes or "")}
    return {name: value for name, value in told.items() if value}


def joining(argv: Sequence[str], join: str) -> list[str]:
    """`argv` by a small shell that first sees to it that this goes before the daemon where memory runs out, as in a jail nobody can;
    and then writes itself into a cgroup's list, the file `join`, unless that is "".
    """
    return ["/bin/sh", "-c", _BEFORE, join, *argv]


def inside(command: str) -> list[str]:
    """The argv that runs `command` in a jail whose environment says where our limits are. Raises ToolError as `shell`.

    With its shell a jail ends, so what that left writing (`> >(tee log)`) is given a moment by one that started it.
    """
    _check(command)
    bash = ["/bin/bash", "--noprofile", "--norc", "-c", command]
    return ["/bin/sh", "-c", _LINGER, "sh", *(bash if _has_bash() else ["/bin/sh", "-c", '. "$BASH_ENV"; eval "$1"', "sh", command])]


def _check(command: str) -> None:
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise ToolError("the command is not valid Unicode text") from error
    if "\0" in command:
        raise ToolError("the command holds a NUL character")
    if size > COMMAND_MOST:
        raise ToolError(f"the command is too long: {size} bytes, at most {COMMAND_MOST}", remedy="write it to a file, then run that")


@functools.cache
def _has_bash() -> bool:
    return os.path.exists("/bin/bash")


class Ending(Protocol):
    """How all that a command started is ended."""

    def end(self) -> int:
        """Kill everything and reap the child, or leave that to the caller where it takes long. Returns how many processes beside it were still there.

        It may block for milliseconds.
        """
        ...


Stop: TypeAlias = Callable[[str], None]  # called with why a command is to be ended now: a word of `_WHY`
Watcher: TypeAlias = Callable[[int, Stop], Coroutine[Any, Any, None]]  # looks on while the process of that number runs


async def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    limits: Limits,
    ending: Callable[[subprocess.Popen[bytes]], Ending],
    *,
    pass_fds: Sequence[int] = (),
    output: Callable[[bytes], None] | None = None,
    watchers: Sequence[Watcher] = (),
) -> Outcome:
    """Run `argv` to its end, its time-out, its cap of output, a watcher's word, or our cancellation; nothing of it is left then.

    `ending` makes of the child what ends it with all that it started. To be called in the event loop's own thread, which has to live as long as
    the command. Raises ToolError where it cannot be started.
    """
    begun = time.monotonic()
    kept = Output(limits.keep_bytes)
    with _pipe() as (reader, writer):
        child = _start(argv, env, cwd, writer, pass_fds)
        tree = _ending_of(child, ending, writer)
        left = 0
        try:
            os.close(writer)
            watch = _Watch(child, reader, kept, limits, output)
            looking = [asyncio.ensure_future(watcher(child.pid, watch.stop)) for watcher in watchers]
            try:
                why = await watch.end()
            finally:
                for task in looking:
                    task.cancel()
        finally:
            left = tree.end()
            await _gone(child)
    return _outcome(child, kept, why, left, begun, limits)


async def _gone(child: subprocess.Popen[bytes]) -> None:
    """Wait until `child`, which ends with what was killed with it, is gone: the kernel takes seconds where thousands of files were open."""
    end = time.monotonic() + _PATIENCE_S
    while child.poll() is None and time.monotonic() < end:
        await asyncio.sleep(_POLL_S)
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # what it waits for is held by the kernel, and is left to it
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_POLL_S)


@contextlib.contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    try:
        reader, writer = os.pipe()
    except OSError as error:
        raise _unstartable(error) from error
    os.set_blocking(reader, False)
    try:
        yield reader, writer
    finally:
        os.close(reader)


def _start(argv: Sequence[str], env: Mapping[str, str], cwd: Path, writer: int, pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": writer, "stderr": writer}
    try:
        return subprocess.Popen(argv, **streams, env=env, cwd=cwd, start_new_session=True, pass_fds=pass_fds)
    except OSError as error:
        os.close(writer)
        raise _unstartable(error) from error


def _ending_of(child: subprocess.Popen[bytes], ending: Callable[[subprocess.Popen[bytes]], Ending], writer: int) -> Ending:
    try:
        return ending(child)
    except BaseException as error:
        os.close(writer)
        child.kill()
        child.wait()
        if isinstance(error, OSError):
            raise _unstartable(error) from error
        raise


def _unstartable(error: OSError) -> ToolError:
    where = f" ({error.filename})" if error.filename else ""
    return ToolError(f"the command could not be started: {error.strerror or error}{where}", remedy=_SHORT.get(error.errno or 0, ""))


class _Watch:
    """Reads a child's output and waits for the first of: its end, the time-out, too much output, somebody's word."""

    def __init__(
        self, child: subprocess.Popen[bytes], reader: int, output: Output, limits: Limits, heard: Callable[[bytes], None] | None
    ) -> None:
        self._child, self._reader, self._output, self._limits, self._heard = child, reader, output, limits, heard
        self._loop = asyncio.get_running_loop()
        self._why: asyncio.Future[str] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def end(self) -> str:
        """ "exit", "timeout", "output", or what `stop` was called with."""
        with contextlib.ExitStack() as undone:  # a reader that stayed would take the output of the next command whose pipe has this number
            undone.callback(self._loop.remove_reader, self._reader)
            self._loop.add_reader(self._reader, self._read)
            undone.callback(self._on_exit(self.stop))
            undone.callback(self._loop.call_later(self._limits.timeout_s, self.stop, "timeout").cancel)
            why = await self._why
            if why == "exit":
                await self._drain()
            return why

    def stop(self, why: str) -> None:
        """It is to be ended now."""
        if not self._why.done():
            self._why.set_result(why)

    def _read(self) -> None:
        try:
            part = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        self._output.add(part)
        if self._heard is not None and part:
            self._heard(part)
        if not part:
            self._close()
        elif self._output.count > self._limits.output_bytes:
            self._close()
            self.stop("output")

    def _close(self) -> None:
        self._loop.remove_reader(self._reader)
        if not self._closed.done():
            self._closed.set_result(None)

    async def _drain(self) -> None:
        """What lies in the pipe still; a background process that holds it open is not waited for."""
        end = self._loop.time() + _DRAIN_S
        while not self._closed.done() and self._loop.time() < end:
            before = self._output.count
            await asyncio.wait([self._closed], timeout=_IDLE_S)
            if self._output.count == before:
                return

    def _on_exit(self, settle: Callable[[str], None]) -> Callable[[], None]:
        """Have `settle("exit")` called when the child has ended, without reaping it. Returns what undoes that."""
        try:
            fd = os.pidfd_open(self._child.pid)
        except (AttributeError, OSError):  # a system without, or a process with no descriptor left
            return self._poll(settle)

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
    if why in _WHY:
        notes.append(_WHY[why].format(limits.output_bytes))
    if why == "exit" and left:
        notes.append(f"{left} background process{'es' if left > 1 else ''} that it left running {'were' if left > 1 else 'was'} ended")
    return Outcome(
        output=output.text,
        exit=code if code is not None and code >= 0 and why == "exit" else None,
        signal=signal.SIGKILL if why != "exit" else -code if code is not None and code < 0 else None,
        timed_out=why == "timeout",
        truncated=output.truncated,
        ms=round((time.monotonic() - begun) * 1000),
        note="; ".join(notes),
        oom=why in ("memory", "scarce"),
        ended_for="time" if why == "timeout" else why if why in _WHY else "",
    )
