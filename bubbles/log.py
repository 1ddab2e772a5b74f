"""The log, which is also the audit: one entry an event, to journald in its own protocol where there is one, else to stderr.

It does not know who reads it. An entry is made of fields; nothing that a value holds, newlines and terminal
escapes included, can begin an entry or a field of its own, and whatever looks like a key is struck out first.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import errno
import fcntl
import os
import re
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

EVENTS = {
    "message.in": "a message reached a session",
    "message.out": "a message was put into an outbound queue, or delivered",
    "message.held": "a message was given up and waits for a person",
    "turn.start": "a turn began",
    "turn.resume": "a turn goes on after a restart",
    "turn.compact": "a session's past was summarised",
    "turn.close": "a turn ended, with its outcome",
    "model.ask": "a model was asked",
    "model.answer": "a model answered",
    "model.retry": "a request failed and is made again",
    "model.fail": "a model could not be asked",
    "tool.start": "a call began, with its arguments",
    "tool.finish": "a call ended, with its clipped result",
    "tool.refuse": "policy forbade a call",
    "job.due": "a job's time came",
    "apology.sent": "a user was told of a failure",
    "apology.withheld": "a user was not told of a failure, and why",
    "daemon.start": "a daemon began",
    "daemon.ready": "a daemon does its duty from here on",
    "daemon.stop": "a daemon ended",
    "daemon.warning": "something is odd and goes on",
    "daemon.bug": "an error that has no name, with its traceback",
    "daemon.debug": "detail, with BUBBLES_DEBUG=1 only",
}
PRIORITIES = {"emerg": 0, "alert": 1, "crit": 2, "error": 3, "warning": 4, "notice": 5, "info": 6, "debug": 7}

JOURNAL = "/run/systemd/journal/socket"
_JOURNAL_MOST_US = 100_000  # a line waits this long for journald, then stderr has it
_SULK_S = 5.0
_VALUE_MOST = 16_000  # characters of one value; whole results live in the history
_FIELD = re.compile(r"[A-Z][A-Z0-9_]{0,50}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# What a text must hold at least, and then the key itself: looking for the first costs a fiftieth of the second.
_KEYS = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        ("sk-", r"\bsk-[A-Za-z0-9_-]{12,}"),  # OpenAI, Anthropic, OpenRouter, DeepSeek and their like
        ("_", r"\b(?:gsk|hf|gh[opsu]|github_pat|r8)_[A-Za-z0-9_-]{12,}"),
        ("-", r"\b(?:xox[abeoprs]|xapp|glpat|pplx|tvly|nvapi|xai)-[A-Za-z0-9-]{12,}"),
        ("AIza", r"\bAIza[A-Za-z0-9_-]{30,}"),  # Google
        (":", r"\b[0-9]{6,12}:[A-Za-z0-9_-]{32,}"),  # a Telegram bot
        (".", r"\b[MNO][A-Za-z0-9_-]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{25,}"),  # a Discord bot
        ("eyJ", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),  # a JSON web token
        ("earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"),
        (" PRIVATE KEY-----", r"(?<= PRIVATE KEY-----)[^-]+"),
    )
)
STRUCK = "[redacted]"

_where: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("bubbles_log", default=("", ""))


class Sink:
    """Where entries go. `name` is the program's; `journal` the path of journald's socket, or "" for stderr."""

    def __init__(self, name: str = "bubbles", journal: str = "", debug: bool = False) -> None:
        self.name = name
        self.debug = debug
        self.second, self.stamp = 0, ""
        self.secrets: re.Pattern[str] | None = None
        self.socket: socket.socket | None = None
        self.spare: Callable[[bytes], None] | None = None
        self.sulking_until = 0.0  # a journal that did not keep up is not waited for again at once
        if journal:
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, _JOURNAL_MOST_US))
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
            try:
                self.socket.connect(journal)
            except OSError:
                self.socket.close()
                self.socket = None

    def write(self, fields: dict[str, str]) -> None:
        """One entry. Never raises: who cannot log goes on working."""
        values = _strike("\0".join([value[:_VALUE_MOST].replace("\0", "\ufffd") for value in fields.values()]), self.secrets)
        fields = dict(zip(fields, values.split("\0"), strict=True))
        if self.socket is None or self.sulking_until and time.monotonic() < self.sulking_until:
            self._to_stderr(fields)
        elif not _to_journal(self.socket, self.name, fields):
            self.sulking_until = time.monotonic() + _SULK_S
            self._to_stderr(fields)

    def _to_stderr(self, fields: dict[str, str]) -> None:
        now = time.time()
        if int(now) != self.second:
            self.second = int(now)
            self.stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        line = f"<{fields['PRIORITY']}>{self.stamp}.{int(now % 1 * 1000):03d} {self.name} {fields['BUBBLES_EVENT']} {fields['MESSAGE']}"
        for name, value in fields.items():
            if name not in _TOLD:
                line += f" {name.removeprefix('BUBBLES_').lower()}={value}"
        data = ((line if line.isprintable() else _UNPRINTABLE.sub(_escape, line)) + "\n").encode()
        try:
            os.write(2, data)
        except OSError as error:
            if self.spare is not None and error.errno in _NOBODY_READS:
                with contextlib.suppress(OSError):  # there is nobody left to tell
                    self.spare(data)


_NOBODY_READS = (errno.EPIPE, errno.EBADF)
_TOLD = {"PRIORITY", "BUBBLES_EVENT", "MESSAGE"}
_sink = Sink()


def setup(name: str, *, journal: str | None = None) -> None:
    """Send what follows as the program `name`. Goes to journald where stderr leads there (or BUBBLES_LOG=journal), else to stderr."""
    global _sink
    if journal is None:
        journal = JOURNAL if _stderr_is_the_journal() or os.environ.get("BUBBLES_LOG") == "journal" else ""
    if _sink.socket is not None:
        _sink.socket.close()
    before = _sink
    _sink = Sink(name, journal, os.environ.get("BUBBLES_DEBUG", "") not in ("", "0"))
    _sink.secrets, _sink.spare = before.secrets, before.spare


def spare(write: Callable[[bytes], None]) -> None:
    """Have `write` take the lines that standard error does not: it was closed, or whoever read it is gone."""
    _sink.spare = write


def event(event: str, message: str, /, *, priority: str = "info", session: str | None = None, turn: str | None = None, **fields: Any) -> None:
    """One entry of the kind `event` (a key of EVENTS; else ValueError). `fields` become BUBBLES_NAME; session and turn default to `context`'s."""
    if event not in EVENTS:
        raise ValueError(f"{event!r} is not in log.EVENTS")
    if priority == "debug" and not _sink.debug:
        return
    around = _where.get()
    entry = {"MESSAGE": str(message), "PRIORITY": str(PRIORITIES[priority]), "BUBBLES_EVENT": event}
    if session or (session is None and around[0]):
        entry["BUBBLES_SESSION"] = session or around[0]
    if turn or (turn is None and around[1]):
        entry["BUBBLES_TURN"] = turn or around[1]
    for name, value in fields.items():
        if value is not None and value != "":
            entry[f"BUBBLES_{name.upper()}"] = str(value)
    _sink.write(entry)


def error(event_name: str, message: str, /, *, error: BaseException | None = None, priority: str = "error", **fields: Any) -> None:
    """`event` with the traceback of `error` (default: the one being handled) in the field BUBBLES_TRACEBACK."""
    error = error or sys.exc_info()[1]
    if error is not None:
        fields["traceback"] = "".join(traceback.format_exception(error)).rstrip()
    event(event_name, message, priority=priority, **fields)


def debug(message: str, /, **fields: Any) -> None:
    """A line for whoever set BUBBLES_DEBUG=1; otherwise next to nothing."""
    if _sink.debug:
        event("daemon.debug", message, priority="debug", **fields)


def debugging() -> bool:
    """Whether `debug` writes: for callers whose fields are dear to make."""
    return _sink.debug


class context:
    """From here on, in this task, entries carry this session and turn: called plainly, or as a `with` block that ends it."""

    def __init__(self, *, session: str = "", turn: str = "") -> None:
        self._token = _where.set((session, turn))

    def __enter__(self) -> context:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _where.reset(self._token)


def redact(secrets: Iterable[str]) -> None:
    """Strike these exact strings (keys, tokens; those under 8 characters are too common to be struck) from every entry to come."""
    known = sorted({secret for secret in secrets if len(secret) >= 8}, key=len, reverse=True)
    _sink.secrets = re.compile("|".join(map(re.escape, known))) if known else None


def struck(text: str) -> str:
    """`text` as an entry would show it, keys struck out."""
    return _strike(text, _sink.secrets)


def _strike(text: str, secrets: re.Pattern[str] | None) -> str:
    if secrets is not None:
        text = secrets.sub(STRUCK, text)
    for needle, pattern in _KEYS:
        if needle in text:
            text = pattern.sub(STRUCK, text)
    return text


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return {10: "\\n", 9: "\\t", 13: "\\r"}.get(code) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _stderr_is_the_journal() -> bool:
    """JOURNAL_STREAM names the stream journald gave a unit; it is inherited, so it counts only where stderr still is that stream."""
    try:
        found = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def datagram(name: str, fields: dict[str, str]) -> bytes:
    """An entry in journald's native protocol: `KEY=value`, or for a value with a newline `KEY`, its length as 8 bytes, and the value."""
    lines = [b"SYSLOG_IDENTIFIER=bubbles-" + name.encode("ascii", "replace").replace(b"\n", b"?")]
    for key, value in fields.items():
        if key not in _names and not _name(key):
            continue  # journald would drop it, and a newline in it would be another field
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            lines.append(key.encode() + b"\n" + struct.pack("<Q", len(data)) + data)
        else:
            lines.append(key.encode() + b"=" + data)
    return b"\n".join(lines) + b"\n"


_names: set[str] = set()


def _name(key: str) -> bool:
    if _FIELD.fullmatch(key) is None:
        return False
    if len(_names) < 100:
        _names.add(key)
    return True


def _to_journal(to: socket.socket, name: str, fields: dict[str, str]) -> bool:
    data = datagram(name, fields)
    try:
        to.send(data)
    except OSError as error:
        return error.errno == errno.EMSGSIZE and _by_descriptor(to, data)
    return True


def _by_descriptor(to: socket.socket, data: bytes) -> bool:
    """An entry too long for a datagram goes as a sealed memory file."""
    try:
        memory = os.memfd_create("bubbles-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (OSError, AttributeError):
        return False
    try:
        os.write(memory, data)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
        to.sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))])
    except OSError:
        return False
    finally:
        os.close(memory)
    return True
