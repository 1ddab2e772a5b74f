"""Starts a daemon in a world of other times (bent.py): it waits a fraction as long as it would, or its clock is wrong when the test says so."""

from __future__ import annotations

import sys
from pathlib import Path

from bubbles import starter
from bubbles.paths import Home
from tests.disasters.bent import Clock

_REPOSITORY = Path(__file__).parents[2]


def start(home: Home, program: str, *, hasty: int = 1, clock: Clock | None = None) -> starter.Started:
    """As `starter.start`: `hasty` divides the times that the product waits."""
    arguments = f"{program!r}, {hasty}, {str(clock.path) if clock else ''!r}"
    script = f"import sys; sys.path.insert(0, {str(_REPOSITORY)!r}); from tests.disasters.bent import main; main({arguments})"
    return starter.Started(home, program, [sys.executable, "-c", script], None).wait()
