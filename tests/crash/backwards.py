"""`bubbles backup`, broken on purpose in one place: what it has to do with the order in which homes are read, the judge must see.

    python -m tests.crash.backwards FAULT [ARGUMENT ...]

The fault `slowly` is none: the order is the right one, and only takes so long that much happens in its midst. The judge must see nothing.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from bubbles.archive import moment, saving
from bubbles.archive.moment import Homes, Mark
from bubbles.archive.saving import Saving
from bubbles.archive.spool import Queues

_LATE_S = 0.3  # so long the order is given to show
_SOON_S = 0.15  # so short that no turn may have ended meanwhile
_SLOW_S = 0.03
SLOWLY = "slowly"


def _journals_first() -> None:
    """Journals and histories are those from before the queues were read: who moves on meanwhile is in neither."""
    original = saving.agree

    def agree(root: Any, homes: Any, found: Any, before: dict[str, Mark], alone: Any) -> Any:
        homes.marks = lambda **_: before
        try:
            return original(root, homes, found, before, moment.stats(root))
        finally:
            del homes.marks

    saving.agree = agree  # type: ignore[assignment]
    read = Homes.read

    def late(self: Homes) -> Any:
        time.sleep(_LATE_S)
        return read(self)

    Homes.read = late  # type: ignore[method-assign]


def _no_second_look() -> None:
    """What happened while the homes were read is not asked."""
    Mark.goes_on = Mark.leaves_files = lambda self, later: True  # type: ignore[method-assign]
    moment.stats = saving.stats = lambda root: ()  # type: ignore[assignment]
    look = Queues.look

    def slow(self: Queues) -> Iterator[Any]:
        time.sleep(_LATE_S)  # inbound queues and files are from before, outbound ones from long after
        yield from look(self)
        time.sleep(_LATE_S)

    Queues.look = slow  # type: ignore[method-assign]


def _files_once() -> None:
    """A session's files are copied once, long before its journal is."""
    caught = Saving._caught

    def late(self: Saving) -> Any:
        time.sleep(_LATE_S)
        return caught(self)

    Saving._caught = late  # type: ignore[method-assign]
    Saving._catch_up = lambda self, marks: None  # type: ignore[method-assign]
    Mark.leaves_files = lambda self, later: True  # type: ignore[method-assign]


def _replies_unseen() -> None:
    """That a turn sent a reply on, and went on, is not asked; the queue it went to was read before."""
    moment._SENT_ON = re.compile(rb"(?!)")
    look = Queues.look

    def early(self: Queues) -> Iterator[Any]:
        yield from look(self)
        time.sleep(_SOON_S)

    Queues.look = early  # type: ignore[method-assign]


def _slowly() -> None:
    """Between any two homes something may happen."""
    look, catch_up = Queues.look, Saving._catch_up

    def slow_catch_up(self: Saving, marks: dict[str, Mark]) -> None:
        catch_up(self, marks)
        time.sleep(_SLOW_S)

    def slow_look(self: Queues) -> Iterator[Any]:
        for each in look(self):
            time.sleep(_SLOW_S / 10)
            yield each
        time.sleep(_SLOW_S)

    Queues.look, Saving._catch_up = slow_look, slow_catch_up  # type: ignore[method-assign]


FAULTS: dict[str, tuple[Callable[[], None], frozenset[str]]] = {
    "journals first": (_journals_first, frozenset({"lost", "unanswered"})),
    "no second look": (_no_second_look, frozenset({"lost", "unanswered", "tool twice"})),
    "replies unseen": (_replies_unseen, frozenset({"unanswered"})),
    "files once": (_files_once, frozenset({"tool twice"})),
}


def main() -> None:
    _slowly() if sys.argv[1] == SLOWLY else FAULTS[sys.argv[1]][0]()
    from bubbles.programs.backup import main as program

    sys.exit(program(sys.argv[2:]))


if __name__ == "__main__":
    main()
