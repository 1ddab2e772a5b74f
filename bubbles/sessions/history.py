"""The history of a session, `session.jsonl`: what was said, as it goes to a model, and lines about it.

    {"format":"bubbles.history","version":1,"session":"work","name":"work","at":1764500400.0}
    {"role":"user","content":"…"}                            a message, in the form in which it is sent
    {"meta":"turn","turn":"cli-1","end":true,…}             the turn that these messages belong to ends here
                                                             (with "refused":true a provider would not take its last words: see `_blanked`)
    {"meta":"compaction","summary":"…","kept":4,"at":…}     what lies before, but its last 4 messages, is now this summary (more of it: `compact`)
    {"meta":"heard","id":"…","text":"…","header":"…","at":…} words said near the assistant and not to it: shown with the next that are
    {"meta":"new","at":…}                                    a person began anew: what lies before is not sent any more

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
from bubbles.kernel.summary import HEAD
from bubbles.messages import LATEST, from_line, migrate, scrub
from bubbles.sessions.journal import append

Meta = dict[str, Any]
FORMAT = "bubbles.history"
VERSION = 1
MIGRATIONS: dict[int, Callable[[Meta], Meta]] = {}  # version: from its header to the next one's
_REMEMBERED = 64  # turns whose message ids are kept in memory, against a second coming after a crash
_HEARD_MOST = 50  # words that were overheard and are still to be shown; older ones stand in the file alone
_USER, _TOOL, _ASSISTANT = b'{"role":"user"', b'{"role":"tool"', b'{"role":"assistant"'
_SUMMARY = encode({"role": "user", "content": HEAD}).removesuffix(b'"}')
_PLAIN = {"role", "content"}
_KEYS = {"user": _PLAIN, "assistant": {*_PLAIN, "tool_calls", "reasoning_content"}, "tool": {*_PLAIN, "tool_call_id"}}
_WHOLE = Shape(reasoning="keep")
_REFUSED_WORDS = "[What was said here was refused by the model's provider. It is not sent again.]"
_REFUSED_RESULT = "[This result was refused by the model's provider. It is not sent again.]"


def settled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`messages` as a past that any words may follow: every call answered, roles in turn, an assistant last where one was."""
    if not messages or messages[-1].get("role") == "user":
        return build(messages, _WHOLE) if messages else []
    return build([*messages, {"role": "user", "content": "-"}], _WHOLE)[:-1]


class History:
    """One session's history, in memory as far as the model still sees it.

    `lines` are the messages since the last compaction, oldest first, as bytes; a summary of what came before
    stands at its head. `generation` counts the compactions and new beginnings: with the session's key it names the stretch.
    `heard` are the words that were overheard and not shown yet, oldest first.
    """

    def __init__(self, path: Path, *, session: str, name: str = "") -> None:
        self.path = path
        self.lines: list[bytes] = []
        self.generation = 0
        self.count = 0  # messages in the file
        self.damaged = 0  # lines of the file that could not be read
        self.copied: Any = None  # what the last compaction copied beside its summary (bubbles.kernel.summary.Kept)
        self.cut_aside: Path | None = None  # what stood behind the last whole turn, where that was more than a torn tail
        self.ended: deque[Meta] = deque(maxlen=_REMEMBERED)  # the last `end` lines
        self.heard: deque[Meta] = deque(maxlen=_HEARD_MOST)
        self._known: set[str] = set()  # the messages of the last turns
        self._heard_ids: deque[str] = deque(maxlen=8 * _HEARD_MOST)  # shown ones too, against a second coming after a crash
        self._fresh = {"format": FORMAT, "version": VERSION, "session": session, "name": name or session}
        self._fd = _opened(path)
        own = os.fstat(self._fd)
        self._inode = own.st_dev, own.st_ino
        try:
            self._load()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def fd(self) -> int:
        return self._fd

    def close(self) -> None:
        """Let go of the file. Whoever writes after that fails, and does not meet a file that has got the same number since."""
        os.close(self._fd)
        self._fd = -1

    def knows(self, message: str) -> bool:
        """Whether a message of this id is in one of the last turns, or was overheard lately."""
        return message in self._known or message in self._heard_ids

    def ended_turn(self, turn: str) -> bool:
        """Whether this turn is among the last that ended."""
        return any(end.get("turn") == turn for end in self.ended)

    def end_of_turn(self, turn: str) -> Meta | None:
        """The `end` line of a turn that is among the last that ended."""
        return next((end for end in self.ended if end.get("turn") == turn), None)

    def end_of(self, message: str) -> Meta | None:
        """The `end` line of the turn that a message was in, looked for in the whole file; None if it is in none."""
        for end in reversed(list(self.ended)):
            if _holds(end, message):
                return end
        for line in reversed(list(self.file_lines())):
            if line.startswith(b'{"meta":"turn"') and message.encode() in line:
                found = _parsed(line)
                if found is not None and _is_sound(found) and _holds(found, message):
                    return found
        return None

    def add_turn(self, messages: list[bytes], end: Meta) -> None:
        """Append a turn's messages and its `end` line at once. Raises OSError (then nothing of it stays); the caller syncs `fd`."""
        line = {"meta": "turn", **end, "end": True}
        self._append([*messages, encode(line)])
        self._take(messages, refused=bool(end.get("refused")))
        self._ended(line)

    def overhear(self, id: str, text: str, header: str, at: float, address: Meta) -> None:
        """Append words that wake nobody. `address`: channel, chat, thread. Raises OSError; the caller syncs `fd`."""
        line = {"meta": "heard", "id": id, "text": text, "header": header, "at": at, **address}
        self._append([encode(line)])
        self._overheard(line)

    def begin_anew(self, at: float) -> None:
        """Let nothing that was said so far be sent any more; it stays in the file. Raises OSError; the caller syncs `fd`."""
        self._append([encode({"meta": "new", "at": at})])
        self._anew()

    def compact(self, summary: str, kept: int, at: float, **told: Any) -> None:
        """Let `summary` stand for all but the last `kept` messages. Raises OSError; the caller syncs `fd`.

        `told`: `copied` (to be merged into the next one), `how` it was made, `sha256` of the lines it stands for, tokens `before` and `after`.
        """
        self._append([encode({"meta": "compaction", "summary": summary, "kept": kept, "at": at, **told})])
        self._compacted(summary, kept, told.get("copied"))

    def is_current(self) -> bool:
        """Whether the file that is open here still is the one at its path: a person may have moved, restored or removed the session."""
        try:
            found = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def file_lines(self) -> Iterator[bytes]:
        """Every line of the file, oldest first, without its newline."""
        offset, rest = 0, b""
        while piece := os.pread(self._fd, 1 << 20, offset):
            offset += len(piece)
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
        if rest:
            yield rest

    def _take(self, messages: list[bytes], *, refused: bool = False) -> None:
        """Add a turn's messages to those in memory. Words that got no answer and those after them are one message there: roles take turns."""
        self.count += len(messages)
        if refused:
            messages = _blanked(messages)
            if messages and not any(map(_is_answer, messages)) and _is_words(self.lines[-1:]):
                self.lines = self.lines[:-1]  # those before it that got no answer either: they were refused together
        if self.lines and messages and self.lines[-1].startswith(_USER) and messages[0].startswith(_USER):
            first, second = json.loads(self.lines.pop()), json.loads(messages[0])
            messages = [encode({**first, "content": f"{first['content']}\n\n{second['content']}"}), *messages[1:]]
        self.lines += messages

    def _ended(self, end: Meta) -> None:
        if len(self.ended) == _REMEMBERED:
            self._known.difference_update(_ids(self.ended[0]))
        self.ended.append(end)
        self._known.update(_ids(end))
        if shown := end.get("heard"):
            self.heard = deque((one for one in self.heard if one["id"] not in shown), maxlen=_HEARD_MOST)

    def _overheard(self, line: Meta) -> None:
        self.heard.append(line)
        self._heard_ids.append(str(line["id"]))

    def _anew(self) -> None:
        self.lines = []
        self.heard.clear()
        self.copied = None
        self.generation += 1

    def _compacted(self, summary: str, kept: int, copied: Any) -> None:
        tail = self.lines[len(self.lines) - kept :] if kept else []
        head = {"role": "user", "content": HEAD + summary}
        if tail and (first := json.loads(tail[0]))["role"] == "user":
            head["content"] += "\n\n" + first["content"]
            tail = tail[1:]
        self.lines = [encode(head), *tail]
        self.copied = copied
        self.generation += 1

    def _append(self, lines: list[bytes]) -> None:
        append(self._fd, b"".join(line + b"\n" for line in lines))

    def _load(self) -> None:
        pending: list[bytes] = []
        bodies: list[Meta] = []
        ids: set[str] = set()
        is_whole = True
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
                    bodies.append(body)
                else:
                    self._meta(body, pending)
                    is_whole = is_whole and _is_turn(bodies, ids) and not any(line.startswith(_TOOL) for line in self.lines[:2])
                    pending, bodies = [], []
                    good = offset
        self._cut(good, aside=broken_at > good)
        if not good:
            self._append([encode({**self._fresh, "at": time.time()})])
        if self.damaged or not is_whole:
            self.lines = [encode(m) for m in settled([json.loads(line) for line in self.lines])]

    def _meta(self, meta: dict[str, Any], pending: list[bytes]) -> None:
        if "format" in meta:
            self._header(meta)
        self._take(pending, refused=bool(meta.get("refused")))
        match meta.get("meta"):
            case "turn":
                self._ended(meta)
            case "heard":
                self._overheard(meta)
            case "new":
                self._anew()
            case "compaction":
                self._compacted(str(meta.get("summary", "")), min(int(meta.get("kept", 0)), len(self.lines)), meta.get("copied"))

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
            self.cut_aside = beside
        os.ftruncate(self._fd, end)


def _blanked(messages: list[bytes]) -> list[bytes]:
    """The messages of a turn whose last request was refused: what no answer followed may be why, and a note stands for it. The file has the words."""
    start = max((n for n, line in enumerate(messages) if _is_answer(line)), default=-1) + 1
    return [*messages[:start], *map(_note, messages[start:])]


def _note(line: bytes) -> bytes:
    message = json.loads(line)
    return encode({**message, "content": _REFUSED_RESULT if message["role"] == "tool" else _REFUSED_WORDS})


def _is_words(lines: list[bytes]) -> bool:
    return any(line.startswith(_USER) and not line.startswith(_SUMMARY) for line in lines)


def _is_answer(line: bytes) -> bool:
    return line.startswith(_ASSISTANT)


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
        return _is_sound_meta(body)
    content = body.get("content")
    if body["role"] not in ("user", "assistant", "tool") or not isinstance(content, str) or content != scrub(content):
        return False
    if body["role"] == "assistant":
        return bool(content or body.get("tool_calls")) and isinstance(body.get("tool_calls", []), list)
    return bool(content) and (body["role"] == "user" or isinstance(body.get("tool_call_id"), str))


def _is_turn(messages: list[Meta], ids: set[str]) -> bool:
    """Whether these are the messages of a turn as it is written here, and no hand has taken lines out or put some in: no provider would take them.

    A user first, roles in turn, each call answered right after, in order; `ids` are those of all calls so far, and those of the turn are added.
    """
    awaited: list[str] = []
    before = "assistant"
    for message in messages:
        role, calls = message["role"], message.get("tool_calls", ())
        if message.keys() - _KEYS[role] or not (calls or str(message["content"]).strip()) or not all(map(_is_call, calls)):
            return False
        if role == "tool":
            if not awaited or awaited.pop(0) != message["tool_call_id"]:
                return False
        elif awaited or role == before or (role == "assistant" and message is messages[0]):
            return False
        awaited += [call["id"] for call in calls]
        if not ids.isdisjoint(awaited if calls else ()):
            return False
        ids.update(awaited if calls else ())
        before = role
    return not awaited


def _is_call(call: Any) -> bool:
    return isinstance(call, dict) and call.keys() == {"id", "type", "function"} and isinstance(call["id"], str)


def _is_sound_meta(meta: Meta) -> bool:
    if meta.get("meta") == "heard":
        return all(isinstance(meta.get(name), str) for name in ("id", "text", "header")) and _is_time(meta.get("at"))
    if meta.get("meta") == "turn":
        return _is_sound_end(meta)
    kept = meta.get("kept", 0)
    return isinstance(kept, int) and kept >= 0


def _is_sound_end(end: Meta) -> bool:
    """Whether an `end` line has all that is read of one, in its shape."""
    says, messages = end.get("says", []), end.get("messages", [])
    if not (isinstance(says, list) and isinstance(messages, list) and isinstance(end.get("heard", []), list) and _is_time(end.get("at"))):
        return False
    texts = (end.get("turn"), end.get("outcome"), end.get("notice", ""), *says)
    return all(isinstance(text, str) for text in texts) and all(_is_sound_word(word, len(says)) for word in messages)


def _is_sound_word(word: Any, says: int) -> bool:
    """Whether an `end` line tells so of a message: its id and, where one answers it, which of so many sayings does."""
    if not isinstance(word, dict) or not isinstance(word.get("id"), str):
        return False
    return "said" not in word or (isinstance(word["said"], int) and 0 <= word["said"] < says)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= LATEST


def _ids(end: Meta) -> list[str]:
    """The messages of a turn, by its `end` line."""
    return [str(m.get("id")) for m in end.get("messages", ())]


def _holds(end: Meta, message: str) -> bool:
    return message in _ids(end)


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        return from_line(line)
    except DataError:
        return None
