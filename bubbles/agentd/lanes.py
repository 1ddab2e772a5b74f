"""Messages that wait in their queue because their session cannot take them in yet: which they are, and in which order.

A lane is what one chat says to a session, or what the system does: people do not wait behind a clock, nor one chat behind
another. It does not know queues; what waits is a file in new/, and only its name is kept here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Lane(NamedTuple):
    """One line of messages into a session; `chat` is "" for the system's."""

    session: str
    chat: str


Place: TypeAlias = tuple[str, str]  # queue, id


class Lanes:
    """The lanes in which something waits."""

    def __init__(self) -> None:
        self._waiting: dict[Lane, dict[Place, None]] = {}
        self._lanes: dict[Place, Lane] = {}
        self._shut: dict[Lane, bool] = {}  # and whether only an idle session opens it

    def __contains__(self, place: Place) -> bool:
        return place in self._lanes

    def is_held_back(self, place: Place) -> bool:
        """Whether it need not be looked at before its lane is open again."""
        return self._lanes.get(place) in self._shut

    def is_next(self, lane: Lane, place: Place) -> bool:
        """Whether nothing waits in the lane before it."""
        return self.first(lane) in (None, place)

    def first(self, lane: Lane) -> Place | None:
        return next(iter(self._waiting.get(lane, ())), None)

    def wait(self, lane: Lane, place: Place) -> None:
        """It waits, last in its lane unless it did before."""
        if self._lanes.get(place, lane) != lane:  # its chat enters another session now
            self.passed(place)
        self._waiting.setdefault(lane, {})[place] = None
        self._lanes[place] = lane

    def shut(self, lane: Lane, *, until_idle: bool) -> None:
        """Whatever waits in the lane need not be looked at before `reopen`."""
        self._shut[lane] = until_idle

    def passed(self, place: Place) -> bool:
        """It does not wait any more. Whether others do that waited behind it."""
        lane = self._lanes.pop(place, None)
        if lane is None:
            return False
        waiting = self._waiting[lane]
        del waiting[place]
        if not waiting:
            del self._waiting[lane]
            self._shut.pop(lane, None)
        return bool(waiting)

    def reopen(self, session: str, *, idle: bool) -> list[Lane]:
        """The session has room again, or is idle, too. The lanes that were shut and are not any more."""
        opened = [lane for lane, until_idle in self._shut.items() if lane.session == session and idle >= until_idle]
        for lane in opened:
            del self._shut[lane]
        return opened

    def count(self, session: str) -> int:
        """How many messages wait for a session."""
        return sum(len(waiting) for lane, waiting in self._waiting.items() if lane.session == session)
