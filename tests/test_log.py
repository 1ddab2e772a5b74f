"""The log: an entry is one entry whatever its values hold, keys never reach it, and it costs little."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log
from bubbles.paths import Home
from tests.fakes.journald import Journald, parse

ROOT = Path(__file__).parents[1]
# Any text, and more often than chance has it what a terminal acts upon.
HOSTILE = st.one_of(st.characters(exclude_categories=("Cs",)), st.sampled_from("\0\t\n\r\x1b\x7f\x9b\u061c\u200e\u2028\u202e\u2069\U000e0041[]2J中"))


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


def test_a_key_in_one_field_takes_no_other_with_it(journald):
    log.event("daemon.warning", "-----BEGIN PRIVATE KEY-----\nabcdef", tool="exec")
    log.event("daemon.warning", "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1", tool="110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw2")
    first, second = journald.entries()
    assert first["MESSAGE"] == f"-----BEGIN PRIVATE KEY-----{log.STRUCK}"
    assert (first["BUBBLES_TOOL"], second["BUBBLES_TOOL"], second["MESSAGE"]) == ("exec", log.STRUCK, log.STRUCK)


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
    assert journald.entries()[0]["MESSAGE"] == "x" * 16_000 + " … (984000 more characters)"


def test_a_journal_that_is_gone_or_full_does_not_stop_anybody(journald, capfd):
    for n in range(5000):
        log.event("turn.start", f"entry {n} " + "x" * 100)
    kept = len(journald.entries())
    told = capfd.readouterr().err.splitlines()
    assert kept + len(told) == 5000  # what the journal did not take in time went on, to stderr where there is no home
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


# -- where no journal takes it -------------------------------------------------------------------


def kept(home: Home, name: str = "agentd") -> list[dict]:
    return [json.loads(line) for line in (home.log / f"{name}.jsonl").read_text().splitlines()]


def test_an_entry_is_a_line_of_json(home, stderr):
    log.setup("agentd", home=home, journal="")
    before = time.time()
    log.event("tool.finish", "done", tool="exec", ms=12, message="telegram-1", session="main", turn="t-1", nothing=None, empty="")
    log.event("turn.close", "over", priority="warning")
    first, second = kept(home)
    assert before - 0.001 <= first.pop("at") <= second.pop("at") <= time.time()
    who = {"session": "main", "turn": "t-1", "message_id": "telegram-1"}
    assert first == {"priority": 6, "program": "agentd", "event": "tool.finish", "message": "done", **who, "tool": "exec", "ms": "12"}
    assert second == {"priority": 4, "program": "agentd", "event": "turn.close", "message": "over"}
    assert (home.log / "agentd.jsonl").stat().st_mode & 0o777 == 0o600
    assert len(stderr().splitlines()) == 2


@given(st.dictionaries(st.sampled_from(["tool", "ms", "x_1"]), st.text(alphabet=HOSTILE), max_size=3), st.text(alphabet=HOSTILE))
def test_nothing_in_a_value_begins_a_line_or_reaches_a_terminal(fields, message):
    entry = {
        "MESSAGE": message,
        "PRIORITY": "6",
        "BUBBLES_EVENT": "turn.start",
        **{f"BUBBLES_{name.upper()}": value for name, value in fields.items()},
    }
    line = log.line(1.5, "agentd", entry).decode()
    assert log.escaped(line[:-1]) == line[:-1]
    assert json.loads(line) == {"at": 1.5, "priority": 6, "program": "agentd", "event": "turn.start", "message": message, **fields}
    assert not log._STEERS.search(log.escaped(message))


def test_keys_reach_no_file(home, stderr):
    log.setup("agentd", home=home, journal="")
    log.redact(["hunter2hunter2"])
    log.event("tool.start", "echo sk-proj-abcdefghijklmnop1234", arguments="hunter2hunter2")
    text = (home.log / "agentd.jsonl").read_text() + stderr()
    assert text.count(log.STRUCK) == 4
    assert "hunter2" not in text
    assert "abcdefghijklmnop" not in text


def test_standard_error_that_is_the_daemons_own_file_has_no_second_copy(home):
    code = "from bubbles import log; from bubbles.paths import Home; log.setup('agentd', home=Home.find(), journal=''); log.event('turn.start', 'x')"
    for name, said in (("agentd.log", 0), ("other.log", 1)):
        with open(home.log / name, "a") as stderr:
            subprocess.run([sys.executable, "-c", code], stderr=stderr, check=True)
        assert len((home.log / name).read_text().splitlines()) == said
    assert len(kept(home)) == 2


@pytest.mark.parametrize("gone", ["os.close(2)", "r, w = os.pipe(); os.dup2(w, 2); os.close(w); os.close(r)"])
def test_nobody_need_read_standard_error(home, gone):
    code = "import os; from bubbles import log; from bubbles.paths import Home; log.setup('agentd', home=Home.find(), journal='')"
    code += f"; log.event('turn.start', 'read'); {gone}; log.event('turn.start', 'unread')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert [entry["message"] for entry in kept(home)] == ["read", "unread"]


def test_what_neither_journal_nor_file_takes_goes_to_standard_error(home, stderr, tmp_path):
    log.setup("agentd", home=home, journal=str(tmp_path / "absent"))
    log.event("turn.start", "one")
    assert [entry["message"] for entry in kept(home)] == ["one"]
    assert stderr() == ""
    (home.log / "small.jsonl").mkdir()
    log.setup("small", home=home, journal=str(tmp_path / "absent"))
    log.event("turn.start", "two")
    assert " two\n" in stderr()


def test_the_journal_is_told_whose_entry_it_is_and_which_one(home, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(home.root)
    with Journald(tmp_path / "journal") as fake:
        log.setup("agentd", home=Home(link), journal=fake.path)
        log.event("turn.start", "one")
        log.event("turn.start", "two")
        first, second = fake.entries()
        assert (first["BUBBLES_HOME"], first["BUBBLES_N"], second["BUBBLES_N"]) == (str(home.root), "1", "2")
        assert not (home.log / "agentd.jsonl").exists()
    log.setup("test", journal="")


def test_a_journal_that_comes_back_has_them_again(home, tmp_path):
    with Journald(tmp_path / "journal") as fake:
        log.setup("agentd", home=home, journal=fake.path)
        log.event("turn.start", "journal")
        assert len(fake.entries()) == 1
    os.unlink(fake.path)
    log.event("turn.start", "file")
    with Journald(tmp_path / "journal") as fake:
        log.event("turn.start", "file still")
        log._sink.sulking_until = time.monotonic() - 1  # seconds later
        log.event("turn.start", "journal again")
        assert [(entry["MESSAGE"], entry["BUBBLES_N"]) for entry in fake.entries()] == [("journal again", "2")]
    assert [entry["message"] for entry in kept(home)] == ["file", "file still"]
    log.setup("test", journal="")


def test_more_than_the_journal_would_keep_goes_to_the_file(home, tmp_path):
    with Journald(tmp_path / "journal") as fake:
        log.setup("agentd", home=home, journal=fake.path)
        taken = []
        for n in range(12_000):
            log.event("turn.start", str(n))
            if n % 4 == 0:
                taken += fake.entries()
        taken += fake.entries()
        *entries, last = taken
        assert last["BUBBLES_EVENT"] == "daemon.warning"
        assert "log/agentd.jsonl" in last["MESSAGE"]
        told = [entry["MESSAGE"] for entry in entries]
        assert 4_000 < len(told) < 10_000
        assert told + [entry["message"] for entry in kept(home)] == [str(n) for n in range(12_000)]
        assert [entry["BUBBLES_N"] for entry in taken] == [str(n + 1) for n in range(len(taken))]
        log._sink.burst_until = 0.0  # half a minute later
        log.event("turn.start", "again")
        assert [entry["MESSAGE"] for entry in fake.entries()] == ["again"]
    log.setup("test", journal="")


def test_a_closed_stderr_is_survived():
    code = "import os; from bubbles import log; os.close(2); log.event('turn.start', 'x'); log.setup('x'); log.event('turn.start', 'x'); print('on')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "on\n"


KEYS = [
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-AAAA_bbbb-cccc1234",
    "gsk_abcdefghijklmnop",
    "xoxb-1234-5678-abcdefgh",
    "AIzaSyA1234567890abcdefghijklmnopqrstuvw",
    "123456789:AAHk5x-abcdefghijklmnopqrstuvwxyz_12",
    "hf_abcdefghijklmnopqrst",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0aa.abcdefghijk",
    "MTIzNDU2Nzg5MDEyMzQ1Njc4.GaBcDe.abcdefghijklmnopqrstuvwxyz1",
]


@pytest.mark.parametrize("secret", KEYS)
def test_what_looks_like_a_key_is_struck_out(journald, secret):
    log.event("tool.start", f"curl -H 'X: {secret}'", arguments=f'{{"key":"{secret}"}}')
    log.event("tool.start", "a\n" + secret)
    for entry in journald.entries():
        assert secret not in str(entry)
        assert log.STRUCK in entry["MESSAGE"]


def fragments(secret: str, text: str) -> list[str]:
    """What of a secret stands in a text, six characters at a time."""
    return [secret[n : n + 6] for n in range(len(secret) - 5) if secret[n : n + 6] in text]


PRIVATE = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 40
EXACT = "Zq7!pass word#9%Kx" * 2 + "tail-of-it"
AROUND = st.text(alphabet=st.sampled_from(" \nabc,;(") | HOSTILE, max_size=80)


@pytest.mark.parametrize("secret", [*KEYS, f"eyJ{'a' * 6000}.{'b' * 3000}.{'c' * 500}", EXACT], ids=lambda secret: secret[:8])
@given(
    before=AROUND, after=AROUND, times=st.integers(1, 4), most=st.integers(0, 300), filling=st.sampled_from([0, 40, 100, 900, 5000]), data=st.data()
)
def test_wherever_a_text_is_cut_nothing_of_a_key_is_left(secret, before, after, times, most, filling, data):
    sink = log.Sink()
    sink.secrets, sink.longest = (re.compile(re.escape(secret)), len(secret)) if secret == EXACT else (None, 0)
    one = f"{before}{'- ' * data.draw(st.integers(0, filling))} {secret} {after}"
    text = one * times
    if data.draw(st.booleans()):  # the cut goes through a key
        most = max(0, one.index(secret) + data.draw(st.integers(-5, len(secret) + 5)))
    if data.draw(st.booleans()):  # all that is looked at ends within a key
        text = "- " * ((most + log._MARGIN + sink.longest) // 2 - data.draw(st.integers(0, len(secret) // 2 + 30))) + f" {secret} {after}"
    shown = sink.clipped(text, most) if len(text) > most else log._strike(text, sink.secrets)
    assert not fragments(secret, shown)
    if len(text) <= most + log._MARGIN:
        assert shown == (log.cut(log._strike(text, sink.secrets), most) if len(text) > most else log._strike(text, sink.secrets))


@pytest.mark.parametrize("secret", [*KEYS, EXACT, PRIVATE], ids=lambda secret: secret[:8])
def test_nothing_of_a_key_is_left_where_many_before_it_were_struck(secret):
    log.redact([EXACT])
    for filling in range(0, 1500, 7):
        shown = log.clipped("- " * filling + f"{PRIVATE} {secret} " * 30, 200)
        assert not fragments(secret, shown.replace("-----BEGIN PRIVATE KEY-----", ""))
    log.redact([])


def test_an_entry_has_nothing_of_a_key_that_its_longest_value_would_cut(journald):
    log.redact([EXACT])
    for n in range(-40, 5, 3):
        for secret in (EXACT, KEYS[0]):
            log.event("tool.start", "- " * 7900 + " " * (200 + n) + secret + " and so on" * 300)
            (entry,) = journald.entries()
            assert not fragments(secret, entry["MESSAGE"])
            assert entry["MESSAGE"].endswith(" more characters)")


def test_a_text_that_is_clipped_is_told_with_what_is_left_out(journald):
    log.redact([EXACT])
    assert log.clipped("abcdef", 4) == "abcd … (2 more characters)"
    assert log.clipped("abcd", 4) == "abcd"
    assert log.clipped("x y " * 1_000_000, 10) == "x y x y x  … (3999990 more characters)"
    assert log.clipped(f"a {EXACT} b", 12) == f"a {log.STRUCK} … (2 more characters)"


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


def test_a_huge_text_costs_no_more_than_a_long_one(journald):
    took = []
    for size in (20_000, 20_000_000):
        text = "words and words " * (size // 16)
        start = time.process_time()
        for _ in range(200):
            log.clipped(text, 200)
        took.append(time.process_time() - start)
    assert took[1] < 20 * took[0] + 0.1


def test_a_debug_line_that_is_not_wanted_costs_nothing(journald):
    start = time.process_time()
    for _ in range(20_000):
        log.debug("nobody reads this", n=1)
    assert (time.process_time() - start) / 20_000 < 5e-6
