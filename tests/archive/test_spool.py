"""Queues are read while files are carried about in them."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import threading
from pathlib import Path

import pytest

from bubbles.archive.packing import Pack
from bubbles.archive.spool import File, Moving, Queues
from bubbles.channels.receipts import Receipts
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.tidying.home import inbound, outbound

WAY = "spool/inbound/telegram"


def looked(home: Home, queues: Queues | None = None) -> dict[str, bytes]:
    found = (queues or Queues(home.root)).look()
    return {path: each.content for path, each in found if isinstance(each, File)}


def test_what_waits_is_held_or_is_done_is_seen_where_it_lies(home: Home) -> None:
    for n, state in enumerate(("new", "cur", "held", "done")):
        inbound(home, f"telegram-{n}", state)
    found = looked(home)
    assert set(found) - {f"{WAY}/held/telegram-2.why"} == {
        f"{WAY}/{state}/telegram-{n}.json" for n, state in enumerate(("new", "cur", "held", "done"))
    }
    assert json.loads(found[f"{WAY}/new/telegram-0.json"])["text"] == "hello"


def test_the_queue_itself_is_seen_with_the_last_place_it_gave_away(home: Home) -> None:
    inbound(home, "telegram-1", "new")
    found = {path: each for path, each in Queues(home.root).look() if not isinstance(each, File)}
    assert found[WAY].st_mtime_ns == os.stat(home.inbound("telegram")).st_mtime_ns


def test_why_one_is_held_is_seen(home: Home) -> None:
    queue = Queue(home.inbound("telegram"))
    inbound(home, "telegram-1", "cur")
    queue.hold("telegram-1", "no such session")
    assert looked(home)[f"{WAY}/held/telegram-1.why"] == b"no such session\n"


def test_what_is_half_written_is_no_message(home: Home) -> None:
    inbound(home, "telegram-1", "new")
    (home.inbound("telegram") / "tmp" / "telegram-2.json.1.2").write_text("{")
    assert set(looked(home)) == {f"{WAY}/new/telegram-1.json"}


def test_what_was_copied_before_is_not_read_again(home: Home) -> None:
    queues = Queues(home.root)
    inbound(home, "telegram-1", "done")
    queues.copy(Pack(io.BytesIO()))
    inbound(home, "telegram-2", "done")
    assert set(looked(home, queues)) == {f"{WAY}/done/telegram-2.json"}


def test_what_was_done_since_is_copied_with_the_receipts_that_it_has_by_then(home: Home) -> None:
    out = io.BytesIO()
    queues, pack, receipts = Queues(home.root), Pack(out), Receipts(home.outbound("telegram"))
    outbound(home, "t.0.0", "cur")
    receipts.note("t.0.0", begun=0)
    queues.copy(pack)
    receipts.note("t.0.0", delivered=0, id="m1")
    Queue(home.outbound("telegram")).finish("t.0.0")
    queues.copy(pack)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue() + bytes(1024))) as found:
        names = [member.name.rpartition("/outbound/telegram/")[2] for member in found]
    assert names == ["receipts/t.0.0.jsonl", "done/t.0.0.json", "receipts/t.0.0.jsonl"]
    assert looked(home, queues) == {}


def test_what_is_done_by_now_does_not_wait(home: Home) -> None:
    queues = Queues(home.root)
    path = inbound(home, "telegram-1", "new")
    (home.inbound("telegram") / "done" / path.name).write_bytes(path.read_bytes())  # as it looks to one who saw it before and after
    assert set(looked(home, queues)) == {f"{WAY}/done/telegram-1.json"}


def test_receipts_of_what_waits_are_read_as_they_are_last(home: Home) -> None:
    queues = Queues(home.root)
    outbound(home, "t.0.0", "cur")
    receipts = Receipts(home.outbound("telegram"))
    receipts.note("t.0.0", begun=0)
    queues.copy(Pack(io.BytesIO()))
    receipts.note("t.0.0", uncertain=0)
    found = looked(home, queues)["spool/outbound/telegram/receipts/t.0.0.jsonl"]
    assert b"uncertain" in found


def test_what_is_no_file_is_left_alone(home: Home) -> None:
    inbound(home, "telegram-1", "new")
    new = home.inbound("telegram") / "new"
    (new / "directory.json").mkdir()
    (new / "link.json").symlink_to("/etc/passwd")
    os.mkfifo(new / "pipe.json")
    assert set(looked(home)) == {f"{WAY}/new/telegram-1.json"}


@pytest.mark.parametrize("places", [("cur", "new"), ("new", "cur", "held")])
def test_a_message_that_is_carried_back_and_forth_is_always_seen(home: Home, places: tuple[str, ...]) -> None:
    path = inbound(home, "telegram-1", "new")
    stop = threading.Event()
    carrier = threading.Thread(target=_carry, args=(path, places, stop))
    carrier.start()
    try:
        queues = Queues(home.root)
        missed = sum(not _sees(home, queues) for _ in range(60))
    finally:
        stop.set()
        carrier.join()
    assert missed == 0


def _sees(home: Home, queues: Queues) -> bool:
    try:
        return any(path.endswith("telegram-1.json") for path in looked(home, queues))
    except Moving:
        return True  # whoever is told so looks again


def _carry(path: Path, places: tuple[str, ...], stop: threading.Event) -> None:
    at, chance = path, random.Random(5)
    while not stop.wait(chance.choice((0.0, 0.0, 0.0, 0.02, 0.04))):
        for place in places:
            to = path.parent.parent / place / path.name
            if to != at:
                os.rename(at, to)
                at = to
