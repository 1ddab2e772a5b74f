"""The way in: what has been taken is on the disk, once, whatever the platform says twice."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from bubbles.channels.gate import Gate
from bubbles.channels.inbound import Inlet
from bubbles.channels.liveness import Liveness
from bubbles.channels.pairing import Book
from bubbles.channels.policy import Rules
from bubbles.errors import TryAgain
from bubbles.messages import Inbound, Media, Sender, from_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.spool.disks import Dying, Killed, Recording, Refusing

SAID = Inbound(id="test-7", at=1.0, channel="test", chat="42", text="你好 \0 \ud800", sender=Sender("7", "Ann", owner=True))


class Way:
    """An inlet with its queue; `rings` counts."""

    def __init__(self, path: Path, disk: object = None, rules: Rules = Rules(owners=frozenset({"7"}))) -> None:  # noqa: B008
        self.queue = Queue(path / "inbound" / "test", **({"disk": disk} if disk else {}))  # type: ignore[arg-type]
        self.rings = 0
        self.liveness = Liveness(60, lambda: 5.0)
        self.now = 100.0
        self.media = path / "media"
        gate = Gate("test", rules, Book(Home(path), "test"), Queue(path / "outbound" / "test"), lambda: None)
        self.take = Inlet(self.queue, gate, self.media, self.liveness, self._ring, lambda: self.now)

    def _ring(self) -> None:
        self.rings += 1

    def __call__(self, said: Inbound = SAID) -> None:
        asyncio.run(self.take(said))


def test_what_is_taken_is_stored_and_synced_then_agentd_is_rung(tmp_path: Path) -> None:
    disk = Recording()
    way = Way(tmp_path, disk)
    way()
    assert "fsync" in disk.calls
    body = next(way.queue.list("new")).body
    assert from_dict(Inbound, body).sender == SAID.sender
    assert (way.rings, way.liveness.heard) == (1, True)


def test_what_comes_again_is_known_and_agentd_is_rung_again(tmp_path: Path) -> None:
    way = Way(tmp_path)
    for _ in range(3):
        way()
    assert (len(list(way.queue.list("new"))), way.rings) == (1, 3)


def test_what_came_last_is_known_and_what_comes_again_is_no_news(tmp_path: Path) -> None:
    way = Way(tmp_path)
    assert way.take.last is None
    way()
    way.now = 200.0
    way()
    assert way.take.last == 100.0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO])
def test_what_cannot_be_stored_is_not_taken_and_says_nothing_of_the_credentials(tmp_path: Path, number: int) -> None:
    Way(tmp_path).queue.prepare()
    way = Way(tmp_path, Refusing(3, number))
    with pytest.raises(TryAgain):
        way()
    assert way.rings == 0
    assert list(way.queue.list("new")) == []


def test_killed_at_any_call_it_is_there_or_was_not_taken(tmp_path: Path) -> None:
    n = 0
    while True:
        n += 1
        Way(tmp_path / str(n)).queue.prepare()
        way = Way(tmp_path / str(n), Dying(n))
        try:
            way()
        except Killed:
            again = Way(tmp_path / str(n))
            again()
            assert [item.id for item in again.queue.list("new")] == ["test-7"]
        else:
            break
    assert n > 8


def test_what_came_with_a_message_that_is_not_taken_goes_with_it_and_nothing_else_does(tmp_path: Path) -> None:
    way = Way(tmp_path, rules=Rules())
    way.media.mkdir()
    inside, outside = way.media / "a.png", tmp_path / "b.png"
    for path in (inside, outside):
        path.write_bytes(b"x")
    said = Inbound("test-8", 1.0, "test", "42", media=(Media(str(inside)), Media(str(way.media / ".." / "b.png"))), sender=Sender("9"))
    assert not way.take.wants(said)
    way(said)
    assert (inside.exists(), outside.exists()) == (False, True)
    assert (list(way.queue.list("new")), way.rings) == ([], 0)
