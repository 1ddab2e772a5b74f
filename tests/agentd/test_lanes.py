"""Who waits, and in which order: nothing overtakes in its lane, and a lane that is shut is not looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bubbles.agentd.lanes import Lane, Lanes

LANE, CLOCK = Lane("s", "cli:s"), Lane("s", "")


def waits(lanes: Lanes, lane: Lane, place: tuple[str, str], *, until_idle: bool) -> None:
    lanes.wait(lane, place)
    lanes.shut(lane, until_idle=until_idle)


def test_people_do_not_wait_behind_a_clock() -> None:
    lanes = Lanes()
    waits(lanes, CLOCK, ("cron", "c1"), until_idle=True)
    assert lanes.is_held_back(("cron", "c1"))
    assert not lanes.is_next(CLOCK, ("cron", "c2"))
    assert lanes.is_next(LANE, ("cli", "m1"))


def test_room_for_people_is_no_room_for_what_waits_for_an_idle_session() -> None:
    lanes = Lanes()
    waits(lanes, CLOCK, ("cron", "c1"), until_idle=True)
    waits(lanes, LANE, ("cli", "m1"), until_idle=False)
    assert lanes.reopen("s", idle=False) == [LANE]
    assert lanes.is_held_back(("cron", "c1"))
    assert not lanes.is_held_back(("cli", "m1"))
    assert lanes.reopen("other", idle=True) == []
    assert lanes.reopen("s", idle=True) == [CLOCK]
    assert lanes.reopen("s", idle=True) == []


def test_what_passed_counts_for_nothing() -> None:
    lanes = Lanes()
    waits(lanes, LANE, ("cli", "m1"), until_idle=True)
    lanes.passed(("cli", "m1"))
    lanes.passed(("cli", "m1"))
    assert lanes.count("s") == 0
    assert lanes.is_next(LANE, ("cli", "m2"))
    assert lanes.reopen("s", idle=True) == []


def test_what_waits_in_another_lane_now_waits_there_alone() -> None:
    lanes, other = Lanes(), Lane("t", "cli:s")
    for place in ("m1", "m2"):
        lanes.wait(LANE, ("cli", place))
    lanes.wait(other, ("cli", "m1"))
    assert lanes.first(LANE) == ("cli", "m2")
    assert lanes.first(other) == ("cli", "m1")
    assert lanes.passed(("cli", "m1")) is False


def test_whoever_passes_tells_whether_others_wait_behind() -> None:
    lanes = Lanes()
    for place in ("m1", "m2"):
        lanes.wait(LANE, ("cli", place))
    assert lanes.passed(("cli", "m1")) is True
    assert lanes.passed(("cli", "m2")) is False
    assert lanes.passed(("cli", "m3")) is False


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=40), st.integers(min_value=1, max_value=4))
def test_whatever_room_there_is_each_passes_once_and_in_order(messages: list[tuple[str, bool]], room: int) -> None:
    """A queue in order, scanned again and again by the rule of the intake: a session takes `room` messages, is full, and has room again."""
    queue = [(("cli", f"m{place}"), Lane(session, "" if system else "cli:a")) for place, (session, system) in enumerate(messages)]
    lanes, passed = Lanes(), []
    while queue:
        left = dict.fromkeys("abc", room)
        for place, lane in list(queue):
            if lanes.is_held_back(place):
                continue
            if not lanes.is_next(lane, place):
                lanes.wait(lane, place)
            elif not left[lane.session]:
                waits(lanes, lane, place, until_idle=not lane.chat)
            else:
                left[lane.session] -= 1
                lanes.passed(place)
                passed.append((place, lane))
                queue.remove((place, lane))
        for session in "abc":
            lanes.reopen(session, idle=True)
    for lane in {lane for _, lane in passed}:
        own = [int(place[1][1:]) for place, its in passed if its == lane]
        assert own == sorted(own)
    assert len(passed) == len(messages)
    assert all(lanes.count(session) == 0 for session in "abc")
