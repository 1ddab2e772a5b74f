"""`bubbles tidy`: what it says, and to whom."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from bubbles.paths import Home
from bubbles.programs.tidy import said, summary
from bubbles.tidying.sweep import Swept
from tests.programs.run import BIN, bubbles
from tests.tidying.home import aged, file, inbound


@pytest.fixture
def full(home: Home) -> Home:
    """A home with something old and something young."""
    aged(file(home.session("work") / "data" / "日报\n1.txt", "x" * 1000), -4)
    file(home.session("work") / "data" / "young.txt")
    aged(inbound(home, "telegram-1"), -8)
    inbound(home, "telegram-2")
    return home


OLD = ["sessions/work/data/日报\n1.txt", "spool/inbound/telegram/done/telegram-1.json"]


def test_it_says_in_a_line_what_is_gone(full: Home) -> None:
    done = bubbles("tidy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "deleted 2 files (0.0 MB): 1 of data/, 1 handled messages\n"
    assert [path.name for path in (full.session("work") / "data").iterdir()] == ["young.txt"]
    assert bubbles("tidy").stdout == "nothing to tidy\n"


def test_for_programs_it_says_each(full: Home) -> None:
    lines = [json.loads(line) for line in bubbles("tidy", "--json").stdout.splitlines()]
    assert sorted(line["path"] for line in lines[:-1]) == OLD
    assert {line["kind"]: line["bytes"] for line in lines[:-1]}["data"] == 1000
    assert all(time.time() - line["at"] > 3 * 86400 for line in lines[:-1])
    assert {name: lines[-1][name] for name in ("deleted", "kinds", "left", "more", "dry_run")} == {
        "deleted": 2,
        "kinds": {"data": 1, "done": 1},
        "left": {},
        "more": False,
        "dry_run": False,
    }


def test_a_dry_run_says_what_would_go_and_nothing_goes(full: Home) -> None:
    before = sorted(full.root.rglob("*"))
    done = bubbles("tidy", "--dry-run")
    assert done.stdout.splitlines() == [
        "sessions/work/data/日报\\n1.txt",
        "spool/inbound/telegram/done/telegram-1.json",
        "would delete 2 files (0.0 MB): 1 of data/, 1 handled messages",
    ]
    assert json.loads(bubbles("tidy", "--dry-run", "--json").stdout.splitlines()[-1])["dry_run"]
    assert sorted(full.root.rglob("*")) == before


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = bubbles("tidy", BUBBLES_HOME=str(tmp_path / "nowhere"))
    assert (done.returncode, done.stdout) == (0, "nothing to tidy\n")
    assert not (tmp_path / "nowhere").exists()


def test_a_second_run_leaves_it_to_the_first(full: Home) -> None:
    fd = os.open(full.root, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    done = bubbles("tidy")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"bubbles: {full.root} is being tidied already\n"
    os.close(fd)


def test_what_is_left_alone_is_told(full: Home) -> None:
    (full.session("work") / "data" / "x").mkdir()
    at = full.session("work") / "data" / "x"
    for _ in range(105):
        at = at / "d"
    at.mkdir(parents=True)
    done = bubbles("tidy")
    assert done.returncode == 0
    assert done.stderr.startswith("bubbles: left alone: sessions/work/data/x/d/d/")
    assert done.stderr.endswith(": it lies too deep\n")


def test_a_home_of_somebody_else_is_refused(full: Home) -> None:
    full.root.chmod(0o777)
    done = bubbles("tidy")
    assert done.returncode == 78
    full.root.chmod(0o700)


def test_more_than_a_run_may_delete_is_said(full: Home) -> None:
    for n in range(1005):
        aged(file(full.session("work") / "data" / "many" / str(n)), -4)
    first = bubbles("tidy")
    assert first.stdout.startswith("deleted 1000 files ")
    assert first.stdout.endswith("; there is more: bubbles tidy --all\n")
    assert bubbles("tidy", "--all").stdout.startswith("deleted 7 files ")


def test_every_kind_has_a_name() -> None:
    swept = Swept()
    for kind in ("data", "done", "receipts", "media", "released", "litter", "socket", "loan"):
        swept.kinds[kind] = 1
    assert said(swept, dry=False).count(",") == 7
    assert summary(swept)["deleted"] == 8


def test_it_is_a_program_by_its_own_name_too(full: Home) -> None:
    assert os.access(BIN / "bubbles-tidy", os.X_OK)
