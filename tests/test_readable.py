"""Waiting for descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

import pytest

from bubbles.readable import readable


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_none_until_something_comes(pipe: tuple[int, int]) -> None:
    assert readable([pipe[0]], 0) == []
    os.write(pipe[1], b".")
    assert readable([pipe[0]], None) == [pipe[0]]


def test_the_end_is_something_to_read() -> None:
    read, write = os.pipe()
    os.close(write)
    assert readable([read], 0) == [read]
    os.close(read)


def test_a_time_that_is_over_is_no_wait(pipe: tuple[int, int]) -> None:
    assert readable([pipe[0]], -1.0) == []


def test_a_number_that_select_does_not_know(pipe: tuple[int, int]) -> None:
    number = 1500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= number:
        pytest.skip("so many descriptors are not allowed here")
    os.dup2(pipe[0], number)
    try:
        os.write(pipe[1], b".")
        assert readable([number], 0) == [number]
    finally:
        os.close(number)
