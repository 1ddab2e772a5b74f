"""A run as a whole: bounded, fair, alone, and the same for whoever only looks."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from bubbles.errors import TryAgain
from bubbles.paths import Home
from bubbles.tidying.ages import DAY_S, Mark
from bubbles.tidying.sweep import sweep
from tests.tidying.home import file, gone, inbound, later, swept


def filled(home: Home, count: int) -> None:
    for n in range(count):
        file(home.session("work") / "data" / f"{n}.txt")
        file(home.turns / "released" / f"{n}.jsonl")
        inbound(home, f"telegram-{n}")


def test_a_limit_is_shared_by_all_places(home: Home) -> None:
    filled(home, 20)
    first = swept(home, 40, most=30)
    assert (first.deleted, first.more) == (30, True)
    assert set(first.kinds.values()) == {10}
    second = swept(home, 40, most=30)
    assert (second.deleted, second.more) == (30, False)
    assert swept(home, 40).deleted == 0


def test_no_descriptor_stays_open(home: Home) -> None:
    filled(home, 5)
    before = os.listdir("/proc/self/fd")
    for most in (0, 3, 7):
        swept(home, 40, most=most)
    assert os.listdir("/proc/self/fd") == before


def test_two_do_not_sweep_at_once(home: Home) -> None:
    filled(home, 2)
    fd = os.open(home.root, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(TryAgain, match="is being tidied already"):
        swept(home, 40)
    os.close(fd)
    assert swept(home, 40).deleted == 6


def test_what_cannot_be_deleted_is_told_and_stops_nothing(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(home, 1)
    if os.geteuid() == 0:
        pytest.skip("root may delete everything")
    (home.turns / "released").chmod(0o500)
    done = swept(home, 40)
    assert (done.deleted, done.left) == (2, {"turns/released/0.jsonl": "Permission denied"})
    (home.turns / "released").chmod(0o700)


def test_a_step_of_the_clock_between_two_runs_deletes_nothing_that_is_young(home: Home) -> None:
    start = later(0)
    sweep(home, now=start, sockets={})
    filled(home, 2)
    ahead = Mark(start.wall + 100 * DAY_S, start.up + 60, start.boot)  # a minute later, by the machine's own count
    assert sweep(home, now=ahead, sockets={}).deleted == 0
    assert sweep(home, now=Mark(ahead.wall + DAY_S, ahead.up + DAY_S, start.boot), sockets={}).deleted == 0
    assert sweep(home, now=Mark(ahead.wall + 4 * DAY_S, ahead.up + 4 * DAY_S, start.boot), sockets={}).kinds == {"data": 2}


def test_who_only_looks_leaves_no_mark(home: Home) -> None:
    gone(home, 1, dry=True)
    assert not (home.run / "tidied").exists()
    gone(home, 1)
    assert Mark.read(home.run / "tidied")


def test_a_home_without_anything_is_tidy(tmp_path: Path) -> None:
    assert swept(Home(tmp_path), 1).deleted == 0
