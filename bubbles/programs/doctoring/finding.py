"""What a check finds: how bad it is, in a sentence, what to do about it, and whether it may be mended here and now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bubbles.paths import Home, typed

OK, NOTE, WARN, FAIL = "ok", "note", "warn", "fail"
FIXED = "fixed"  # what was WARN or FAIL, and is mended


@dataclass(frozen=True, slots=True)
class Fix:
    """How a finding is mended where that is safe: what it `would` do, beginning with a verb, and the deed. Raises BubblesError and OSError."""

    would: str
    deed: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence of a check. `remedy`: what to do or type next. `done`: what became of its fix, or would.

    `count`: for how many it stands. `once`: it is wrong with other checks too, and told to a person with the first of them. `more`: for programs.
    """

    level: str
    text: str
    remedy: str = ""
    fix: Fix | None = None
    done: str = ""
    count: int = 1
    once: bool = False
    more: dict[str, Any] = field(default_factory=dict)


Findings = Iterator[Finding]
Say = Callable[..., Finding]

ok: Say = partial(Finding, OK)  # all is well
note: Say = partial(Finding, NOTE)  # good to know; nothing is wrong
warn: Say = partial(Finding, WARN)  # everything works, and may not for long, or not as wished
fail: Say = partial(Finding, FAIL)  # something does not work


def closed(home: Path, error: OSError) -> Finding:
    """That a home cannot be entered: nothing in it can be looked at then."""
    return fail(f"the home {home} cannot be entered: {error.strerror}", f"ls -ld {typed(home.parent)} {typed(home)}", once=True)


@dataclass(frozen=True, slots=True)
class Patient:
    """Whose health it is. `root` stands before the paths of the machine's own settings. `asks`: a model may be asked a question, which costs."""

    home: Home
    asks: bool = False
    root: Path = field(default=Path("/"))


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `run` is the `module:function` here that yields its findings; `limit_s` is how long it may take."""

    name: str
    group: str
    asks: str
    run: str
    limit_s: float = 20.0

    def findings(self, patient: Patient) -> Findings:
        """What it finds. Raises whatever the check does; ImportError where a package is missing."""
        module, _, function = self.run.partition(":")
        found: Any = getattr(import_module(f"{__package__}.{module}"), function)
        yield from found(patient)
