"""The two kinds of message: what comes in and wakes a session, and what goes out to a chat.

A message is one JSON object on one line. Unknown fields are ignored, so an older program can read what a
newer one wrote; a newer `version` is refused, and the file that holds it is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, TypeVar

from bubbles.errors import DataError, ProtocolError

Body = dict[str, Any]
VERSION = 1
TEXT_MOST = 1_000_000  # bytes of UTF-8 that somebody may write at once
LATEST = 253_402_300_799  # the last second of the year 9999, since the epoch
MIGRATIONS: Mapping[int, Callable[[Body], Body]] = {}  # n: what makes a message of version n one of n + 1


def scrub(text: str) -> str:
    """`text` without lone surrogates (each becomes U+FFFD; a pair becomes its character) and without NUL.

    >>> scrub("\\ud83d\\ude00 \\ud83d|") == "\\U0001f600 \\ufffd|"
    True
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a message came from or goes to: `telegram:42`, or `telegram:42/7` for thread 7 of that chat."""

    channel: str
    chat: str
    thread: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """The address that `text` names. Raises DataError where it names none."""
        channel, colon, chat = text.partition(":")
        if not colon or not channel or not chat or not channel.replace("-", "").replace("_", "").isalnum():
            raise DataError(f"{text!r} is not an address", remedy="write CHANNEL:CHAT, for example telegram:42")
        return cls(channel, chat)

    def __str__(self) -> str:
        return f"{self.channel}:{self.chat}" + (f"/{self.thread}" if self.thread else "")


@dataclass(frozen=True, slots=True)
class Sender:
    """Who wrote a message. `owner` is set by the channel, from its allow-list and pairings, never from the text; `bot`: a program, not a person."""

    id: str = ""
    name: str = ""
    owner: bool = False
    bot: bool = False


@dataclass(frozen=True, slots=True)
class Media:
    """A file beside a message: `path` is where it lies now, `name` what its sender called it, `size` in bytes."""

    path: str
    name: str = ""
    type: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Inbound:
    """What wakes a session. `at` is epoch seconds; `origin` is "user" or "system" and, like `channel`, is taken from the queue it lies in."""

    id: str
    at: float
    channel: str
    chat: str
    text: str = ""
    thread: str = ""
    message: str = ""  # the platform's own id of it
    is_group: bool = False
    mentioned: bool = False
    wakes: bool = True
    sender: Sender = field(default_factory=Sender)
    media: tuple[Media, ...] = ()
    quote: str = ""
    edit_of: str = ""
    origin: str = "user"
    job: str = ""
    session: str = ""  # an explicit session key; only a terminal, a shell or a job may name one
    version: int = VERSION

    @property
    def address(self) -> Address:
        return Address(self.channel, self.chat, self.thread)


@dataclass(frozen=True, slots=True)
class Outbound:
    """What goes to a chat. `origin`: "reply", "progress", "tool", "apology", "notice", "shell" or "job" (an outcome told to cron)."""

    id: str
    at: float
    channel: str
    chat: str
    text: str = ""
    thread: str = ""
    reply_to: str = ""  # the platform's id of the message that this answers
    media: tuple[Media, ...] = ()
    session: str = ""
    turn: str = ""
    origin: str = "reply"
    job: str = ""
    version: int = VERSION


Message = TypeVar("Message", Inbound, Outbound)


def migrate(body: Body, version: int, steps: Mapping[int, Callable[[Body], Body]], what: str) -> Body:
    """`body` in the form of `version`, one step a version; one that says none is of this one. Every kind of file that we write is read so.

    `what` names it in errors. Raises ProtocolError for a newer one, DataError where its version is none.

    >>> migrate({"version": 1, "old": 3}, 2, {1: lambda body: {"new": body["old"]}}, "a list")
    {'new': 3, 'version': 2}
    """
    found = body.get("version", version)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise DataError(f"{what}: 'version' is {found!r}, not a number from 1 to {version}")
    if found > version:
        raise ProtocolError(f"{what} is of version {found}; this program knows {version}", remedy="update Bubbles; it was left as it is")
    for step in range(found, version):
        body = {**steps[step](body), "version": step + 1}
    return body


def to_dict(message: Inbound | Outbound) -> dict[str, Any]:
    """The JSON object of a message."""
    return asdict(message)


def from_dict(cls: type[Message], body: Body) -> Message:
    """The message that a JSON object holds. Raises DataError for a missing, ill-typed or impossible field, ProtocolError for a newer version."""
    return cls(**_known(cls, migrate(body, VERSION, MIGRATIONS, "a message"), ""))


_TYPES: dict[str, type[Any]] = {"version": int, "size": int, **dict.fromkeys(("is_group", "mentioned", "wakes", "owner", "bot"), bool)}
_SIZE_MOST = 2**63 - 1


def _known(cls: type, body: Any, where: str) -> dict[str, Any]:
    """The fields that `cls` has, checked. `where` stands before their names in errors: "" or "sender."."""
    if not isinstance(body, dict):
        raise DataError(f"{where.rstrip('.')!r} is not an object")
    known: dict[str, Any] = {}
    for item in fields(cls):
        if item.name in body:
            known[item.name] = _field(cls, item.name, body[item.name], where)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise DataError(f"a message without {where + item.name!r}")
    return known


def _field(cls: type[Any], name: str, value: Any, where: str) -> Any:
    if name == "sender":
        return Sender(**_known(Sender, value, "sender."))
    if name == "media":
        if not isinstance(value, list | tuple):
            raise DataError("'media' is not a list")
        return tuple(Media(**_known(Media, one, f"media[{place}].")) for place, one in enumerate(value))
    if name == "at":
        return _time(value)
    wanted = _TYPES.get(name, str)
    if type(value) is not wanted:
        raise DataError(f"{where + name!r} is {type(value).__name__}, not {wanted.__name__}")
    if isinstance(value, str):
        return _text(cls, name, scrub(value), where)
    if name == "size" and not 0 <= value <= _SIZE_MOST:
        raise DataError(f"{where + name!r} is no size of a file")
    return value


def _text(cls: type, name: str, text: str, where: str) -> str:
    if name == "path" and not text:
        raise DataError(f"{where + name!r} is empty")
    if cls is Inbound and name in ("text", "quote"):
        check_text(text, name)
    return text


def _time(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"'at' is {type(value).__name__}, not float")
    if not 0 <= value <= LATEST:  # nor NaN
        raise DataError(f"'at' is no time from 0 to {LATEST}")
    return value


def check_text(text: str, name: str = "text") -> None:
    """Raises DataError for what is longer than anybody may write in one message."""
    if len(text) * 4 > TEXT_MOST and len(text.encode("utf-8", "surrogatepass")) > TEXT_MOST:
        raise DataError(f"{name!r} is longer than {TEXT_MOST} bytes; put it in a file", remedy="put it in a file and say where it lies")


def to_line(body: dict[str, Any]) -> bytes:
    """One JSON object as one line of ASCII, ending in "}\\n": a line without that ending was never written whole."""
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes | str) -> dict[str, Any]:
    """The JSON object on a line. Raises DataError where there is none."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a JSON object: {error}") from error
    if not isinstance(body, dict):
        raise DataError("not a JSON object")
    return body
