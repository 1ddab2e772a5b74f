"""The log, which is also the audit: one entry an event, to journald in its own protocol where there is one, else to a file of JSON lines.

It does not know who reads it. An entry is made of fields; nothing that a value holds, newlines and terminal
escapes included, can begin an entry or a field of its own, and whatever looks like a key is struck out first.
Whoever cannot log goes on working: an entry that the journal does not take goes to the file, one that the file does not take
to standard error.
"""

from __future__ import annotations

import array
import contextlib
import contextvars
import errno
import fcntl
import json
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

from bubbles import logfile
from bubbles.paths import Home

EVENTS = {
    "message.in": "a message reached a session",
    "message.waits": "a message stays in its queue until its session can take it in",
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
    "net.open": "a command's connection to the network ended, with the bytes each way",
    "net.fail": "a command's connection to the network did not come about, and why",
    "net.refuse": "a command was kept from the network, and why",
    "job.due": "a job's time came",
    "job.start": "a command began in the background",
    "job.end": "a command in the background ended, and how",
    "apology.sent": "a user was told of a failure",
    "apology.withheld": "a user was not told of a failure, and why",
    "daemon.start": "a daemon began",
    "daemon.ready": "a daemon does its duty from here on",
    "daemon.stop": "a daemon ended",
    "daemon.warning": "something is odd and goes on",
    "daemon.bug": "an error that has no name, with its traceback",
    "daemon.debug": "detail, with BUBBLES_DEBUG=1 only",
    "person.asked": "a stranger asks to be let into a channel, and was told a code",
    "person.paired": "somebody was let into a channel, or is let in no more",
}
PRIORITIES = {"emerg": 0, "alert": 1, "crit": 2, "error": 3, "warning": 4, "notice": 5, "info": 6, "debug": 7}

JOURNAL = "/run/systemd/journal/socket"
_JOURNAL_MOST_US = 100_000  # an entry waits this long for journald, then the file has it
_SULK_S = 5.0
# Journald drops what all services of a person log beyond 10 000 entries in 30 s (more where its disk has room), and tells nobody but the
# administrator. A daemon leaves it alone long before, and its file has the rest.
_BURST, _BURST_S = 5_000, 30.0
_VALUE_MOST = 16_000  # characters of one value; whole results live in the history
_MARGIN = 1_000  # characters beyond those that are wanted: where keys are struck, that much follows
_FIELD = re.compile(r"[A-Z][A-Z0-9_]{0,50}")
_STEERS = re.compile(  # what a terminal acts upon, or hides, instead of showing it
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)

# A sign that a text must hold at least, then a needle, and then the key itself: to look for the first costs next to nothing,
# and for the second a fiftieth of the third.
_KEYS: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "-": (
        ("sk-", re.compile(r"\bsk-[A-Za-z0-9_-]{12,}")),  # OpenAI, Anthropic, OpenRouter, DeepSeek and their like
        ("xox", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{12,}")),  # Slack
        *((f"{kind}-", re.compile(rf"\b{kind}-[A-Za-z0-9-]{{12,}}")) for kind in ("xapp", "glpat", "pplx", "tvly", "nvapi", "xai")),
        (" PRIVATE KEY-----", re.compile(r"(?<= PRIVATE KEY-----)[^-\0]+")),
    ),
    "_": tuple((f"{kind}_", re.compile(rf"\b{kind}_[A-Za-z0-9_-]{{12,}}")) for kind in ("gsk", "hf", "gho", "ghp", "ghs", "ghu", "github_pat", "r8")),
    "AIza": (("AIza", re.compile(r"\bAIza[A-Za-z0-9_-]{30,}")),),  # Google
    "earer ": (("earer ", re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}")),),
}
# These begin like many a word: they are looked for only where a word is as long as they are.
_LONG_KEYS = (
    re.compile(r"\b[0-9]{6,12}:[A-Za-z0-9_-]{32,}"),  # a Telegram bot
    re.compile(r"\b[MNO][A-Za-z0-9_-]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{25,}"),  # a Discord bot
)
_LONG = 6 + 1 + 32
_WEB_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}+((?:\.[A-Za-z0-9_-]{8,}+){2})?+")  # of JSON; what only begins as one is passed over
_BETWEEN = "\0"  # two values that are struck together
_RUN = re.compile(r"[A-Za-z0-9._~+/=:-]{0,16384}")  # what goes on with these may be a key that goes on; no server takes a longer one
STRUCK = "[redacted]"

_where: contextvars.ContextVar[tuple[str, str]] = contextvars.ContextVar("bubbles_log", default=("", ""))


class Sink:
    """Where entries go. `name` is the program's, `home` whose log it is; `journal` the path of journald's socket, or "" for none."""

    def __init__(self, name: str = "bubbles", journal: str = "", debug: bool = False, home: Home | None = None) -> None:
        self.name = name
        self.debug = debug
        self.second, self.stamp = 0, ""
        self.secrets: re.Pattern[str] | None = None
        self.longest = 0  # characters of the longest of them
        self.file = logfile.Lines(home.log / f"{name}.jsonl") if home else None
        self.home = os.path.realpath(home.root) if home else ""
        self.speaks = not (home and (journal or logfile.is_at(2, home.log / f"{name}.log")))
        self.sent = 0  # entries that the journal took of this process: whoever reads them sees where some are missing
        self.sulking_until = 0.0  # a journal that did not keep up is not waited for again at once
        self.burst_until, self.burst = 0.0, 0
        self.journal = journal
        self.socket = _connected(journal) if journal else None

    def write(self, fields: dict[str, str]) -> None:
        """One entry. Never raises: who cannot log goes on working."""
        values = [value if len(value) <= _VALUE_MOST else self.clipped(value, _VALUE_MOST) for value in fields.values()]
        text = _BETWEEN.join([value.replace(_BETWEEN, "\ufffd") for value in values])
        fields = dict(zip(fields, _strike(text, self.secrets).split(_BETWEEN), strict=True))
        if not (self.journal and self._may_burst() and self._to_journal(fields)):
            now = time.time()
            kept = self.file is not None and self.file.write(line(now, self.name, fields))
            if self.speaks or not kept:
                self._to_stderr(now, fields)

    def clipped(self, text: str, most: int) -> str:
        """What the function of that name promises, for a text that is longer."""
        run = _RUN.match(text, min(len(text), most + _MARGIN + self.longest))
        end = run.end() if run else len(text)
        shown = _strike(text[:end], self.secrets)
        # What begins at the very end and is no key yet may be one of the known ones; struck texts are up to a quarter longer than they were.
        sure = len(shown) - (2 * self.longest if end < len(text) else 0)
        kept = shown[: max(0, min(sure, most))]
        left = len(shown) - len(kept) + len(text) - end
        return f"{kept} … ({left} more characters)" if left else kept

    def _to_journal(self, fields: dict[str, str]) -> bool:
        now = time.monotonic()
        if now < self.sulking_until:
            return False
        if self.sulking_until:
            self.close()
            self.socket, self.sulking_until = _connected(self.journal), 0.0  # it may be another one by now
        if self.home:
            fields = {**fields, "BUBBLES_HOME": self.home, "BUBBLES_N": str(self.sent + 1)}
        if self.socket is None or not _to_journal(self.socket, self.name, fields):
            self.sulking_until = now + _SULK_S
            return False
        self.sent += 1
        return True

    def _may_burst(self) -> bool:
        """Whether the journal is to have one more entry now. The last it has says where the others are."""
        if self.file is None:
            return True
        if (now := time.monotonic()) >= self.burst_until:
            self.burst_until, self.burst = now + _BURST_S, 0
        self.burst += 1
        if self.burst == _BURST:
            told = f"{_BURST} entries in less than {_BURST_S:g} s: more than the journal would keep; those to come are in log/{self.name}.jsonl"
            self._to_journal({"MESSAGE": told, "PRIORITY": "4", "BUBBLES_EVENT": "daemon.warning"})
        return self.burst < _BURST

    def _to_stderr(self, now: float, fields: dict[str, str]) -> None:
        if int(now) != self.second:
            self.second = int(now)
            self.stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
        line = f"<{fields['PRIORITY']}>{self.stamp}.{int(now % 1 * 1000):03d} {self.name} {fields['BUBBLES_EVENT']} {fields['MESSAGE']}"
        for name, value in fields.items():
            if name not in _TOLD:
                line += f" {key(name)}={value}"
        with contextlib.suppress(OSError):  # there is nobody left to tell
            os.write(2, (escaped(line) + "\n").encode())

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()


def _connected(journal: str) -> socket.socket | None:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 0, _JOURNAL_MOST_US))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    try:
        made.connect(journal)
    except OSError:
        made.close()
        return None
    return made


_FIRST = {"PRIORITY", "BUBBLES_EVENT"}
_TOLD = {*_FIRST, "MESSAGE"}
_sink = Sink()


def setup(name: str, *, home: Home | None = None, journal: str | None = None) -> None:
    """Send what follows as the program `name`, a daemon of `home`.

    Goes to journald where stderr leads there (or BUBBLES_LOG=journal), else to the file `log/NAME.jsonl` of the home, and to stderr unless
    that is kept in `log/NAME.log`.
    """
    global _sink
    if journal is None:
        journal = JOURNAL if _stderr_is_the_journal() or os.environ.get("BUBBLES_LOG") == "journal" else ""
    secrets, longest = _sink.secrets, _sink.longest
    _sink.close()
    _sink = Sink(name, journal, os.environ.get("BUBBLES_DEBUG", "") not in ("", "0"), home)
    _sink.secrets, _sink.longest = secrets, longest


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


_given: dict[str, frozenset[str]] = {}


def redact(secrets: Iterable[str], of: str = "settings") -> None:
    """Strike these exact strings (keys, tokens; those under 8 characters are too common to be struck) from every entry to come.

    `of`: whose they are; what was named before as the same one's is forgotten, what is another's stays.
    """
    _given[of] = frozenset(secret for secret in secrets if len(secret) >= 8)
    known = sorted(frozenset().union(*_given.values()), key=len, reverse=True)
    _sink.secrets = re.compile("|".join(map(re.escape, known))) if known else None
    _sink.longest = len(known[0]) if known else 0


def struck(text: str) -> str:
    """`text` as an entry would show it, keys struck out."""
    return _strike(text, _sink.secrets)


def clipped(text: str, most: int) -> str:
    """The first `most` characters of `text` as an entry shows it, and how many are left out.

    A key is struck before the text is cut: what is left of one that is cut in two looks like none. Of a huge text no more is looked at
    than is needed; one that begins with thousands of characters of keys may be cut shorter. A short text is left to `event`.
    """
    return text if len(text) <= most else _sink.clipped(text, most)


def _strike(text: str, secrets: re.Pattern[str] | None) -> str:
    if secrets is not None:
        text = secrets.sub(STRUCK, text)
    for sign, keys in _KEYS.items():
        if sign in text:
            for needle, pattern in keys:
                if needle in text:
                    text = pattern.sub(STRUCK, text)
    if "eyJ" in text:
        text = _WEB_TOKEN.sub(lambda found: STRUCK if found[1] else found[0], text)
    if (":" in text or "." in text) and max(map(len, text.replace(_BETWEEN, " ").split()), default=0) >= _LONG:
        for pattern in _LONG_KEYS:
            text = pattern.sub(STRUCK, text)
    return text


def cut(text: str, most: int) -> str:
    """The first `most` characters of `text`, and how many are left out. What is to be logged is cut by `clipped`.

    >>> cut("abcdef", 4), cut("abcd", 4)
    ('abcd … (2 more characters)', 'abcd')
    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"


def escaped(text: str) -> str:
    """`text` as one line that a terminal may be shown: what would steer the screen is spelled out.

    >>> print(escaped("caf\u00e9\\x1b[2J \u202egnp.exe"))
    café\\x1b[2J \\u202egnp.exe
    """
    return text if text.isprintable() else _STEERS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    short = {10: "\\n", 9: "\\t", 13: "\\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


_quoted: Callable[[str], str] = json.encoder.encode_basestring  # a fifth of what json.dumps costs a value
_KEYS_OF = {"MESSAGE": "message", "PRIORITY": "priority", "BUBBLES_EVENT": "event", "BUBBLES_MESSAGE": "message_id"}


def line(at: float, name: str, fields: dict[str, str]) -> bytes:
    """An entry as a line of JSON: at (epoch seconds), priority (0 to 7), program, event, message; all others are strings.

    A person may look at such a file with any program: what would steer the screen is written as JSON's escapes.
    """
    first = f'{{"at":{at:.6f},"priority":{fields["PRIORITY"]},"program":{_quoted(name)},"event":{_quoted(fields["BUBBLES_EVENT"])}'
    others = [f'"{key(field)}":{_quoted(value)}' for field, value in fields.items() if field not in _FIRST]
    text = f"{first},{','.join(others)}}}"
    if not text.isprintable():
        text = _STEERS.sub(lambda found: json.dumps(found.group())[1:-1], text)
    return text.encode() + b"\n"


def key(field: str) -> str:
    """How a field is called outside the journal. The text of an entry is its `message`; the id of a message is told by `message_id`."""
    found = _KEYS_OF.get(field)
    if found is None:
        found = field.removeprefix("BUBBLES_").lower()
        if len(_KEYS_OF) < 100:
            _KEYS_OF[field] = found
    return found


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
