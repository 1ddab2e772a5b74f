"""The history of a session, `session.jsonl`: what was said, as it goes to a model, and lines about it.

    {"format":"bubbles.history","version":1,"session":"work","name":"work","at":1764500400.0}
    {"role":"user","content":"…"}                            a message, in the form in which it is sent
    {"meta":"turn","turn":"cli-1","end":true,…}             the turn that these messages belong to ends here
    {"meta":"compaction","summary":"…","kept":4,"at":…}     what lies before, but its last 4 messages, is now this summary

Nothing is ever taken out of it. A turn enters with one append, and is there once its `end` line is: what follows
the last such line was cut short by a crash, belongs to a turn whose journal still stands, and is cut off.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bubbles.errors import DataError, Misconfigured, ProtocolError
from bubbles.kernel.context import Shape, build, encode
from bubbles.messages import from_line, migrate, scrub
from bubbles.sessions.journal import append

Meta = dict[str, Any]
FORMAT = "bubbles.history"
VERSION = 1
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {}  # version: from its header to the next one's
_REMEMBERED = 64  # turns whose message ids are kept in memory, against a second coming after a crash
_USER = b'{"role":"user"'
_WHOLE = Shape(reasoning="keep")
SUMMARY_HEAD = "[Summary of the conversation before this point]\n"


def settled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` as a past that any words may follow: every call answered, roles in turn, an assistant last where one was."""
    if not messages or messages[-1].get("role") == "user":
        return build(messages, _WHOLE) if messages else []
    return build([*messages, {"role": "user", "content": "-"}], _WHOLE)[:-1]


class History:
    """One session's history, in memory as far as the model still sees it.

    `lines` are the messages since the last compaction, oldest first, as bytes; a summary of what came before
    stands at its head. `generation` counts the compactions: with the session's key it names the stretch.
    """

    def __init__(self, path: Path, *, session: str, name: str = "") -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.generation = 0
        self.count = 0  # messages in the file
        self.damaged = 0  # lines of the file that could not be read
        self.ended: deque[Meta] = deque(maxlen=_REMEMBERED)  # the last `end` lines
        self._fresh = {"format": FORMAT, "version": VERSION, "session": session, "name": name or session}
        self._fd = _opened(path)
        try:
            self._load()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def fd(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    def knows(self, message: str) -> bool:
        """Whether a message of this id is in one of the last turns."""
        return any(_holds(end, message) for end in self.ended)

    def ended_turn(self, turn: str) -> bool:
        """Whether this turn is among the last that ended."""
        return any(end.get("turn") == turn for end in self.ended)

    def end_of(self, message: str) -> Meta | None:
        """The `end` line of the turn that a message was in, looked for in the whole file; None if it is in none."""
        for end in reversed(list(self.ended)):
            if _holds(end, message):
                return end
        for line in reversed(list(self.file_lines())):
            if line.startswith(b'{"meta":"turn"') and message.encode() in line:
                found = from_line(line)
                if _holds(found, message):
                    return found
        return None

    def add_turn(self, messages: list[bytes], end: Meta) -> None:
        """Append a turn's messages and its `end` line at once. Raises OSError (then nothing of it stays); the caller syncs `fd`."""
        line = {"meta": "turn", **end, "end": True}
        self._append([*messages, encode(line)])
        self._take(messages)
        self.ended.append(line)

    def compact(self, summary: str, kept: int, at: float) -> None:
        """Let `summary` stand for all but the last `kept` messages. Raises OSError; the caller syncs `fd`."""
        self._append([encode({"meta": "compaction", "summary": summary, "kept": kept, "at": at})])
        self._compacted(summary, kept)

    def is_current(self) -> bool:
        """Whether the file that is open here still is the one at its path: a person may have moved, restored or removed the session."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        own = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def file_lines(self) -> Iterator[bytes]:
        """Every line of the file, oldest first, without its newline."""
        offset, rest = 0, b""
        while piece := os.pread(self._fd, 1 << 20, offset):
            offset += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _take(self, messages: list[bytes]) -> None:
        """Add a turn's messages to those in memory. Words that got no answer and those after them are one message there: roles take turns."""
        self.count += len(messages)
        if self.lines and messages and self.lines[-1].startswith(_USER) and messages[0].startswith(_USER):
            first, second = json.loads(self.lines.pop()), json.loads(messages[0])
            messages = [encode({**first, "content": f"{first['content']}\n\n{second['content']}"}), *messages[1:]]
        self.lines += messages

    def _compacted(self, summary: str, kept: int) -> None:
        tail = self.lines[len(self.lines) - kept :] if kept else []
        head = {"role": "user", "content": SUMMARY_HEAD + summary}
        if tail and (first := json.loads(tail[0]))["role"] == "user":
            head["content"] += "\n\n" + first["content"]
            tail = tail[1:]
        self.lines = [encode(head), *tail]
        self.generation += 1

    def _append(self, lines: list[bytes]) -> None:
        append(self._fd, b"".join(line + b"\n" for line in lines))

    def _load(self) -> None:
        pending: list[bytes] = []
        good = offset = broken_at = 0
        with open(self._fd, "rb", closefd=False) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                body = _parsed(line)
                if body is None or not _is_sound(body):
                    self.damaged += 1
                    broken_at = offset
                elif "role" in body:
                    pending.append(line[:-1])
                else:
                    self._meta(body, pending)
                    pending = []
                    good = offset
        self._cut(good, aside=broken_at > good)
        if not good:
            self._append([encode({**self._fresh, "at": time.time()})])
        if self.damaged:
            self.lines = [encode(m) for m in settled([json.loads(line) for line in self.lines])]

    def _meta(self, meta: dict[str, Any], pending: list[bytes]) -> None:
        if "format" in meta:
            self._header(meta)
        self._take(pending)
        if meta.get("meta") == "turn":
            self.ended.append(meta)
        elif meta.get("meta") == "compaction":
            self._compacted(str(meta.get("summary", "")), min(int(meta.get("kept", 0)), len(self.lines)))

    def _header(self, meta: Meta) -> None:
        try:
            migrate(meta, VERSION, MIGRATIONS, "a history")
        except (DataError, ProtocolError) as error:
            raise Misconfigured(f"{self.path}: {error.text}", remedy=error.remedy or f"move {self.path} away") from error
        if meta["format"] != FORMAT:
            raise Misconfigured(f"{self.path} is no history", remedy=f"move {self.path} away")

    def _cut(self, end: int, *, aside: bool) -> None:
        """Cut the file after its last whole turn; what is cut is kept beside it where it is more than a torn tail."""
        if os.fstat(self._fd).st_size == end:
            return
        if aside:
            with open(self._fd, "rb", closefd=False) as file:
                file.seek(end)
                rest = file.read()
            beside = self.path.with_name(f"session.jsonl.broken-{time.time_ns() // 1_000_000}")
            with open(beside, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(rest)
        os.ftruncate(self._fd, end)


def _opened(path: Path) -> int:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES):
            raise
        raise Misconfigured(f"{path} is no file of this session: {error.strerror}", remedy=f"move {path} away") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Misconfigured(f"{path} is no file of this session", remedy=f"move {path} away")
    return fd


def _is_sound(body: Meta) -> bool:
    """Whether a line has the shape that is written here: what a hand or a worm has changed is no message, and is not sent to anybody."""
    if "role" not in body:
        messages, kept = body.get("messages", []), body.get("kept", 0)
        return isinstance(messages, list) and all(isinstance(m, dict) for m in messages) and isinstance(kept, int) and kept >= 0
    content = body.get("content")
    if body["role"] not in ("user", "assistant", "tool") or not isinstance(content, str) or content != scrub(content):
        return False
    if body["role"] == "assistant":
        return bool(content or body.get("tool_calls")) and isinstance(body.get("tool_calls", []), list)
    return bool(content) and (body["role"] == "user" or isinstance(body.get("tool_call_id"), str))


def _holds(end: Meta, message: str) -> bool:
    return any(m.get("id") == message for m in end.get("messages", ()))


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        return from_line(line)
    except DataError:
        return None
