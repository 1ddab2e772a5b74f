"""Requests by reference: what is held is what was sent, and there is never more of it than the bound allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import NeedBase
from bubbles.providers.prefix import Prefixes


def test_a_base_grows_and_is_cut() -> None:
    held = Prefixes()
    assert list(held.messages("s.1", 0, [b"a", b"b"])) == [b"a", b"b"]
    assert list(held.messages("s.1", 2, [b"c"])) == [b"a", b"b", b"c"]
    assert list(held.messages("s.1", 1, [b"x"])) == [b"a", b"x"]
    assert list(held.messages("s.1", 2, [])) == [b"a", b"x"]
    assert held.bytes == len(b"a,x")


def test_what_is_not_held_is_asked_for() -> None:
    held = Prefixes()
    for base, keep in (("s.1", 1), ("", 1)):
        with pytest.raises(NeedBase):
            held.messages(base, keep, [b"a"])
    with pytest.raises(NeedBase):
        held.tools("t1", b"")


@given(st.lists(st.tuples(st.integers(0, 3), st.lists(st.sampled_from([b"plain", b"has A", b"has B", b"A and B"]), max_size=3)), max_size=8))
def test_the_marks_of_a_base_are_those_of_its_messages(steps: list[tuple[int, list[bytes]]]) -> None:
    held, now = Prefixes(marks=(b"A", b"B")), []
    for keep, new in steps:
        now = held.messages("s", min(keep, len(now)), new)
        assert held.marks("s") == {mark for mark in (b"A", b"B") if any(mark in message for message in now)}
    assert held.marks("other") is None


def test_without_a_base_nothing_is_held() -> None:
    held = Prefixes()
    assert list(held.messages("", 0, [b"a"])) == [b"a"]
    assert len(held) == 0


def test_tools_by_their_name() -> None:
    held = Prefixes()
    assert held.tools("", b"") == b""
    assert held.tools("t1", b"[1]") == held.tools("t1", b"") == b"[1]"
    assert held.tools("t1", b"[22]") == held.tools("t1", b"") == b"[22]"


def test_a_request_in_flight_does_not_change_with_its_base() -> None:
    held = Prefixes()
    first = held.messages("s.1", 0, [b"a", b"b"])
    held.messages("s.1", 2, [b"c"])
    held.messages("s.1", 1, [b"x"])
    held.messages("s.1", 2, [b"y"])
    assert list(first) == [b"a", b"b"]
    assert first.within(b"[", b"]") == b"[a,b]"


def test_the_longest_unused_goes_first() -> None:
    held = Prefixes(most_bytes=10)
    held.messages("one", 0, [b"1234"])
    held.messages("two", 0, [b"1234"])
    held.messages("one", 1, [])
    held.messages("three", 0, [b"1234"])
    assert list(held.messages("one", 1, [])) == [b"1234"]
    with pytest.raises(NeedBase):
        held.messages("two", 1, [])


def test_what_is_larger_than_the_bound_is_answered_and_not_held() -> None:
    held = Prefixes(most_bytes=3)
    assert list(held.messages("big", 0, [b"12345"])) == [b"12345"]
    assert (len(held), held.bytes) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.lists(st.binary(max_size=8), max_size=3)), max_size=40))
def test_what_is_given_back_is_what_was_sent(steps: list[tuple[str, int, list[bytes]]]) -> None:
    held, sent = Prefixes(most_bytes=40), dict[str, list[bytes]]()
    for base, keep, new in steps:
        try:
            found = held.messages(base, keep, new)
        except NeedBase:
            continue
        expected = sent.get(base, [])[:keep] + new
        assert list(found) == expected
        assert (found.within(b"<", b">"), len(found)) == (b"<" + b",".join(expected) + b">", len(expected))
        sent[base] = expected
        assert held.bytes == sum(messages.size for messages, _ in held._bases.values()) <= 40
