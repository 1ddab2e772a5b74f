"""`bubbles usage`: what models cost, read from agentd's books without a daemon; and where else it is told."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbles import config
from bubbles.agentd.books import Books
from bubbles.agentd.spending import Days, Entry, Pages
from bubbles.paths import Home
from tests.programs.run import bubbles
from tests.programs.terminal_under_test import Terminal

ZONE = "Asia/Kathmandu"  # whose days begin at a quarter past the hour elsewhere
DAY_S = 86_400.0


@pytest.fixture
def spent(home: Home) -> Home:
    """A home whose zone is not the system's, with requests of today, of yesterday and of the day before the 30 that are told."""
    config.save(home, {"agents.defaults.timezone": ZONE})
    limits = dict.fromkeys(("tokens_per_day", "cost_per_day", "system_tokens_per_day", "system_cost_per_day"), 0)
    books = Books(home, SimpleNamespace(defaults=SimpleNamespace(timezone=ZONE), limits=SimpleNamespace(**limits)))
    begin, _ = Days(ZONE).bounds(time.time())
    for entry in (
        Entry("old.0", begin - 31 * DAY_S, "main", model="a", provider="p", input=1),
        Entry("y.0", begin - 1, "main", model="a", provider="p", input=900, output=100, cached=800, cost_micros=1_500_000),
        Entry("t.0", begin, "work", model="b", provider="q", input=2000),
        Entry("t.1", begin, "work", origin="cron", job="j1", model="a", provider="p", input=30, cost_micros=5),
        Entry("t.2", begin, "work", origin="background", lost="stopped"),
        Entry("t.3", begin, "work", kind="summary", model="a", provider="p", input=70, cost_micros=5),
    ):
        books.book(entry)
    books.close()
    return home


def told(*argv: str, code: int = 0) -> list[dict[str, Any]]:
    done = bubbles("usage", "--json", *argv)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_days_are_the_owners_and_today_is_told_as_far_as_it_has_come(spent: Home) -> None:
    yesterday, today = told()
    assert today["day"] == str(datetime.now(ZoneInfo(ZONE)).date())
    assert (today["open"], today["requests"], today["tokens"], today["cost_usd"]) == (True, 4, 2100, 1e-05)
    assert (today["unpriced_requests"], today["unpriced_tokens"], today["uncounted_requests"]) == (1, 2000, 1)
    assert "open" not in yesterday
    assert (yesterday["input"], yesterday["output"], yesterday["cached"], yesterday["cost_usd"]) == (900, 100, 800, 1.5)


def test_by_model_session_and_origin_the_sums_are_the_same(spent: Home) -> None:
    by = {name: told("--by", name) for name in ("day", "model", "session", "origin")}
    for name in ("requests", "tokens", "cached", "unpriced_tokens", "uncounted_requests"):
        assert len({sum(line[name] for line in lines) for lines in by.values()}) == 1
    assert [(line["model"], line["provider"]) for line in by["model"]] == [("a", "p"), ("b", "q"), ("", "")]
    assert [line["session"] for line in by["session"]] == ["main", "work"]
    assert [(line["origin"], line["job"]) for line in by["origin"]] == [("user", ""), ("cron", "j1"), ("background", "")]


def test_since_takes_days_and_months_of_the_owners_zone(spent: Home) -> None:
    assert [line["requests"] for line in told("--since", "today")] == [4]
    assert [line["requests"] for line in told("--since", "yesterday")] == [1, 4]
    assert sum(line["requests"] for line in told("--since", "2020-01")) == 6
    for text in ("2020-02-31", "soon"):
        assert bubbles("usage", "--since", text).returncode == 64


def test_in_a_pipe_it_is_a_plain_table_and_what_is_in_no_sum_is_said_beside(spent: Home) -> None:
    done = bubbles("usage", "--by", "origin")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["origin", "requests", "tokens", "in", "out", "cached", "cost"]
    assert [row.split() for row in rows] == [
        ["you", "3", "3,070", "2,970", "100", "800", "$1.50"],
        ["cron", "j1", "1", "30", "30", "0", "0", "$0.000005"],
        ["background", "1", "0", "0", "0", "0", "-"],
        ["all", "5", "3,100", "3,000", "100", "800", "$1.50"],
    ]
    assert "2,000 tokens in 1 request\n" in done.stderr
    assert "or the provider does not count: 1 request\n" in done.stderr


def test_a_job_has_its_name(spent: Home) -> None:
    added = bubbles("cron", "add", "--every", "1h", "--name", "weather", "look")
    assert added.returncode == 0, added.stderr
    job = json.loads(added.stdout)["id"]
    for path in spent.usage.glob("*.jsonl"):  # it may have been last month's
        path.write_text(path.read_text().replace('"job":"j1"', f'"job":"{job}"'))
    assert "cron weather" in bubbles("usage", "--by", "origin").stdout


def test_at_a_terminal_there_are_bars_and_days_without_requests(spent: Home) -> None:
    with Terminal(["usage", "--since", "2000-01-01"], {"BUBBLES_HOME": str(spent.root), "TERM": "xterm-256color"}) as seen:
        seen.expect("known: ")
        text = seen.text
    lines = [line for line in text.splitlines() if line.strip().startswith("20")]
    assert len(lines) == 32
    today = next(line for line in lines if "so far" in line)
    assert today.rstrip().endswith("█")
    assert all("█" not in line for line in lines[1:30])


def test_of_nothing_it_says_so(home: Home) -> None:
    done = bubbles("usage")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing was asked" in done.stderr
    assert not home.usage.exists()


def test_the_books_of_a_newer_program_are_refused(home: Home) -> None:
    home.usage.mkdir()
    (home.usage / f"{time.strftime('%Y-%m', time.gmtime())}.jsonl").write_text('{"format":"bubbles.usage","version":9}\n')
    done = bubbles("usage")
    assert done.returncode == 78
    assert "update Bubbles" in done.stderr
    assert bubbles("status").returncode == 0


def test_lines_that_cannot_be_read_are_told_and_by_the_doctor_too(spent: Home) -> None:
    with next(iter(sorted(spent.usage.iterdir(), reverse=True))).open("a") as file:
        file.write("rubbish\n")
    done = bubbles("usage")
    assert "in no sum: 1 line;" in done.stderr
    findings = [json.loads(line) for line in bubbles("doctor", "--json", "usage").stdout.splitlines()]
    assert [finding["level"] for finding in findings] == ["warn"]
    assert "1 line" in findings[0]["text"]


def test_status_tells_of_today_and_of_a_budget_that_is_used_up(spent: Home) -> None:
    assert "today" in bubbles("status").stdout
    config.save(spent, {"agents.limits.tokens_per_day": 2000, "agents.limits.system_cost_per_day": 1.0})
    found = json.loads(bubbles("status", "--json").stdout)
    assert (found["today"]["tokens"], found["today"]["unattended"]["tokens"]) == (2100, 30)
    budgets = [(each["measure"], each["limit"], each["unattended"]) for each in found["today"]["budgets"]]
    assert budgets == [("tokens", 2000, False), ("cost", 1, True)]
    [note] = [note["text"] for note in found["notes"] if "budget" in note["text"]]
    assert "2,100 of 2,000 tokens" in note
    assert found["wrong"] == []
    text = bubbles("usage").stdout
    assert "2,100 of 2,000 tokens, used up until 00:00 (Asia/Kathmandu)" in text


def test_scan_shows_sums_and_entries(spent: Home) -> None:
    summed = bubbles("scan", stdin=bubbles("usage", "--json", "--by", "model").stdout).stdout
    assert "a, 3 requests, 1100 tokens, $1.5000" in summed
    path = max(spent.usage.iterdir())
    assert "a, 70 tokens, $0.0000" in bubbles("scan", stdin=path.read_bytes()).stdout


def test_a_backup_has_the_books_and_tidying_leaves_them(spent: Home, tmp_path: Path) -> None:
    before = list(Pages(spent).entries())
    assert bubbles("tidy", "--all").returncode == 0
    assert list(Pages(spent).entries()) == before
    saved = tmp_path / "saved.tar"
    done = bubbles("backup", str(saved))
    assert done.returncode == 0, done.stderr
    other = tmp_path / "other"
    done = bubbles("restore", str(saved), BUBBLES_HOME=str(other))
    assert done.returncode == 0, done.stderr
    assert list(Pages(Home(other)).entries()) == before
