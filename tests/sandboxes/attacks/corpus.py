"""An attack on a session's sandbox as data: what it tries, how its success is seen, and what must come of it under each backend.

Every module in rows/ has a list ATTACKS; `corpus()` is all of them. It does not know how an attack is run (assault.py), nor where what
it is after lies (arena.py).

In what an attack tries, `{name}` stands for a place of the arena (see arena.Arena.places: {config}, {other_session}, {other_home},
{owner_home}, {bus}, {tcp4} …), for {word}, a random word of this attack alone, for {tag}, a number of seconds that nobody else sleeps,
and for {python}. Other braces are left as they are.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sandboxes.attacks.assault import Scene

HELD = "held"
NOT_HELD = "not held"
FOR_ROOT = "not held as root"  # an ordinary user's is held, and that of a root who may not look into processes, as in some containers
NOT_APPLICABLE = "n.a."  # it is not run: it means nothing there, or would harm the machine

ARRANGEMENTS = ("local", "local_isolated", "bwrap", "bwrap_public", "bwrap_host")
ONCE: dict[str, Any] = {"public": NOT_APPLICABLE, "host": NOT_APPLICABLE}  # for what costs, where the network makes no difference
JAILED = ("bwrap", "bwrap_public", "bwrap_host")


@dataclass(frozen=True, slots=True)
class Seen:
    """How success is seen: `what` about any one of `names`."""

    what: str
    names: tuple[str, ...] = ()


def reads(*canaries: str) -> Seen:
    """The random content of one of these canaries stands in the output."""
    return Seen("reads", canaries)


def writes(*places: str) -> Seen:
    """The attack's {word} stands in one of these files, or anywhere in or below one of these directories, also in a name."""
    return Seen("writes", places)


def breaks(*places: str) -> Seen:
    """One of these is not what it was. For an attack that runs alone."""
    return Seen("breaks", places)


def connects(*sockets: str) -> Seen:
    """One of these sockets was sent the attack's {word}, or what it answers stands in the output."""
    return Seen("connects", sockets)


def leaves() -> Seen:
    """A process with {tag} in its command line is there after the command has ended."""
    return Seen("leaves")


def says() -> Seen:
    """The output has a line that is {word} and nothing else: the attack itself tells that it has succeeded."""
    return Seen("says")


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack. `number` is its row in the table of attacks, or a letter and a number for one of our own.

    `tries` is a command for bash, a program for Python where `python`, or a coroutine function that gets a Scene and returns its output.
    Those that are text run many in one jail, one after the other, each at most `timeout_s`, in work/, standard input empty; `alone` is for one
    that would disturb others, as by removing what they need. `wall` names what has to be taken away from the jail so that it succeeds (see
    walls.py); where that is nothing, `uncontrolled` says why. `only_before`: a bubblewrap of that version or a later one keeps it without the
    wall. `public` and `host`, for the jail with these networks, are as `bwrap` where "".
    """

    number: str
    title: str
    tries: str | Callable[[Scene], Awaitable[str]]
    seen: Seen
    local: str
    isolated: str
    wall: str
    bwrap: str = HELD
    public: str = ""
    host: str = ""
    python: bool = False
    alone: bool = False
    timeout_s: int = 5
    uncontrolled: str = ""
    only_before: tuple[int, ...] = ()

    def must(self, arrangement: str, *, as_root: bool) -> str:
        """HELD, NOT_HELD or NOT_APPLICABLE."""
        stated = {
            "local": self.local,
            "local_isolated": self.isolated,
            "bwrap": self.bwrap,
            "bwrap_public": self.public or self.bwrap,
            "bwrap_host": self.host or self.bwrap,
        }[arrangement]
        return (NOT_HELD if as_root else HELD) if stated == FOR_ROOT else stated

    @property
    def is_text(self) -> bool:
        return isinstance(self.tries, str)


@functools.cache
def corpus() -> tuple[Attack, ...]:
    """Every attack, in the order of the files' names."""
    from tests.sandboxes.attacks import rows

    modules = sorted(module.name for module in pkgutil.iter_modules(rows.__path__))
    return tuple(attack for name in modules for attack in importlib.import_module(f"{rows.__name__}.{name}").ATTACKS)
