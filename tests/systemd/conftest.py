"""One booted machine for all the tests of a process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.systemd.machine import Impossible, Machine, boot
from tests.systemd.person import Person


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A booted systemd; the test is skipped, with the reason, where none can be had. Where CI=true that is no reason: there it can."""
    try:
        with boot() as booted:
            yield booted
    except Impossible as why:
        if os.environ.get("CI") == "true" and os.geteuid() == 0:
            raise
        pytest.skip(str(why))


@pytest.fixture
def person(machine: Machine) -> Iterator[Person]:
    """A new ordinary user of it, who leaves after the test."""
    made = machine.person()
    yield made
    made.leave()
