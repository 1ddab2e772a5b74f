"""The entries of the log: what was logged is what is read, from journald and files alike, whatever lies between, and nothing of others."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import log, logfile
from bubbles.bus.lock import Lock
from bubbles.errors import Unavailable
from bubbles.paths import Home
from bubbles.programs import entries, journald
from bubbles.programs.entries import Entry, Wanted, follow, read, text
from tests.fakes.journald import Journald, Kept
from tests.test_log import HOSTILE

WORDS = st.text(alphabet=HOSTILE, max_size=30)
NAMES = st.sampled_from(["", "a", "b", "中 文"])
FEW = st.lists(NAMES.filter(bool), max_size=2).map(tuple)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """A journald of its own, instead of this machine's."""
    found = Kept(tmp_path)
    monkeypatch.setenv("PATH", f"{found.bin}{os.pathsep}{os.environ['PATH']}")
    return found


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no journalctl."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.fixture
def logs(home: Home) -> Iterator[Home]:
    """Entries of this process go to the home's files."""
    log.setup("agentd", home=home, journal="")
    yield home
    log.setup("test", journal="")


def entry(at: float, message: str = "x", program: str = "agentd", **fields: str) -> Entry:
    names = ("session", "turn", "channel", "tool")
    words = {name: fields.pop(name, "") for name in names}
    return Entry(at, int(fields.pop("priority", "6")), program, fields.pop("event", "turn.start"), message, **words, fields=fields)


def write(home: Home, *found: Entry, ending: str = "") -> None:
    for one in found:
        with (home.log / f"{one.program}.jsonl{ending}").open("a") as file:
            file.write(json.dumps(one.body()) + "\n")


def body(home: Home, one: Entry) -> dict[str, str]:
    """An entry as journald has it."""
    told = {name: value for name, value in one.body().items() if name not in ("at", "priority", "program", "message") and value}
    named = {f"BUBBLES_{'MESSAGE' if name == 'message_id' else name.upper()}": value for name, value in told.items()}
    first = {"MESSAGE": one.message, "PRIORITY": str(one.priority), "SYSLOG_IDENTIFIER": f"bubbles-{one.program}"}
    return {**first, **named, "BUBBLES_HOME": str(home.root.resolve())}


# -- what is read ----------------------------------------------------------------------------------


@given(WORDS, st.dictionaries(st.sampled_from(["session", "turn", "channel", "tool", "ms", "message", "x_1"]), WORDS.filter(bool)))
def test_what_was_logged_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, words: str, fields: dict[str, str]) -> None:
    directory = tmp_path_factory.mktemp("logged")
    home = Home(directory / "home")
    home.prepare()
    with Journald(directory / "socket") as socket:
        log.setup("agentd", home=home, journal=socket.path)
        log.event("turn.start", words, **fields)
        (sent,) = socket.entries()
        log.setup("agentd", home=home, journal="")
        log.event("turn.start", words, **fields)
        log.setup("test", journal="")
    line = json.dumps({**sent, "__REALTIME_TIMESTAMP": "5000000"}).encode()
    told = {"message_id" if name == "message" else name: value.replace("\0", "\ufffd") for name, value in fields.items()}
    by_file = Entry.parse((home.log / "agentd.jsonl").read_bytes())
    assert by_file == entry(by_file.at if by_file else 0, words.replace("\0", "\ufffd"), **told)
    assert Entry.of_journal(line) == replace(by_file, at=5.0)


def test_both_places_are_told_in_the_order_of_time(home: Home, kept: Kept) -> None:
    write(home, entry(1.0, "a"), entry(4.0, "d"), ending=".1")
    write(home, entry(5.0, "e"), entry(8.0, "h"))
    write(home, entry(3.0, "c", "modeld"), entry(7.0, "g", "modeld"))
    for at, words in ((2.0, "b"), (6.0, "f")):
        kept.keep(body(home, entry(at, words)), at=at)
    assert "".join(one.message for one in read(home)) == "abcdefgh"
    assert "".join(one.message for one in read(home, last=3)) == "fgh"
    assert "".join(one.message for one in read(home, Wanted(since=3.0, until=7.0))) == "cdefg"
    assert "".join(one.message for one in read(home, Wanted(since=2.0), last=2)) == "gh"


@given(
    st.lists(st.tuples(st.sampled_from(["agentd", "modeld"]), NAMES, NAMES, NAMES, st.sampled_from(["tool.start", "turn.close"]), st.integers(0, 7))),
    st.builds(
        Wanted,
        sessions=FEW,
        turns=FEW,
        tools=FEW,
        events=st.lists(st.sampled_from(["tool.start", "tool.finish"]), max_size=2).map(tuple),
        programs=st.lists(st.sampled_from(["modeld"]), max_size=1).map(tuple),
        since=st.none() | st.floats(1, 20),
        until=st.none() | st.floats(1, 20),
        priority=st.integers(0, 7),
    ),
)
def test_journalctl_is_asked_for_what_is_wanted(found: list[tuple[str, ...]], wanted: Wanted) -> None:
    """What it is asked for leaves out nothing that is wanted, and what is not wanted is left out in any case."""
    from tests.fakes import journalctl

    home = Home(Path("/home"))
    for at, (program, session, turn, tool, event, priority) in enumerate(found):
        one = entry(at + 1.0, program=program, session=session, turn=turn, tool=tool, event=event, priority=str(priority))
        stored = {**body(home, one), "__REALTIME_TIMESTAMP": str((at + 1) * 1_000_000)}
        given_ = dict(option.removeprefix("--").partition("=")[::2] for option in wanted.matches() if option.startswith("--"))
        matches: dict[str, set[str]] = {}
        for match in (option for option in wanted.matches() if not option.startswith("--")):
            matches.setdefault(match.partition("=")[0], set()).add(match.partition("=")[2])
        assert journalctl._fits(stored, given_, matches) == wanted.holds(one)


def test_a_session_is_meant_by_its_name_and_by_its_key() -> None:
    from bubbles.ids import safe

    wanted = Wanted(sessions=("中 文",))
    assert wanted.holds(entry(1.0, session="中 文"))
    assert wanted.holds(entry(1.0, session=safe("中 文")))
    assert not wanted.holds(entry(1.0, session="main"))


def test_what_is_no_entry_is_passed_over(home: Home, kept: Kept) -> None:
    write(home, entry(1.0, "one"))
    torn = b'{"at":2,"priority":6,"program":"agentd","event":"tu'
    for junk in (
        torn,
        b"\0" * 5000,
        b"[1]",
        b"3",
        b'"x"',
        b"null",
        b'{"at":"x"}',
        b'{"at":1e400,"priority":6,"program":"x"}',
        b"\xff\xfe",
        b"[" * 90_000,
    ):
        with (home.log / "agentd.jsonl").open("ab") as file:
            file.write(junk + b"\n")
    write(home, entry(3.0, "two"))
    (home.log / "dir.jsonl").mkdir()
    assert [one.message for one in read(home)] == ["one", "two"]


def test_nothing_of_another_home_or_user_is_told(home: Home, kept: Kept, tmp_path: Path) -> None:
    ours = body(home, entry(1.0, "ours"))
    kept.keep(ours, {**ours, "BUBBLES_HOME": str(tmp_path), "MESSAGE": "another home's"})
    kept.keep({**ours, "MESSAGE": "another user's"}, uid=os.geteuid() + 1)
    kept.keep({"MESSAGE": "anything"})
    assert [one.message for one in read(home)] == ["ours"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([255, 27, 91], "\ufffd\x1b["),
        (None, ""),
        (["first", "second"], "first"),
        ([[104, 105], "second"], "hi"),
        ([], ""),
        ([300, -1], "300"),
        (7, "7"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_any_value_that_journalctl_prints_is_a_text(value: object, told: str) -> None:
    line = json.dumps({"__REALTIME_TIMESTAMP": "1000000", "MESSAGE": value, "BUBBLES_TOOL": value, "PRIORITY": "9"})
    found = Entry.of_journal(line.encode())
    assert found is not None
    assert (found.message, found.tool, found.priority) == (told, told, 6)
    if "\x1b" in told:
        assert "\x1b" not in text(found, False)


@given(st.builds(entry, st.floats(1, 1e10), WORDS, WORDS, session=WORDS, turn=WORDS, x=WORDS, event=WORDS, priority=st.integers(-(10**6), 10**6)))
def test_an_entry_is_one_line_whatever_it_holds(one: Entry) -> None:
    line = text(one, False)
    assert log.escaped(line) == line
    assert text(one, True) in (line, *(f"\x1b[{colour}m{line}\x1b[0m" for colour in entries._COLOURS.values()))


def test_files_that_are_moved_aside_meanwhile_are_told_once_and_whole(home: Home, nobody: None) -> None:
    write(home, *(entry(n + 1.0, str(n)) for n in range(3)), ending=".1")
    write(home, *(entry(n + 1.0, str(n)) for n in range(3, 6)))
    found = read(home)
    first = next(found)
    path = home.log / "agentd.jsonl"
    os.replace(f"{path}.1", f"{path}.2")
    os.replace(path, f"{path}.1")
    write(home, entry(9.0, "later"))
    assert [one.message for one in (first, *found)] == [str(n) for n in range(6)]


# -- what comes ------------------------------------------------------------------------------------


def test_what_comes_is_told_from_now_on_from_both_places(logs: Home, kept: Kept) -> None:
    log.event("turn.start", "before")
    kept.keep(body(logs, entry(0, "before")), at=time.time() - 60)
    with follow(logs, Wanted(events=("turn.start",))) as found:
        log.event("turn.start", "a file")
        log.event("turn.close", "not wanted")
        told = iter(found)
        assert next(told).message == "a file"
        kept.keep(body(logs, entry(0, "journald")), at=time.time() + 1)
        assert next(told).message == "journald"
        write(logs, entry(time.time(), "a new daemon", "cron"))
        assert next(told).message == "a new daemon"
        threading.Timer(0.01, found.close).start()
        assert list(told) == []


def test_over_a_move_nothing_is_missed_or_told_twice(logs: Home, nobody: None) -> None:
    with follow(logs) as found:
        for n in range(3 * logfile.MOST_BYTES // 15_000 // 2):
            log.event("turn.start", str(n), x="x" * 15_000)
            last = n
        told = iter(found)
        assert [next(told).message for _ in range(last + 1)] == [str(n) for n in range(last + 1)]
    assert (logs.log / "agentd.jsonl.1").exists()


def test_a_file_that_was_begun_and_moved_aside_between_two_looks_is_told(home: Home, nobody: None) -> None:
    write(home, entry(1.0, "older"), ending=".2")
    write(home, entry(2.0, "old", "modeld"))
    with follow(home) as found:
        for program in ("agentd", "modeld"):
            if program == "modeld":
                os.replace(home.log / "modeld.jsonl", home.log / "modeld.jsonl.2")
            write(home, entry(3.0, "first", program), ending=".1")
            write(home, entry(4.0, "second", program))
    assert sorted(one.message for one in found) == ["first", "first", "second", "second"]


def test_a_log_that_is_emptied_in_place_is_followed_on(logs: Home, nobody: None) -> None:
    for _ in range(100):
        log.event("turn.start", "before")
    with follow(logs) as found:
        os.truncate(logs.log / "agentd.jsonl", 0)
        log.event("turn.start", "after")
        threading.Timer(5, found.close).start()
        assert next(iter(found)).message == "after"


def test_a_pipe_in_the_place_of_a_log_holds_nobody_up(home: Home, nobody: None) -> None:
    os.mkfifo(home.log / "agentd.jsonl")
    write(home, entry(1.0, "one", "modeld"))
    assert [one.message for one in read(home)] == ["one"]
    with follow(home) as found:
        write(home, entry(2.0, "two", "modeld"))
    assert [one.message for one in found] == ["two"]


def test_fields_that_anybody_made_up_are_not_the_entrys_own(home: Home, kept: Kept) -> None:
    forged = {"BUBBLES_AT": "1", "BUBBLES_PRIORITY": "0", "BUBBLES_PROGRAM": "modeld", "BUBBLES_MESSAGE": "m-1", "BUBBLES_MESSAGE_ID": "m-2"}
    kept.keep({**body(home, entry(0, "mine")), **forged}, at=100)
    (one,) = read(home)
    told = one.body()
    assert (told["at"], told["priority"], told["program"], told["message_id"]) == (100.0, 6, "agentd", "m-1")


def test_so_many_names_of_fields_that_no_call_could_hold_them_hide_nothing(home: Home, kept: Kept) -> None:
    kept.keep(body(home, entry(0, "mine")), {f"BUBBLES_X{n:060d}": "x" for n in range(4000)})
    assert [one.message for one in read(home)] == ["mine"]


def test_what_was_written_before_the_end_is_told(logs: Home, nobody: None) -> None:
    with follow(logs) as found:
        log.event("turn.start", "at the last moment")
    assert [one.message for one in found] == ["at the last moment"]


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.fixture
def elsewhere(home: Home) -> Iterator[None]:
    """A daemon runs that has not written a file."""
    lock = Lock(home, "agentd")
    lock.acquire()
    yield
    lock.release()


def test_without_journalctl_there_are_the_files(home: Home, nobody: None) -> None:
    write(home, entry(1.0, "one"))
    assert [one.message for one in read(home)] == ["one"]
    assert journald.gaps(home, 0, 1) == []
    assert journald.dropped(home, 0, 1) == 0


def test_a_daemon_that_logs_where_nobody_can_look_is_told_of(home: Home, nobody: None, elsewhere: None) -> None:
    write(home, entry(1.0, "one", "modeld"))
    with pytest.raises(Unavailable, match="the log of agentd is with journald, and there is no journalctl") as caught:
        list(read(home))
    assert caught.value.remedy
    write(home, entry(1.0, "one", "agentd"))
    assert len(list(read(home))) == 2


def test_what_may_not_be_read_is_told_with_what_to_do(home: Home, kept: Kept, elsewhere: None) -> None:
    kept.refuse("No journal files were opened due to insufficient permissions.")
    with pytest.raises(Unavailable, match="you may not read what journald keeps") as caught:
        list(read(home))
    assert caught.value.remedy.startswith("sudo usermod -aG systemd-journal $USER")
    kept.refuse("Failed to open files: odd")
    with pytest.raises(Unavailable, match="cannot be read: Failed to open files: odd"):
        list(read(home))
    write(home, entry(1.0, "one"))
    told = read(home, last=1)
    assert next(told).message == "one", "what can be read is told first"
    with pytest.raises(Unavailable, match="odd"):
        next(told)
    kept.refuse("No journal files were opened due to insufficient permissions.")
    assert [one.message for one in read(home)] == ["one"], "nothing is lost by not reading what holds nothing"


# -- what journald did not keep --------------------------------------------------------------------


def test_entries_that_journald_dropped_are_counted(home: Home, kept: Kept) -> None:
    def numbered(*numbers: int, at: float, pid: int = 1) -> None:
        for n, number in enumerate(numbers):
            kept.keep({**body(home, entry(0)), "BUBBLES_N": str(number)}, at=at + n, pid=pid)

    numbered(5, 6, 7, 17, 18, at=100)
    numbered(1, 2, at=101.5, pid=2)
    numbered(1, 2, 4, at=200)  # the same pid, another process
    kept.keep({**body(home, entry(0)), "BUBBLES_N": "x" * 30}, at=300)
    found = journald.gaps(home, 0, 1000)
    assert [(gap.program, gap.count, gap.since, gap.until) for gap in found] == [("agentd", 9, 102.0, 103.0), ("agentd", 1, 201.0, 202.0)]
    assert journald.gaps(home, 103.0, 104.0) == []


def test_what_journald_says_that_it_dropped_is_told_to_those_who_may_read_it(home: Home, kept: Kept) -> None:
    said = {"MESSAGE_ID": "a596d6fe7bfa4994828e72309e95d61e", "N_DROPPED": "85022", "OBJECT_UID": str(os.geteuid())}
    kept.keep(said, {**said, "OBJECT_UID": "65534"}, at=100, uid=0)
    kept.keep(said, at=100, uid=os.geteuid() or 65534)
    assert journald.dropped(home, 50, 150) == 85022
    assert journald.dropped(home, 150, 250) == 0
