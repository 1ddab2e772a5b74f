"""The log: an entry is one entry whatever its values hold, keys never reach it, and it costs little."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log, logfile
from tests.fakes.journald import Journald, parse

ROOT = Path(__file__).parents[1]


@pytest.fixture
def journald(tmp_path):
    with Journald(tmp_path / "journal") as fake:
        log.setup("agentd", journal=fake.path)
        yield fake
    log.redact([])
    log.setup("test", journal="")


@pytest.fixture
def stderr(capfd):
    log.setup("agentd", journal="")
    yield lambda: capfd.readouterr().err
    log.redact([])


def test_an_entry_has_its_fields(journald):
    log.event("tool.finish", "done", tool="exec", ms=12, message="telegram-1", session="main", turn="t-1", nothing=None, empty="")
    assert journald.entries() == [
        {
            "SYSLOG_IDENTIFIER": "bubbles-agentd",
            "MESSAGE": "done",
            "PRIORITY": "6",
            "BUBBLES_EVENT": "tool.finish",
            "BUBBLES_SESSION": "main",
            "BUBBLES_TURN": "t-1",
            "BUBBLES_TOOL": "exec",
            "BUBBLES_MS": "12",
            "BUBBLES_MESSAGE": "telegram-1",
        }
    ]


def test_session_and_turn_come_from_the_context_of_the_task(journald):
    async def actor(key):
        with log.context(session=key, turn=f"{key}-1"):
            await asyncio.sleep(0)
            log.event("turn.start", key)
        log.event("turn.close", key)

    async def run():
        await asyncio.gather(actor("a"), actor("b"))

    asyncio.run(run())
    got = [(e["BUBBLES_EVENT"], e["MESSAGE"], e.get("BUBBLES_SESSION"), e.get("BUBBLES_TURN")) for e in journald.entries()]
    assert sorted(got) == [
        ("turn.close", "a", None, None),
        ("turn.close", "b", None, None),
        ("turn.start", "a", "a", "a-1"),
        ("turn.start", "b", "b", "b-1"),
    ]


@given(st.dictionaries(st.sampled_from(["tool", "ms", "x_1"]), st.text(), max_size=3), st.text())
def test_nothing_in_a_value_begins_a_field_or_an_entry(fields, message):
    entry = {"MESSAGE": message, **{f"BUBBLES_{name.upper()}": value for name, value in fields.items()}}
    got = parse(log.datagram("agentd", entry))
    assert got.pop("SYSLOG_IDENTIFIER") == "bubbles-agentd"
    assert got == {name: value.encode("utf-8", "replace").decode() for name, value in entry.items()}


@pytest.mark.parametrize(
    "text",
    ["a\nPRIORITY=0\nMESSAGE=forged", "a\n\nMESSAGE=forged\n", "MESSAGE\n\1\0\0\0\0\0\0\0x\n", "\n", "a\0b", "\ud800", "ü\u2028\x1b[2J"],
    ids=ascii,
)
def test_forged_lines_stay_in_their_value(journald, text):
    log.event("message.in", text, chat=text)
    (entry,) = journald.entries()
    assert entry["PRIORITY"] == "6"
    assert set(entry) == {"SYSLOG_IDENTIFIER", "MESSAGE", "PRIORITY", "BUBBLES_EVENT", "BUBBLES_CHAT"}
    assert entry["MESSAGE"] == entry["BUBBLES_CHAT"] == text.replace("\0", "\ufffd").replace("\ud800", "?")


def test_a_field_name_that_is_none_is_left_out(journald):
    log.event("message.in", "x", **{"a=b\nMESSAGE": "forged", "ü": "1"})
    (entry,) = journald.entries()
    assert entry["MESSAGE"] == "x"
    assert set(entry) == {"SYSLOG_IDENTIFIER", "MESSAGE", "PRIORITY", "BUBBLES_EVENT"}


def test_an_entry_too_long_for_a_datagram_goes_as_a_sealed_file(journald):
    fields = {f"f{n}": "x" * 16_000 + "\n" for n in range(20)}
    before = len(os.listdir("/proc/self/fd"))
    log.event("tool.finish", "long", **fields)
    (entry,) = journald.entries()
    assert entry["BUBBLES_F19"].startswith("x" * 16_000)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_very_long_value_is_cut(journald):
    log.event("tool.finish", "x" * 1_000_000)
    assert len(journald.entries()[0]["MESSAGE"]) == 16_000


def test_a_journal_that_is_gone_or_full_does_not_stop_anybody(journald, capfd):
    for n in range(5000):
        log.event("turn.start", f"entry {n} " + "x" * 100)
    kept = len(journald.entries())
    told = capfd.readouterr().err.splitlines()
    assert kept + len(told) == 5000  # what the journal did not take in time went to stderr
    journald.close()
    log.event("turn.start", "after the end")
    assert "after the end" in capfd.readouterr().err


def test_no_journal_at_all_is_stderr(tmp_path, capfd):
    log.setup("agentd", journal=str(tmp_path / "absent"))
    log.event("turn.start", "hello")
    assert "hello" in capfd.readouterr().err


def test_stderr_has_a_priority_a_time_and_one_line(stderr):
    log.event("tool.refuse", "no\nMESSAGE=forged\x1b[31m\r\x9b\u202e", priority="warning", session="main", tool="exec")
    line = stderr()
    assert re.fullmatch(
        r"<4>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} agentd tool\.refuse no\\nMESSAGE=forged\\x1b\[31m\\r\\x9b\\u202e session=main tool=exec\n", line
    )


def test_a_closed_stderr_is_survived():
    code = "import os; from bubbles import log; os.close(2); log.event('turn.start', 'x'); log.setup('x'); log.event('turn.start', 'x'); print('on')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "on\n"


@pytest.mark.parametrize("gone", ["os.close(2)", "r, w = os.pipe(); os.dup2(w, 2); os.close(w); os.close(r)"])
def test_what_standard_error_does_not_take_goes_elsewhere(tmp_path, gone):
    write = f"logfile.Late(Path({str(tmp_path / 'x.log')!r})).write"
    before = f"import os; from pathlib import Path; from bubbles import log, logfile; log.spare({write}); log.setup('x')"
    code = f"{before}; log.event('turn.start', 'read'); {gone}; log.event('turn.start', 'kept')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert " read" in done.stderr
    assert [line.split()[-1] for line in (tmp_path / "x.log").read_text().splitlines()] == ["kept"]


def test_a_spare_log_is_not_made_before_it_is_needed(tmp_path):
    logfile.Late(tmp_path / "x.log")
    assert not (tmp_path / "x.log").exists()


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop1234",
        "sk-ant-api03-AAAA_bbbb-cccc1234",
        "gsk_abcdefghijklmnop",
        "xoxb-1234-5678-abcdefgh",
        "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
        "123456789:AAHk5x-abcdefghijklmnopqrstuvwxyz_12",
        "hf_abcdefghijklmnopqrst",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0aa.abcdefghijk",
        "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe.abcdefghijklmnopqrstuvwxyz1",
    ],
)
def test_what_looks_like_a_key_is_struck_out(journald, secret):
    log.event("tool.start", f"curl -H 'X: {secret}'", arguments=f'{{"key":"{secret}"}}')
    log.event("tool.start", "a\n" + secret)
    for entry in journald.entries():
        assert secret not in str(entry)
        assert log.STRUCK in entry["MESSAGE"]


def test_a_bearer_is_struck_out_and_its_header_stays(journald):
    log.event("tool.start", "Authorization: Bearer abc.def-123456 -v")
    assert journald.entries()[0]["MESSAGE"] == f"Authorization: Bearer {log.STRUCK} -v"


def test_known_secrets_are_struck_out_everywhere(journald, capfd):
    log.redact(["hunter2hunter2", "hunter2hunter2-longer", "short"])
    log.event("turn.start", "it is hunter2hunter2-longer, short", note="xhunter2hunter2x")
    try:
        raise ValueError("hunter2hunter2")
    except ValueError:
        log.error("daemon.bug", "failed")
    first, second = journald.entries()
    assert first["MESSAGE"] == f"it is {log.STRUCK}, short"
    assert first["BUBBLES_NOTE"] == f"x{log.STRUCK}x"
    assert "hunter2" not in str(second)
    log.setup("agentd", journal="")  # the secrets stay secrets
    log.event("turn.start", "hunter2hunter2")
    assert "hunter2" not in capfd.readouterr().err


def test_ordinary_words_are_left_alone(journald):
    text = "The task-force asked: risk-averse? 12345678:90 see https://example.org/a?b=sk-1 and 2026-11-30T12:40:00 eyJ no."
    log.event("turn.start", text)
    assert journald.entries()[0]["MESSAGE"] == text


@given(st.text())
def test_striking_is_done_once_and_for_all(text):
    assert log.struck(log.struck(text)) == log.struck(text)


def test_an_error_carries_its_traceback_as_one_entry(journald):
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError as error:
        log.error("daemon.bug", "it failed", error=error, door="agentd")
    (entry,) = journald.entries()
    assert entry["PRIORITY"] == "3"
    assert entry["BUBBLES_DOOR"] == "agentd"
    assert entry["BUBBLES_TRACEBACK"].endswith("RuntimeError: two\nlines")
    log.error("daemon.warning", "without one")
    assert "BUBBLES_TRACEBACK" not in journald.entries()[0]


def test_debug_lines_only_on_request(journald, monkeypatch):
    log.debug("quiet")
    assert not log.debugging()
    monkeypatch.setenv("BUBBLES_DEBUG", "1")
    log.setup("agentd", journal=journald.path)
    log.debug("loud", n=1)
    assert [(e["MESSAGE"], e["PRIORITY"], e["BUBBLES_N"]) for e in journald.entries()] == [("loud", "7", "1")]


def test_the_journal_is_taken_only_where_stderr_is_its_stream(tmp_path):
    """JOURNAL_STREAM is inherited by whatever a unit starts; a child whose stderr is a file writes there."""
    code = "import os, sys; from bubbles import log; found = os.fstat(2)\n"
    code += "os.environ['JOURNAL_STREAM'] = f'{found.st_dev}:{found.st_ino + int(sys.argv[1])}'\n"
    code += f"log.JOURNAL = {str(tmp_path / 'journal')!r}; log.setup('agentd'); log.event('turn.start', 'hello')"
    with Journald(tmp_path / "journal") as fake, open(tmp_path / "err", "w+") as err:
        for other in (0, 1):
            subprocess.run([sys.executable, "-c", code, str(other)], stderr=err, check=True)
        assert len(fake.entries()) == 1
        err.seek(0)
        assert len(err.readlines()) == 1


def test_an_unknown_event_is_refused():
    with pytest.raises(ValueError, match=r"'turn\.began' is not in"):
        log.event("turn.began", "x")


def test_all_events_in_the_code_are_in_the_table():
    used = set()
    for path in (ROOT / "bubbles").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
                continue
            if node.func.value.id == "log" and node.func.attr in ("event", "error"):
                first = node.args[0]
                literals = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
                for literal in literals:
                    assert isinstance(literal, ast.Constant), f"{path}:{node.lineno}: the event is not written out"
                    used.add(literal.value)
    assert used - set(log.EVENTS) == set()


def test_a_line_costs_little(journald):
    """2-10 us is meant; the bound is what a very busy machine still keeps."""
    start = time.process_time()
    for n in range(20_000):
        log.event("turn.start", "an ordinary line of some fifty characters, or more", session="main", turn="telegram-8841", ms=n)
        if n % 100 == 0:
            journald.entries()
    assert (time.process_time() - start) / 20_000 < 100e-6


def test_a_debug_line_that_is_not_wanted_costs_nothing(journald):
    start = time.process_time()
    for _ in range(20_000):
        log.debug("nobody reads this", n=1)
    assert (time.process_time() - start) / 20_000 < 5e-6
