"""`bubbles audit`: what was asked for and no more, JSON for the next program, a table for a person, and nothing that steers a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bubbles import log
from bubbles.errors import Usage
from bubbles.paths import Home
from bubbles.programs import audit
from bubbles.programs.entries import Entry
from bubbles.programs.ledger import Ledger
from bubbles.programs.past import past
from tests.fakes.journald import Kept
from tests.programs.run import BIN, bubbles
from tests.programs.test_entries import WORDS, body, entry, kept, nobody, write  # noqa: F401 -- fixtures

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def audited(*argv: str) -> list[str]:
    """The texts of what it prints into a pipe."""
    done = bubbles("audit", *argv)
    assert done.returncode in (0, 1), done.stderr
    return [json.loads(line)["message"] for line in done.stdout.splitlines()]


@pytest.fixture
def day(home: Home, nobody: None) -> Home:  # noqa: F811
    """A home with a small log."""
    now = time.time()
    write(home, entry(now - 7200, "old", session="work", turn="t-1", event="message.in", channel="telegram"))
    write(home, entry(now - 60, "ls", session="work", turn="t-1", event="tool.start", tool="exec"))
    write(home, entry(now - 59, "notes", session="main", turn="t-2", event="tool.finish", tool="read_file", ms="12"))
    write(home, entry(now - 58, "no key", "modeld", turn="t-2", event="model.fail", priority="4"))
    return home


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "old ls notes no_key"),
        (["-s", "work"], "old ls"),
        (["--turn", "t-2"], "notes no_key"),
        (["--turn", "t-2", "--turn", "t-1", "--tool", "exec"], "ls"),
        (["--channel", "telegram"], "old"),
        (["--event", "tool"], "ls notes"),
        (["--event", "*.f*"], "notes no_key"),
        (["--priority", "warning"], "no_key"),
        (["--since", "1h"], "ls notes no_key"),
        (["--until", "1 hour ago"], "old"),
        (["-n", "2"], "notes no_key"),
        (["-n", "0", "-s", "work"], "old ls"),
        (["-s", "work", "--turn", "t-2"], ""),
    ],
)
def test_an_option_chooses(day: Home, argv: list[str], told: str) -> None:
    assert [text.replace(" ", "_") for text in audited(*argv)] == told.split()


def test_what_is_printed_is_what_stands_in_the_file(day: Home) -> None:
    lines = bubbles("audit").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        json.loads(line) for name in ("agentd", "modeld") for line in (day.log / f"{name}.jsonl").read_text().splitlines()
    ]
    rendered = bubbles("scan", stdin="\n".join(lines)).stdout.splitlines()
    assert [line.split()[-2:] for line in rendered[1:3]] == [["tool.start", "ls"], ["tool.finish", "notes"]]


def test_nothing_found_is_1_and_said(day: Home) -> None:
    done = bubbles("audit", "-s", "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "bubbles: the log has no such entry\n")


def test_a_home_that_was_never_used_has_no_log(home: Home, nobody: None, tmp_path: Path) -> None:  # noqa: F811
    done = bubbles("audit", "--since", "1h", BUBBLES_HOME=str(tmp_path / "absent"))
    assert (done.returncode, done.stdout) == (1, "")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (["--event", "tool.begin"], "--event tool.finish"),
        (["--event", "zzz"], "one of: message.in"),
        (["--since", "some day"], "write '10 min ago'"),
        (["-f", "--until", "today"], "bubbles audit --help"),
    ],
)
def test_a_wrong_call_is_told_with_what_to_write(day: Home, argv: list[str], remedy: str) -> None:
    done = bubbles("audit", *argv)
    assert done.returncode == 64
    assert f"  try: {remedy}" in done.stderr


def test_what_journald_keeps_and_what_it_dropped_are_told(home: Home, kept: Kept) -> None:  # noqa: F811
    now = time.time()
    for number in (1, 2, 12):
        kept.keep({**body(home, entry(0, str(number))), "BUBBLES_N": str(number)}, at=now - 100 + number)
    write(home, entry(now - 90, "between", "cron"))
    done = bubbles("audit", "-n", "3")
    assert [json.loads(line)["message"] for line in done.stdout.splitlines()] == ["2", "between", "12"]
    assert re.search(
        r"^bubbles: journald dropped 9 entries of agentd between .* and .*: too many came at once\n  try: bubbles doctor$", done.stderr, re.M
    )
    assert bubbles("audit", "-n", "1").stderr == ""


def test_a_journald_that_may_not_be_read_is_69(home: Home, kept: Kept) -> None:  # noqa: F811
    kept.refuse("No journal files were opened due to insufficient permissions.")
    done = bubbles("audit")
    assert (done.returncode, done.stdout) == (69, "")
    assert "  try: sudo usermod -aG systemd-journal $USER" in done.stderr


def test_what_can_be_read_is_shown_where_journald_cannot(day: Home, kept: Kept) -> None:  # noqa: F811
    kept.refuse("Failed to open files: odd")
    done = bubbles("audit")
    assert (done.returncode, len(done.stdout.splitlines())) == (69, 4)
    assert "cannot be read: Failed to open files: odd" in done.stderr


def test_times_that_journald_would_refuse(day: Home, kept: Kept) -> None:  # noqa: F811
    kept.keep(body(day, entry(0, "kept")))
    assert audited("--since", "1960-01-01")[-1] == "kept"
    assert bubbles("audit", "--since", "@9000000000").returncode == 1
    assert bubbles("audit", "--since", "now", "--until", "1h").returncode == 64
    assert bubbles("audit", "--since", "").returncode == 64


def test_following_tells_at_once_what_cannot_be_read(day: Home, kept: Kept) -> None:  # noqa: F811
    kept.refuse("Failed to open files: odd")
    argv = [BIN / "bubbles", "audit", "-f", "-n", "0"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        assert "cannot be read: Failed to open files: odd" in process.stderr.readline()
        write(day, entry(time.time(), "new"))
        assert json.loads(process.stdout.readline())["message"] == "new"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def test_it_follows_until_it_is_interrupted(day: Home) -> None:
    argv = [BIN / "bubbles", "audit", "-f", "-n", "1", "--event", "tool"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["message"] == "notes"
        write(day, entry(time.time(), "not wanted"), entry(time.time(), "new", event="tool.start"))
        assert json.loads(process.stdout.readline())["message"] == "new"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stdout.read() == ""


# -- at a terminal ---------------------------------------------------------------------------------


def drawn(*found: Entry, width: int = 100, **options: bool) -> str:
    out = io.StringIO()
    Ledger(console=Console(file=out, force_terminal=True, width=width, highlight=False, markup=False, emoji=False), **options).draw(found)
    return out.getvalue()


@given(
    st.lists(st.builds(entry, st.floats(1, 1e10), WORDS, WORDS, session=WORDS, event=WORDS, x=WORDS), min_size=1, max_size=3),
    st.booleans(),
    st.integers(20, 120),
)
def test_nothing_in_an_entry_steers_the_terminal_or_passes_for_another(found: list[Entry], full: bool, width: int) -> None:
    lines = COLOUR.sub("", drawn(*found, width=width, full=full)).removesuffix("\n").split("\n")
    assert all(log.escaped(line) == line for line in lines)
    rows = [line for line in lines if not line.startswith(" ")]
    assert len(rows) == len(found) or width < 60
    if not full:
        assert len(lines) == len(found)


def test_a_row_has_time_session_event_and_what_and_is_cut_to_the_width() -> None:
    now = time.time()
    (row,) = COLOUR.sub("", drawn(entry(now, "exec ok: " + "中" * 300, session="work", event="tool.finish", ms="12"), width=80)).splitlines()
    assert re.match(r"\d\d:\d\d:\d\d  work  tool.finish +exec ok: 中+…$", row)
    whole = COLOUR.sub("", drawn(entry(now, "exec ok: " + "中" * 300 + "END\nsecond line", turn="t-1", ms="12"), width=80, full=True))
    assert whole.count("中") == 300
    assert "END" in whole
    assert re.search(r"^ +second line *$", whole, re.M)
    assert "turn=t-1 ms=12 program=agentd" in whole


def test_at_a_terminal_there_is_a_table_of_the_last(home: Home, nobody: None) -> None:  # noqa: F811
    now = time.time()
    write(home, *(entry(now - 1000 + n, f"entry {n}\x1b[2J") for n in range(150)))
    status, shown = at_terminal("audit")
    assert status == 0
    assert "entry 149\\x1b[2J" in shown
    assert "entry 50\\x1b" in shown
    assert "entry 49\\x1b" not in shown
    assert "bubbles: these are the last 100; -n 0 shows all" in shown
    status, shown = at_terminal("audit", "--json", "-n", "1")
    assert json.loads(COLOUR.sub("", shown))["message"] == "entry 149\x1b[2J"


def at_terminal(*argv: str) -> tuple[int, str]:
    """The exit code of a program, and what a terminal was sent."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN / "bubbles", ["bubbles", *argv], {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"})
    shown = b""
    while True:
        try:
            data = os.read(fd, 1 << 16)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


# -- times -----------------------------------------------------------------------------------------

NOW = time.mktime((2026, 11, 30, 12, 40, 0, 0, 0, -1))


@pytest.mark.parametrize(
    ("words", "when"),
    [
        ("10 min ago", (2026, 11, 30, 12, 30)),
        ("2h", (2026, 11, 30, 10, 40)),
        ("-1h30m", (2026, 11, 30, 11, 10)),
        ("Yesterday", (2026, 11, 29, 0, 0)),
        ("today", (2026, 11, 30, 0, 0)),
        ("now", (2026, 11, 30, 12, 40)),
        ("0s", (2026, 11, 30, 12, 40)),
        ("0 min ago", (2026, 11, 30, 12, 40)),
        ("9:05", (2026, 11, 30, 9, 5)),
        ("12:41", (2026, 11, 29, 12, 41)),
        ("yesterday  23:59", (2026, 11, 29, 23, 59)),
        ("2026-11-01", (2026, 11, 1, 0, 0)),
        ("2026-11-01 07:08", (2026, 11, 1, 7, 8)),
        ("2026-11-01t07:08", (2026, 11, 1, 7, 8)),
    ],
)
def test_a_time_that_is_past(words: str, when: tuple[int, ...]) -> None:
    assert past(words, NOW) == time.mktime((*when, 0, 0, 0, -1))


def test_an_offset_counts() -> None:
    assert past("2026-11-30T12:40+01:00", NOW) == past("2026-11-30T11:40Z", NOW)


@given(st.text() | st.from_regex(r"[0-9:@T+-]{1,20}"))
def test_any_words_are_a_time_or_no_time(words: str) -> None:
    with contextlib.suppress(Usage):
        assert past(words, NOW) == past(f" {words} ", NOW)


def test_every_event_and_every_kind_can_be_asked_for() -> None:
    for name in log.EVENTS:
        assert list(audit._named((name,))) == [name]
        assert name in audit._named((name.partition(".")[0],))
