"""What people write for a time: forms, time zones, and the two nights of the year on which clocks are not to be trusted."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.cron import when
from bubbles.cron.when import interval, moment, spelled, told, zone
from bubbles.errors import Usage

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 11, 30, 12, 40, tzinfo=BERLIN).timestamp()


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_doctest() -> None:
    assert doctest.testmod(when).failed == 0


FORMS = {
    "2026-12-01 09:00": "2026-12-01T08:00",
    "2026-12-01T09:00": "2026-12-01T08:00",
    "2026-12-01 9:00": "2026-12-01T08:00",
    "2026-12-01 09:00:30": "2026-12-01T08:00:30",
    "2026-12-01T09:00:30.123": "2026-12-01T08:00:30",
    "2026-12-01T09:00Z": "2026-12-01T09:00",
    "2026-12-01T09:00:00+08:00": "2026-12-01T01:00",
    "2026-12-01 09:00 -0330": "2026-12-01T12:30",
    "2027-06-01 09:00": "2027-06-01T07:00",
    "  2026-12-01 09:00 ": "2026-12-01T08:00",
    "13:00": "2026-11-30T12:00",
    "12:40": "2026-12-01T11:40",
    "09:00": "2026-12-01T08:00",
    "9:00": "2026-12-01T08:00",
    "today 23:59:59": "2026-11-30T22:59:59",
    "tomorrow 09:00": "2026-12-01T08:00",
    "Tomorrow 13:00": "2026-12-01T12:00",
    "in 10m": "2026-11-30T11:50",
    "in 1h30m": "2026-11-30T13:10",
    "In 2 days": "2026-12-02T11:40",
    "in 90 seconds": "2026-11-30T11:41:30",
}


@pytest.mark.parametrize("text", FORMS)
def test_forms(text: str) -> None:
    assert moment(text, NOW, BERLIN) == utc(FORMS[text])


WRONG = {
    "": "is not a time",
    "soon": "is not a time",
    "2026-12-01": "is not a time",
    "2026-13-01 09:00": "month must be in 1..12",
    "2026-02-29 09:00": "day is out of range",
    "2026-12-01 24:00": "hour must be in 0..23",
    "2026-12-01 09:60": "minute must be in 0..59",
    "25:00": "hour must be in 0..23",
    "2026-12-01 09:00+99:00": "is not a time",
    "0000-12-01 09:00": "is not a time",
    "01.12.2026 09:00": "is not a time",
    "２０２６-12-01 09:00": "is not a time",
    "2026-11-30 12:40": "is past: it is Mon 2026-11-30 12:40 CET",
    "1999-01-01 00:00": "is past",
    "today 09:00": "is past",
    "in 10": "of what",
    "in a while": "is not an interval",
    "in -5m": "is not an interval",
    "in 10m later": "is not an interval",
    "in 99999999w": "is not an interval",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_time_is_told_what_is_right(text: str) -> None:
    with pytest.raises(Usage, match=WRONG[text].replace(".", r"\.")) as told:
        moment(text, NOW, BERLIN)
    assert "write" in told.value.remedy


# zone: a time that is skipped, one on either side of the gap (local, UTC); a time that is shown twice, and the two it is
GAPS = {
    "Europe/Berlin": ("2027-03-28 02:30", ("01:59", "2027-03-28T00:59"), ("03:00", "2027-03-28T01:00")),
    "America/New_York": ("2027-03-14 02:00", ("01:59", "2027-03-14T06:59"), ("03:00", "2027-03-14T07:00")),
    "Australia/Lord_Howe": ("2027-10-03 02:15", ("01:59", "2027-10-02T15:29"), ("02:30", "2027-10-02T15:30")),
    "America/St_Johns": ("2027-03-14 02:59", ("01:59", "2027-03-14T05:29"), ("03:00", "2027-03-14T05:30")),
    "Africa/Cairo": ("2027-04-30 00:30", ("01:00", "2027-04-29T22:00"), ("01:01", "2027-04-29T22:01")),
    "Pacific/Auckland": ("2027-09-26 02:01", ("01:59", "2027-09-25T13:59"), ("03:00", "2027-09-25T14:00")),
}
TWICE = {
    "Europe/Berlin": ("2027-10-31 02:30", "2027-10-31T00:30", "2027-10-31T01:30", "+01:00"),
    "America/New_York": ("2027-11-07 01:30", "2027-11-07T05:30", "2027-11-07T06:30", "-05:00"),
    "Australia/Lord_Howe": ("2027-04-04 01:45", "2027-04-03T14:45", "2027-04-03T15:15", "+10:30"),
    "America/St_Johns": ("2027-11-07 01:15", "2027-11-07T03:45", "2027-11-07T04:45", "-03:30"),
    "Africa/Cairo": ("2027-10-28 23:30", "2027-10-28T20:30", "2027-10-28T21:30", "+02:00"),
    "Pacific/Auckland": ("2027-04-04 02:30", "2027-04-03T13:30", "2027-04-03T14:30", "+12:00"),
}


@pytest.mark.parametrize("name", GAPS)
def test_a_time_that_clocks_skip_is_refused_with_those_that_exist(name: str) -> None:
    text, *sides = GAPS[name]
    with pytest.raises(Usage, match=f"does not exist in {name}") as refused:
        moment(text, NOW, ZoneInfo(name))
    before, after = refused.value.remedy.removeprefix("write ").split(" or ")
    assert before < text < after
    assert all(moment(offered, NOW, ZoneInfo(name)) > NOW for offered in (before, after))
    for local, expected in sides:
        assert moment(f"{text[:10]} {local}", NOW, ZoneInfo(name)) == utc(expected)


@pytest.mark.parametrize("name", TWICE)
def test_a_time_that_clocks_show_twice_is_the_first_and_an_offset_means_the_other(name: str) -> None:
    text, first, second, offset = TWICE[name]
    assert moment(text, NOW, ZoneInfo(name)) == utc(first)
    assert moment(f"{text}{offset}", NOW, ZoneInfo(name)) == utc(second)


def test_tomorrow_on_the_eve_of_a_change_is_the_same_hour_and_not_24_later() -> None:
    eve = datetime(2027, 3, 27, 9, 0, tzinfo=BERLIN).timestamp()
    assert moment("tomorrow 09:00", eve, BERLIN) == eve + 23 * 3600
    assert moment("08:59", eve, BERLIN) == eve + 23 * 3600 - 60
    with pytest.raises(Usage, match="does not exist"):
        moment("02:30", eve, BERLIN)
    assert moment("in 1d", eve, BERLIN) == eve + 24 * 3600


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Asia/Shanghai", "UTC"])
def test_the_systems_zone_follows_the_same_rules(name: str) -> None:
    """A process whose TZ is NAME and which is told no zone understands what this one understands when told NAME."""
    texts = ["2026-12-01 09:00", "2027-06-01 09:00", "2027-03-28 02:30", "2027-03-14 02:30", "2027-10-31 02:30", "2027-11-07 01:30", "09:00"]
    code = (
        "import sys; from bubbles.cron.when import moment; from bubbles.errors import Usage\n"
        "for text in sys.argv[2:]:\n"
        "    try: print(moment(text, float(sys.argv[1]), None))\n"
        "    except Usage as error: print(error.remedy)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code, str(NOW), *texts], env={**os.environ, "TZ": name}, cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [understood(text, ZoneInfo(name)) for text in texts]


def understood(text: str, place: ZoneInfo) -> str:
    try:
        return str(moment(text, NOW, place))
    except Usage as error:
        return error.remedy


@given(st.integers(int(NOW) + 60, int(utc("2037-01-01"))), st.sampled_from(sorted({*GAPS, "Asia/Shanghai", "Asia/Kathmandu"})))
def test_what_is_told_is_understood(at: int, name: str) -> None:
    local = datetime.fromtimestamp(at, ZoneInfo(name))
    assert moment(f"{local:%Y-%m-%d %H:%M:%S}", NOW, ZoneInfo(name)) in (at, at - 3600, at - 1800)
    assert moment(local.isoformat(), NOW, ZoneInfo(name)) == at


@given(st.integers(1, 10 * 366 * 86400))
def test_intervals_as_text_and_back(seconds: int) -> None:
    assert interval(spelled(seconds)) == seconds


INTERVALS = {
    "30m": 1800,
    "2h": 7200,
    "1h30m": 5400,
    "1 h 30 min": 5400,
    "45s": 45,
    "1d": 86400,
    "1w": 604800,
    "2 weeks": 1209600,
    "90 Minutes": 5400,
    "1s": 1,
}


@pytest.mark.parametrize("text", INTERVALS)
def test_intervals(text: str) -> None:
    assert interval(text) == INTERVALS[text]


@pytest.mark.parametrize("text", ["", "30", "m", "0m", "-30m", "1.5h", "30 months", "1h, 30m", "99999w", "３０m", "30m30"])
def test_wrong_intervals(text: str) -> None:
    with pytest.raises(Usage) as refused:
        interval(text)
    assert "write" in refused.value.remedy


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "/etc/localtime", "a\0b", "europe"])
def test_wrong_zones(name: str) -> None:
    with pytest.raises(Usage, match="not a time zone"):
        zone(name)
    assert zone("") is None


def test_times_are_told_in_the_zone() -> None:
    assert told(NOW, BERLIN) == "Mon 2026-11-30 12:40 CET"
    assert told(NOW + 1, ZoneInfo("Asia/Shanghai")) == "Mon 2026-11-30 19:40:01 CST"
