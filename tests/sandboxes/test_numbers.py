"""Which processes can have been started since a moment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from bubbles.sandboxes.numbers import Since, everyone, last_given

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc")


@contextlib.contextmanager
def started() -> Iterator[int]:
    """The number of a process that runs meanwhile."""
    process = subprocess.Popen(["sleep", "3600"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_what_was_started_since_is_among_them_and_what_was_there_before_is_not() -> None:
    with started() as before, started() as first:
        since = Since(first)
        with started() as after, started() as last:
            if before < first < after < last:  # else the machine began to count anew
                assert {after, last} <= set(since.numbers())
                assert not {before, first} & set(since.numbers())
                assert not since.is_nothing


def test_the_processes_are_found_however_many_numbers_were_given_out_since() -> None:
    with started() as first:
        since = Since(first)
        for _ in range(80):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        with started() as after:
            assert after in since.numbers()


def test_nothing_that_ended_is_among_them() -> None:
    with started() as first:
        since = Since(first)
        gone = os.posix_spawn("/bin/true", ["true"], {})
        os.waitpid(gone, 0)
        assert gone not in since.numbers()


def test_where_the_machine_counts_anew_the_low_numbers_are_meant_too() -> None:
    with started() as after:
        first = last_given() + 1000  # no process: it is said to have got the number before that
        if after > 1000:
            assert after in Since(first).numbers()
            assert all(number <= last_given() or number > first for number in Since(first).numbers())


def test_everyone_is_seen_and_no_thread() -> None:
    assert os.getpid() in everyone()
    assert set(everyone()) <= {int(name) for name in os.listdir("/proc") if name.isdigit()} | {last_given()}
