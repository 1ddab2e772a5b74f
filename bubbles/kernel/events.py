"""What has happened in a turn: each event is one line of its journal.

A journal is a header line and then events. Only its last line can be torn (`from_line` raises DataError for it);
a line that a newer program wrote raises ProtocolError, and the file is then left alone.

>>> line = to_line(ToolStarted("c1"), at=1764500400.0)
>>> line
b'{"event":"ToolStarted","written":1764500400.0,"call":"c1"}\\n'
>>> from_line(line)
ToolStarted(call='c1')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, NamedTuple, TypeAlias

from bubbles import messages
from bubbles.errors import DataError, ProtocolError
from bubbles.messages import Address, Media

FORMAT = "bubbles.journal"
VERSION = 1
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}  # version: from its header to the next one's


@dataclass(frozen=True, slots=True)
class Call:
    """A model's wish to use a tool. `arguments` is JSON text exactly as the model gave it, and may be none; `id` is unique in its turn."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class UserSpoke:
    """Words for the model: it sees `header`, a line break, `text`. `at` is epoch seconds, `message` the platform's id, origin "user" or "system"."""

    id: str
    text: str
    header: str = ""
    address: Address = Address("", "")
    message: str = ""
    is_group: bool = False
    owner: bool = True
    mentioned: bool = True  # said to the assistant; not so in a group where it listens to everything
    origin: str = "user"
    media: tuple[Media, ...] = ()
    job: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """Words that were said near the assistant and not to it: shown with the next words that are, and waking nobody."""

    id: str
    text: str
    header: str = ""
    address: Address = Address("", "")
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class ModelAsked:
    """A request is about to leave; `ask` is `<turn>.<n>`. All words that were waiting are in it, unless it repeats the last, unanswered `ask`."""

    ask: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """What came back. Text beside calls is progress, text without calls is a reply. `aside` is for people alone: which other model it was."""

    text: str
    calls: tuple[Call, ...] = ()
    reasoning: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    model: str = ""
    provider: str = ""
    stop: str = ""
    aside: str = ""


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """No answer. `category` is a ModelError's kind, or "preempted": cancelled by us because the user spoke, which counts as no failure.

    `of_words`: the provider refused what was said. `usage`: of its requests, as far as anything is known of that.
    """

    category: str
    attempts: int = 0
    text: str = ""
    of_words: bool = False
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The call is about to have effects. On disk before it has any."""

    call: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """The call has ended; `text` is its result for the model, already clipped. `ok` is for people's eyes."""

    call: str
    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """The n-th saying of the turn is in the outgoing queue of each of its addresses."""

    n: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """What lies before this turn (prompt, tools, history) now weighs `base_tokens`."""

    base_tokens: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalAsked:
    """A person was asked whether the call may run."""

    call: str


@dataclass(frozen=True, slots=True)
class ApprovalGiven:
    """The person's answer, or the denial that stands for none."""

    call: str
    allowed: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """A person wants the turn to end now."""

    by: str = ""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A new process took the journal up. Whatever was running then is not running now."""


Event: TypeAlias = (
    UserSpoke
    | Heard
    | ModelAsked
    | ModelAnswered
    | ModelFailed
    | ToolStarted
    | ToolFinished
    | Said
    | Compacted
    | ApprovalAsked
    | ApprovalGiven
    | Stopped
    | Resumed
)
KINDS: dict[str, type[Event]] = {
    cls.__name__: cls
    for cls in (
        UserSpoke, Heard, ModelAsked, ModelAnswered, ModelFailed, ToolStarted, ToolFinished,
        Said, Compacted, ApprovalAsked, ApprovalGiven, Stopped, Resumed,
    )
}  # fmt: skip


class Header(NamedTuple):
    """The first line of a journal."""

    turn: str
    session: str
    origin: str


def header(turn: str, session: str, origin: str = "user") -> bytes:
    """The first line of the journal of `turn`."""
    return messages.to_line({"format": FORMAT, "version": VERSION, "turn": turn, "session": session, "origin": origin})


def read_header(line: bytes) -> Header:
    """What a journal's first line says. Raises DataError where it is torn or no journal's, ProtocolError where a newer program wrote it."""
    body = _object(line)
    if body.get("format") != FORMAT:
        raise DataError("not the first line of a turn's journal")
    body = messages.migrate(body, VERSION, MIGRATIONS, "a journal")
    found = Header(*(_text(body.get(name), name) for name in Header._fields))
    if found.origin not in ("user", "system"):
        raise DataError(f"a turn's origin is user or system, not {found.origin!r}")
    return found


def to_line(event: Event, at: float) -> bytes:
    """One line of a journal, ending in "}\\n"; `at` is when it was written (epoch seconds). Fields that hold their default are left out."""
    body: dict[str, Any] = {"event": type(event).__name__, "written": at}
    for name, default in _DEFAULTS[type(event)]:
        value = getattr(event, name)
        if value != default:
            body[name] = _plain(value)
    return messages.to_line(body)


def from_line(line: bytes) -> Event:
    """The event that a line tells of. Raises DataError where the line is torn or wrong, ProtocolError where a newer program wrote it."""
    body = _object(line)
    name = _text(body.get("event"), "event")
    cls = KINDS.get(name)
    if cls is None:
        raise ProtocolError(f"an event this program does not know: {name!r}", remedy="update Bubbles")
    event: Event = _build(cls, body)
    return event


def _object(line: bytes) -> dict[str, Any]:
    if not line.endswith(b"}\n"):
        raise DataError("a line of a journal that was never written whole")
    return messages.from_line(line)


def _build(cls: Any, body: dict[str, Any]) -> Any:
    known = {}
    for item in fields(cls):
        if item.name in body:
            known[item.name] = _READ[str(item.type)](body[item.name], item.name)
        elif _default(item) is MISSING:
            raise DataError(f"{cls.__name__}: no {item.name!r}")
    return cls(**known)


def _default(item: Any) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


# By kind: each field and its default, for lines are written all the time.
_DEFAULTS: dict[type, list[tuple[str, Any]]] = {cls: [(item.name, _default(item)) for item in fields(cls)] for cls in KINDS.values()}


def _plain(value: Any) -> Any:
    if isinstance(value, str | float):
        return value
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if isinstance(value, Call | Address | Media) else value


def _reader(*types: type) -> Callable[[Any, str], Any]:
    def read(value: Any, name: str) -> Any:
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise DataError(f"{name!r} is {type(value).__name__}, not {types[0].__name__}")
        return value

    return read


_text = _reader(str)
_dict = _reader(dict)


def _many(cls: type) -> Callable[[Any, str], Any]:
    return lambda value, name: tuple(_build(cls, _dict(one, name)) for one in _reader(list)(value, name))


def _counts(value: Any, name: str) -> dict[str, int]:
    return {key: _reader(int)(count, name) for key, count in _dict(value, name).items()}


_READ: dict[str, Callable[[Any, str], Any]] = {
    "str": _text,
    "int": _reader(int),
    "float": _reader(float, int),
    "bool": _reader(bool),
    "Address": lambda value, name: _build(Address, _dict(value, name)),
    "dict[str, int]": _counts,
    "tuple[Call, ...]": _many(Call),
    "tuple[Media, ...]": _many(Media),
}
