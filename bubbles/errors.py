"""Every error that Bubbles names, who learns of it, and what it does to the process.

    BubblesError                temporary?  exit   who learns of it
    ├─ Usage                    no          64     the person at the terminal
    ├─ Misconfigured            no          78     the person at the terminal
    ├─ DataError                no          65     the person at the terminal
    ├─ Unavailable              yes         69     the caller; a door that is closed
    ├─ TryAgain                 yes         75     the caller; disk full, lock held
    ├─ ProtocolError            no          76     the log
    ├─ NeedBase                 yes                the caller, which sends all again
    ├─ ModelError(attempts)                        the user, by category alone
    │  ├─ RateLimited           yes
    │  ├─ ModelDown             yes                5xx, timeout, connection
    │  ├─ ContextTooLong        once, compacted
    │  ├─ NotAuthorized         no
    │  ├─ Rejected              no
    │  └─ OverBudget            no                  agentd's own: nobody was asked
    ├─ ToolError                                   the model, as the call's result; never the user
    │  ├─ TimedOut  ├─ OutsideWorkspace  └─ Refused
    └─ DeliveryError                               the queue
       ├─ NotNow(until)         yes                → defer
       └─ NotEver(why)          no                 → hold

Anything else is a bug: it is caught in a program's `main`, an actor's loop and a channel's loop, and nowhere else.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar

# What an operating system refuses now and may grant later: no room, no descriptors, a disk in trouble.
PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})

OK = 0
NO = 1
USAGE = 64
DATAERR = 65
UNAVAILABLE = 69
SOFTWARE = 70
TEMPFAIL = 75
PROTOCOL = 76
CONFIG = 78


class BubblesError(Exception):
    """An error with a name: `text` says what is wrong, `remedy` what to do or type next ("" if nothing)."""

    kind: ClassVar[str] = "error"
    temporary: ClassVar[bool] = False
    exit: ClassVar[int] = SOFTWARE
    details: ClassVar[tuple[str, ...]] = ()  # further attributes that cross the wire

    def __init__(self, text: str, *, remedy: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy


class Usage(BubblesError):
    """The call itself is wrong."""

    kind, exit = "usage", USAGE


class Misconfigured(BubblesError):
    """A file or setting of the owner's is wrong, and only the owner can mend it."""

    kind, exit = "misconfigured", CONFIG


class DataError(BubblesError):
    """What came in on standard input or in a file is not what it should be."""

    kind, exit = "data", DATAERR


class Unavailable(BubblesError):
    """Nobody answers at a door."""

    kind, exit, temporary = "unavailable", UNAVAILABLE, True


class TryAgain(BubblesError):
    """It cannot be done now and may be later: the disk is full, a lock is held."""

    kind, exit, temporary = "try_again", TEMPFAIL, True


class ProtocolError(BubblesError):
    """The peer, or a file, speaks another version."""

    kind, exit = "protocol", PROTOCOL


class NeedBase(BubblesError):
    """What a request refers to is not there any more (or not yet); the caller sends all of it."""

    kind, temporary = "need_base", True


class ModelError(BubblesError):
    """A model could not be asked; `attempts` requests were made. The user is told the category (the kind) alone.

    `may_cost`: the provider was at work on the last of them when it failed, and nobody tells what it takes for that. `spent`: of all of them that
    may cost, what bubbles.providers.running guesses.
    """

    kind = "model"
    details: ClassVar[tuple[str, ...]] = ("attempts", "spent")
    may_cost = False

    def __init__(self, text: str, *, remedy: str = "", attempts: int = 1) -> None:
        super().__init__(text, remedy=remedy)
        self.attempts = attempts
        self.spent: dict[str, int] = {}


class RateLimited(ModelError):
    """The provider refuses for now; `retry_after_s` is its own word on how long (0: it did not say)."""

    kind, temporary, details = "rate_limited", True, (*ModelError.details, "retry_after_s")

    def __init__(self, text: str, *, remedy: str = "", attempts: int = 1, retry_after_s: float = 0.0) -> None:
        super().__init__(text, remedy=remedy, attempts=attempts)
        self.retry_after_s = retry_after_s


class ModelDown(RateLimited):
    """A server fault, a time-out, or no connection."""

    kind = "model_down"

    @classmethod
    def midway(cls, text: str) -> ModelDown:
        """One that came when the request was out: nobody tells what it cost."""
        error = cls(text)
        error.may_cost = True
        return error


class ContextTooLong(ModelError):
    """The request does not fit the model's window."""

    kind = "context_too_long"


class NotAuthorized(ModelError):
    """The key is missing, wrong, or not allowed this model; with `no_credit` it is right, and its account is empty."""

    kind, details = "not_authorized", (*ModelError.details, "no_credit")

    def __init__(self, text: str, *, remedy: str = "", attempts: int = 1, no_credit: bool = False) -> None:
        super().__init__(text, remedy=remedy, attempts=attempts)
        self.no_credit = no_credit


class Rejected(ModelError):
    """The provider will not answer this request, however often it is asked; `of_words`: for what it says, and not for how or where it was asked."""

    kind, details = "rejected", (*ModelError.details, "of_words")

    def __init__(self, text: str, *, remedy: str = "", attempts: int = 1, of_words: bool = False) -> None:
        super().__init__(text, remedy=remedy, attempts=attempts)
        self.of_words = of_words


class OverBudget(ModelError):
    """What may be spent on models today is spent; `text` says so in the words of whoever is told, with when it ends."""

    kind = "over_budget"


class ToolError(BubblesError):
    """A tool could not do it; the text becomes the call's result for the model."""

    kind = "tool"


class TimedOut(ToolError):
    """The tool took longer than it may."""

    kind = "timed_out"


class OutsideWorkspace(ToolError):
    """A path leads out of the session's directory and of every granted workspace."""

    kind = "outside_workspace"


class Refused(ToolError):
    """Policy forbids it."""

    kind = "refused"


class DeliveryError(BubblesError):
    """A message could not be handed to a platform."""

    kind = "delivery"


class NotNow(DeliveryError):
    """Try again at `until` (epoch seconds; 0: as the message's age says)."""

    kind, temporary, details = "not_now", True, ("until",)

    def __init__(self, text: str, *, remedy: str = "", until: float = 0.0) -> None:
        super().__init__(text, remedy=remedy)
        self.until = until


class NotEver(DeliveryError):
    """The platform refuses it for good."""

    kind = "not_ever"


def _tree(root: type[BubblesError]) -> dict[str, type[BubblesError]]:
    """The class of each kind; a subclass without a kind of its own, wherever it is defined, is told as what it is one of."""
    found = {root.kind: root} if "kind" in vars(root) else {}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


def to_wire(error: BaseException) -> dict[str, Any]:
    """The `error` object of a reply: kind, temporary, text, remedy and the kind's own details. A bug is told as `error` with no text of its own."""
    if not isinstance(error, BubblesError):
        return {"kind": "error", "temporary": False, "text": "an internal error; the log has the traceback"}
    wire: dict[str, Any] = {"kind": error.kind, "temporary": error.temporary, "text": error.text}
    if error.remedy:
        wire["remedy"] = error.remedy
    for name in error.details:
        wire[name] = getattr(error, name)
    return wire


def from_wire(wire: dict[str, Any]) -> BubblesError:
    """The error that a reply's `error` object tells of; a kind of a newer peer becomes a plain BubblesError."""
    cls = _tree(BubblesError).get(str(wire.get("kind")), BubblesError)
    error = cls(str(wire.get("text", "")), remedy=str(wire.get("remedy", "")))
    for name in cls.details:
        if name in wire:
            setattr(error, name, wire[name])
    return error
