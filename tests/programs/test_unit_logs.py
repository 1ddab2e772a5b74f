"""What a confined unit logs lies in log/units/UNIT/, which it sees as its log/: whoever reads the log of a home reads that, too."""

from __future__ import annotations

import json
from pathlib import Path

from bubbles.bus.lock import Lock
from bubbles.paths import Home
from bubbles.programs.entries import Wanted, follow, read
from bubbles.programs.journald import elsewhere


def write(path: Path, at: float, message: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(json.dumps({"at": at, "priority": 6, "program": path.stem.partition(".")[0], "event": "x", "message": message}) + "\n")


def test_entries_of_units_are_merged_with_those_of_the_others(home: Home) -> None:
    units = home.log / "units"
    write(units / "modeld/modeld.jsonl.1", 1.0, "moved aside")
    write(units / "modeld/modeld.jsonl", 3.0, "under systemd")
    write(home.log / "modeld.jsonl", 2.0, "by a terminal")
    write(units / "channel-telegram/channel-telegram.jsonl", 4.0, "of a channel")
    write(units / "modeld/deeper/modeld.jsonl", 5.0, "nobody's")
    assert [entry.message for entry in read(home)] == ["moved aside", "by a terminal", "under systemd", "of a channel"]
    assert [entry.message for entry in read(home, Wanted(programs=("modeld",)), last=1)] == ["under systemd"]


def test_they_are_followed_from_the_first_one_on(home: Home) -> None:
    write(home.log / "units/cron/cron.jsonl", 1.0, "earlier")
    with follow(home) as following:
        write(home.log / "units/cron/cron.jsonl", 2.0, "later")
        write(home.log / "units/modeld/modeld.jsonl", 3.0, "a new one")
        told = iter(following)
        assert {next(told).message, next(told).message} == {"later", "a new one"}


def test_a_daemon_that_writes_there_has_its_entries_in_a_file(home: Home) -> None:
    lock = Lock(home, "modeld")
    lock.acquire()
    assert elsewhere(home) == ["modeld"]
    write(home.log / "units/modeld/modeld.jsonl", 1.0, "x")
    assert elsewhere(home) == []
    lock.release()
