"""The queues swept: what was handled a week ago goes with its receipts, and nothing that anybody still needs to know."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bubbles.channels.receipts import Receipts
from bubbles.cron.jobs import Job
from bubbles.cron.schedule import Schedule
from bubbles.cron.service import Service
from bubbles.kernel.events import ModelAsked, UserSpoke, header, to_line
from bubbles.messages import Address, Media
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.tidying.home import aged, file, gone, inbound, outbound, swept


def test_what_was_handled_goes_after_a_week_with_its_receipts(home: Home) -> None:
    inbound(home, "telegram-1")
    out = outbound(home, "telegram-1.0.0")
    aged(inbound(home, "telegram-2"), 1)
    receipts = Receipts(home.outbound("telegram"))
    receipts.note("telegram-1.0.0", delivered=0, id="9")
    aged(receipts.path / "telegram-1.0.0.jsonl", 1)  # delivered a day later
    aged(receipts.path.parent, 2)
    assert gone(home, 6.9) == set()
    assert gone(home, 7.1) == {
        "spool/inbound/telegram/done/telegram-1.json",
        "spool/outbound/telegram/done/telegram-1.0.0.json",
        "spool/outbound/telegram/receipts/telegram-1.0.0.jsonl",
    }
    assert not out.exists()
    assert Queue(home.inbound("telegram")).find("telegram-2") == "done"


@pytest.mark.parametrize("state", ["new", "cur", "held"])
def test_what_is_not_handled_stays_for_ever(home: Home, state: str) -> None:
    inbound(home, "telegram-1", state)
    outbound(home, "telegram-9.0.0", state)
    Receipts(home.outbound("telegram")).note("telegram-9.0.0", begun=0)
    assert gone(home, 1000) == set()


def journal(home: Home, *lines: bytes, turn: str = "telegram-1") -> None:
    (home.turns / "telegram-42.jsonl").write_bytes(header(turn, "telegram-42") + b"".join(lines))


def spoke(id: str) -> bytes:
    return to_line(UserSpoke(id, "hi", address=Address("telegram", "42")), 5.0)


LONG = "telegram-" + "x" * 81  # with anything behind it, its end is a digest


@pytest.mark.parametrize("turn", ["telegram-1", LONG])
def test_what_an_open_turn_has_said_stays_known(home: Home, turn: str) -> None:
    """agentd may be away for two weeks, and says it again when it comes back: only the id tells that it was said."""
    for out in (f"{turn}.0.0", f"{turn}.end.0", "telegram-8.0.0"):
        outbound(home, out, turn=turn if out.startswith(turn) else "telegram-8")
    inbound(home, turn)
    journal(home, spoke(turn), to_line(ModelAsked(f"{turn}.0"), 6.0), turn=turn)
    assert gone(home, 14) == {"spool/outbound/telegram/done/telegram-8.0.0.json"}
    (home.turns / "telegram-42.jsonl").write_bytes(b"")
    assert len(gone(home, 14)) == 3


def test_words_that_stand_behind_a_turn_in_its_journal_count_too(home: Home) -> None:
    outbound(home, "telegram-2.0.0")
    journal(home, spoke("telegram-1"), header("telegram-2", "telegram-42"), spoke("telegram-2"), b'{"ev')
    assert gone(home, 14) == set()


@pytest.mark.parametrize("state", ["new", "cur", "held"])
def test_what_answers_a_message_that_is_still_to_be_taken_in_stays_known(home: Home, state: str) -> None:
    """Its turn was run, and it was not let go of: it comes again, under the same id."""
    inbound(home, "telegram-1", state)
    outbound(home, "telegram-1.0.0", turn="telegram-1")
    assert gone(home, 14) == set()


def test_one_of_which_a_second_copy_waits_stays(home: Home) -> None:
    for put, id in ((inbound, "telegram-1"), (outbound, "telegram-7.0.0")):
        done = put(home, id)
        queue = Queue(done.parents[1])
        waiting = queue.path / "new" / done.name
        waiting.write_bytes(done.read_bytes())
        assert gone(home, 14) == set()
        with pytest.raises(FileNotFoundError):
            queue.claim(done.stem)
        assert not waiting.exists()
        assert len(gone(home, 14)) == 1


def test_what_was_put_last_before_a_silence_stays_known(home: Home) -> None:
    """A clock's program that is killed after it has put a job's message, and before it has noted that, puts it once more."""
    sent: list[str] = []
    service = Service(home, lambda: sent.append("rung"), now=lambda: 1_000_000.0)
    service.open()
    service.jobs.add(Job("j", "look", Schedule("at", at=999_999.0), next=999_999.0))
    (job,) = service.jobs.all
    service.send(job, "cron-j-999999")
    queue = Queue(home.inbound("cron"))
    queue.claim("cron-j-999999")
    queue.finish("cron-j-999999")
    assert gone(home, 100_000) == set()
    again = Service(home, lambda: sent.append("rung"), now=lambda: 1_000_000.0)
    again.open()
    again.look()
    assert (queue.find("cron-j-999999"), list(queue.list("new"))) == ("done", [])
    aged(queue.path, 2)
    assert gone(home, 100_000) == {"spool/inbound/cron/done/cron-j-999999.json"}


def test_receipts_without_a_message_go_by_their_own_age(home: Home) -> None:
    outbound(home, "telegram-1.0.0", "new")
    receipts = Receipts(home.outbound("telegram"))
    for id in ("telegram-1.0.0", "telegram-7.0.0", "telegram-8.0.0"):
        receipts.note(id, begun=0)
    aged(receipts.path / "telegram-8.0.0.jsonl", 5)
    assert gone(home, 8) == {"spool/outbound/telegram/receipts/telegram-7.0.0.jsonl"}


def test_litter_goes_after_a_day(home: Home) -> None:
    held = inbound(home, "telegram-1", "held")
    queue = home.inbound("telegram")
    file(queue / "tmp" / "telegram-5.json.4711.0")
    file(queue / "held" / "telegram-4.why")
    aged(file(queue / "tmp" / "telegram-6.json.4711.0"), 1)
    assert gone(home, 0.9) == set()
    assert gone(home, 1.1) == {"spool/inbound/telegram/tmp/telegram-5.json.4711.0", "spool/inbound/telegram/held/telegram-4.why"}
    assert held.with_suffix(".why").exists()


def test_media_go_after_a_day_unless_a_message_names_them(home: Home) -> None:
    names = ["waits.png", "cur.png", "held.png", "written.png", "goes-out.png", "done.png", "nobody.png", "日报\n.png"]
    for name in names:
        file(home.media("telegram") / name)
    aged(file(home.media("telegram") / "young.png"), 1)
    for state in ("new", "cur", "held", "done"):
        inbound(home, f"telegram-{state}", state, media=(Media(str(home.media("telegram") / f"{'waits' if state == 'new' else state}.png")),))
    outbound(home, "t.0.0", "new", media=(Media(str(home.media("telegram") / "goes-out.png")),))
    tmp = home.inbound("telegram") / "tmp" / "x.json.1.0"
    aged(file(tmp, '{"media":[{"path":"/somewhere/written.png"}]}\n'), 1)
    wanted = {f"spool/media/telegram/{name}" for name in ("done.png", "nobody.png", "日报\n.png")}
    assert gone(home, 0.9) == set()
    assert gone(home, 1.5) == wanted


def test_files_on_their_way_out_go_when_their_message_waits_no_more(home: Home) -> None:
    folder = home.outbound("telegram") / "media"
    for name in ("waits.png", "held.png", "done.png", "nobody.png"):
        file(folder / name)
    for id, state in (("t.0", "new"), ("t.1", "held"), ("t.2", "done")):
        name = {"new": "waits", "held": "held", "done": "done"}[state]
        outbound(home, id, state, media=(Media(str(folder / f"{name}.png")),))
    assert gone(home, 0.9) == set()
    assert gone(home, 1.1) == {f"spool/outbound/telegram/media/{name}.png" for name in ("done", "nobody")}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"media":"x"}\n', b'{"media":[1,{"path":7},{}]}\n', b"[]\n"])
def test_what_cannot_be_read_is_borne(home: Home, content: bytes) -> None:
    waiting, done = inbound(home, "telegram-1", "new"), inbound(home, "telegram-2")
    waiting.write_bytes(content)
    done.write_bytes(content)
    file(home.media("telegram") / "a.png")
    assert gone(home, 8) >= {"spool/inbound/telegram/done/telegram-2.json", "spool/media/telegram/a.png"}
    assert waiting.exists()


@pytest.mark.parametrize("what", ["done", "receipts", "tmp", ".", ".."])
def test_no_link_is_followed_here_either(home: Home, tmp_path: Path, what: str) -> None:
    outbound(home, "telegram-1.0.0")
    Receipts(home.outbound("telegram")).note("telegram-1.0.0", delivered=0)
    file(home.outbound("telegram") / "tmp" / "x")
    place = Path(os.path.normpath(home.outbound("telegram") / what))
    moved = tmp_path / "moved"
    place.rename(moved)
    place.symlink_to(moved)
    before = set(moved.rglob("*"))
    swept(home, 30)
    assert set(moved.rglob("*")) == before


def test_what_is_no_message_in_done_stays(home: Home) -> None:
    inbound(home, "telegram-1")
    file(home.inbound("telegram") / "done" / "notes.txt")
    (home.inbound("telegram") / "done" / "x.json").mkdir()
    assert gone(home, 8) == {"spool/inbound/telegram/done/telegram-1.json"}


def _handles(path: Path, count: int) -> None:
    """A producer and an owner that handle messages, and try each id twice."""
    queue = Queue(path)
    for n in range(count):
        for _ in range(2):
            queue.put(f"telegram-{n}", {"text": "x", "at": time.time()}, sync=False)
        queue.claim(f"telegram-{n}")
        queue.finish(f"telegram-{n}")
        assert queue.put(f"telegram-{n}", {"text": "x", "at": time.time()}, sync=False) is False


def test_beside_daemons_that_work_nothing_of_theirs_goes(home: Home) -> None:
    for n in range(300):
        aged(inbound(home, f"old-{n}"), -8)
    queue = Queue(home.inbound("telegram"))
    beside = multiprocessing.get_context("fork").Process(target=_handles, args=(queue.path, 300))
    beside.start()
    removed = 0
    while beside.is_alive():
        removed += swept(home, 0, most=20).deleted
    beside.join()
    removed += swept(home, 0).deleted
    assert (beside.exitcode, removed) == (0, 300)
    assert all(queue.find(f"telegram-{n}") == "done" for n in range(300))


def test_what_was_forgotten_may_be_put_again(home: Home) -> None:
    inbound(home, "telegram-1")
    more: dict[str, Any] = {"text": "x", "at": 1.0}
    queue = Queue(home.inbound("telegram"))
    assert not queue.put("telegram-1", more)
    swept(home, 8)
    assert queue.put("telegram-1", more)
