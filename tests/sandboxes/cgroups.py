"""A cgroup2 subtree for tests, made by root at the top of the file system and taken away with all that is in it.

It does not know what the product makes of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bubbles.sandboxes import delegation

_JOIN = 'echo 0 >"$0" && exec "$@"'


@contextlib.contextmanager
def subtree() -> Iterator[Path]:
    """A cgroup of ours alone, with what controllers there are; the test is skipped, with the reason, where none can be made."""
    top = _top()
    place = top / f"bubbles-test-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        place.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made at {top}: {error.strerror}")
    try:
        yield place
    finally:
        (place / "cgroup.kill").write_text("1")
        until(lambda: "populated 0" in (place / "cgroup.events").read_text())
        for path, _, _ in os.walk(place, topdown=False):
            os.rmdir(path)


def _top() -> Path:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        found = next(delegation.places("0::/", line), None)
        if found:
            return found
    pytest.skip("no cgroup2 is mounted here")


def controllers(place: Path) -> set[str]:
    return set((place / "cgroup.controllers").read_text().split())


def within(place: str | Path, argv: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """A process that is in the cgroup `place` from its first instruction on."""
    return subprocess.Popen(["sh", "-c", _JOIN, f"{place}/cgroup.procs", *argv], text=True, **options)


def until(claim: Callable[[], object], timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not claim():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
