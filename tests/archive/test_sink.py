"""What is written to a sink arrives, or is told as unwritten, once."""

from __future__ import annotations

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.archive.sink import Sink, Unwritten


@given(st.lists(st.builds(lambda piece, times: piece * times, st.binary(max_size=100), st.integers(0, 6000)), max_size=5))
def test_all_of_it_arrives(pieces: list[bytes]) -> None:
    fd = os.memfd_create("sink")
    sink = Sink(fd)
    assert sum(map(sink.write, pieces)) == sink.tell()
    sink.sync()
    assert os.pread(fd, 4_000_000, 0) == b"".join(pieces)
    os.close(fd)


def test_a_target_that_takes_no_more_is_told_of_once() -> None:
    with open("/dev/full", "wb") as target:
        sink = Sink(target.fileno())
        sink.write(b"little")
        with pytest.raises(Unwritten) as told:
            sink.write(b"x" * 1_000_000)
        assert told.value.error.errno == errno.ENOSPC
        sink.write(b"x" * 1_000_000)
        sink.flush()


def test_what_cannot_be_had_on_a_disk_is_unwritten() -> None:
    inner, outer = os.pipe()
    with pytest.raises(Unwritten):
        Sink(outer).sync()
    os.close(inner)
    os.close(outer)
