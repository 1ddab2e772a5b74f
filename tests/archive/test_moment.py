"""The moment stands where nothing was left behind between its two looks, and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from bubbles.archive.moment import Homes, Moment, agree, stats, whole_lines
from bubbles.archive.spool import Queues
from bubbles.kernel.events import ModelAsked, Said, ToolFinished, ToolStarted, to_line
from bubbles.paths import Home
from tests.archive.home import file, history, journal, spoke
from tests.tidying.home import inbound


@pytest.fixture
def busy(home: Home) -> Home:
    """A home with a session at rest and one in the midst of a turn."""
    history(home, "still", "cli-0")
    (home.turns / "still.jsonl").touch()
    history(home, "busy", "cli-0")
    journal(home, "busy")
    for name in ("still", "busy"):
        (home.session(name) / "data").mkdir()
    for path in home.turns.iterdir():
        os.utime(path, (1.0, 1.0))
    return home


def looked(home: Home, meanwhile: Callable[[Home], object]) -> tuple[bool, set[str], Moment]:
    homes = Homes(home.root, Queues(home.root))
    before, alone = homes.marks(), stats(home.root)
    moment = homes.read()
    meanwhile(home)
    stands, behind = agree(home.root, homes, moment, before, alone)
    return stands, behind, moment


def test_where_nothing_goes_on_it_stands(busy: Home) -> None:
    stands, behind, moment = looked(busy, lambda home: None)
    assert (stands, behind) == (True, set())
    assert moment.files["turns/busy.jsonl"].content == (busy.turns / "busy.jsonl").read_bytes()
    assert set(moment.histories) == {"busy", "still"}


def test_what_a_journal_has_grown_by_is_in_it(busy: Home) -> None:
    stands, behind, moment = looked(busy, lambda home: journal(home, "busy", ModelAsked("cli-1.1"), ToolStarted("c1")))
    assert (stands, behind) == (True, set())
    assert moment.files["turns/busy.jsonl"].content.endswith(to_line(ToolStarted("c1"), 1.0))


def test_words_that_begin_a_turn_meanwhile_are_in_it(busy: Home) -> None:
    stands, _, moment = looked(busy, lambda home: journal(home, "still", spoke("cli-2"), turn="cli-2"))
    assert not stands or b"cli-2" in moment.files["turns/still.jsonl"].content


def test_half_a_line_is_not(busy: Home) -> None:
    whole = (busy.turns / "busy.jsonl").read_bytes()
    stands, _, moment = looked(busy, lambda home: (home.turns / "busy.jsonl").write_bytes(whole + b'{"event":"Too'))
    assert stands
    assert moment.files["turns/busy.jsonl"].content == whole


def _close(home: Home) -> None:
    with open(home.session("busy") / "session.jsonl", "a") as out:
        out.write("{}\n")


def _begin_and_end(home: Home) -> None:
    journal(home, "still", spoke("cli-2"), turn="cli-2")
    os.truncate(home.turns / "still.jsonl", 0)


def _other_turn(home: Home) -> None:
    os.truncate(home.turns / "busy.jsonl", 0)
    journal(home, "busy", *[spoke("cli-9")] * 9, turn="cli-9")


def _replace(home: Home) -> None:
    path = home.session("busy") / "session.jsonl"
    whole = path.read_bytes()
    path.unlink()
    path.with_name("keep").touch()  # so that it does not get the same inode
    path.write_bytes(whole)


def _cut(home: Home) -> None:
    path = home.session("busy") / "session.jsonl"
    path.write_bytes(path.read_bytes()[:-2] + b" \n")


GONE_ON: dict[str, Callable[[Home], object]] = {
    "a turn is closed": _close,
    "a journal is emptied": lambda home: os.truncate(home.turns / "busy.jsonl", 0),
    "a journal is emptied, and the next turn is longer": _other_turn,
    "a turn begins and ends": _begin_and_end,
    "a history is replaced": _replace,
    "a history is cut and written anew": _cut,
    "a session is moved away": lambda home: [os.rename(home.session("busy"), home.root / "x"), os.unlink(home.turns / "busy.jsonl")],
    "a new session has a history": lambda home: history(home, "new", "cli-3"),
    "a reply was sent on, and its turn goes on": lambda home: journal(home, "busy", ModelAsked("cli-1.1"), Said(0), ModelAsked("cli-1.2")),
    "a turn begins, and its first reply was sent on": lambda home: journal(home, "still", spoke("cli-2"), Said(0), turn="cli-2"),
    "a job goes on": lambda home: file(home.jobs, json.dumps({"version": 1, "jobs": []})),
    "a chat is bound": lambda home: file(home.chats, "{}"),
}


@pytest.mark.parametrize("what", GONE_ON)
def test_where_something_was_left_behind_it_does_not_stand(busy: Home, what: str) -> None:
    assert not looked(busy, GONE_ON[what])[0]


def test_a_tool_that_ended_is_known_better_than_its_files_are(busy: Home) -> None:
    stands, behind, _ = looked(busy, lambda home: journal(home, "busy", ToolFinished("c1", "done")))
    assert (stands, behind) == (True, {"busy"})


def test_a_result_that_was_half_written_at_the_first_look_is_one_of_the_second(busy: Home) -> None:
    path, line = busy.turns / "busy.jsonl", to_line(ToolFinished("c1", "done"), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + line[:20])
    stands, behind, _ = looked(busy, lambda home: path.write_bytes(whole + line))
    assert (stands, behind) == (True, {"busy"})


def test_a_reply_whose_note_was_half_written_at_the_first_look_was_sent_on_since(busy: Home) -> None:
    path, line = busy.turns / "busy.jsonl", to_line(Said(0), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + line[:20])
    assert not looked(busy, lambda home: path.write_bytes(whole + line))[0]


def test_a_reply_that_was_sent_on_before_keeps_nobody_waiting(busy: Home) -> None:
    journal(busy, "busy", Said(0))
    assert looked(busy, lambda home: journal(home, "busy", ModelAsked("cli-1.1")))[:2] == (True, set())


def test_so_is_a_file_that_came_in(busy: Home) -> None:
    stands, behind, _ = looked(busy, lambda home: file(home.session("still") / "data" / "picture.png"))
    assert (stands, behind) == (True, {"still"})


def test_a_history_between_journal_and_itself_is_noticed_by_the_order_of_both_looks(busy: Home) -> None:
    """The first look reads histories before journals, the last one after: a turn that closes between the two is never in neither."""
    homes = Homes(busy.root, Queues(busy.root))
    assert homes.marks() == homes.marks(journals_first=True)


def test_a_turn_given_up_and_media_on_their_way_are_in_it(busy: Home) -> None:
    file(busy.turns / "held" / "cli-7.jsonl")
    file(busy.turns / "released" / "cli-6.jsonl")
    file(busy.media("telegram") / "a.png", "image")
    inbound(busy, "telegram-1", "new")
    _, _, moment = looked(busy, lambda home: os.rename(home.media("telegram") / "a.png", home.session("still") / "a.png"))
    assert {"turns/held/cli-7.jsonl", "turns/released/cli-6.jsonl", "spool/inbound/telegram/new/telegram-1.json"} <= set(moment.files)
    assert os.pread(moment.media["spool/media/telegram/a.png"], 10, 0) == b"image", "though it has moved on"
    moment.close()


@pytest.mark.parametrize(("text", "size", "whole"), [(b"a\nb", 3, 2), (b"a\nb\n", 4, 4), (b"a\nb\n", 3, 2), (b"ab", 2, 0), (b"", 0, 0)])
def test_whole_lines_are_counted(home: Home, text: bytes, size: int, whole: int) -> None:
    path = home.root / "x"
    path.write_bytes(text)
    with open(path, "rb") as opened:
        assert whole_lines(opened.fileno(), size) == whole


def test_a_very_long_line_is_cut_off_too(home: Home) -> None:
    path = home.root / "x"
    path.write_bytes(b"a\n" + b"b" * 200_000)
    with open(path, "rb") as opened:
        assert whole_lines(opened.fileno(), 200_002) == 2
