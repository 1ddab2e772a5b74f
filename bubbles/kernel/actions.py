"""What a turn wants done next. An action is performed outside the kernel and comes back as events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bubbles.kernel.events import Call, UserSpoke


@dataclass(frozen=True, slots=True)
class AskModel:
    """Send `turn.request()` under the id `<turn>.<n>`. Comes back as ModelAsked (at once), then ModelAnswered or ModelFailed."""

    n: int


@dataclass(frozen=True, slots=True)
class RunTools:
    """Run these calls: one, or several that are all free of side effects. Each comes back as ToolStarted, ToolFinished."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """Put `text` into the queue of each address in `to`: the last words per address that were first shown since the last Say. Comes back as Said."""

    n: int
    text: str
    to: tuple[UserSpoke, ...] = ()


@dataclass(frozen=True, slots=True)
class Compact:
    """Shorten what lies before this turn. `why`: "window" (it would not fit) or "context_too_long" (a provider said it). Comes back as Compacted."""

    why: str


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask a person whether the call may run. Comes back as ApprovalAsked (at once), then ApprovalGiven."""

    call: Call


@dataclass(frozen=True, slots=True)
class Close:
    """The turn is over: "replied", "silent" (keep nothing), "stopped", "limit", or "failed:CATEGORY". `turn.waiting` belongs to the next turn."""

    outcome: str


Action: TypeAlias = AskModel | RunTools | Say | Compact | AskApproval | Close
