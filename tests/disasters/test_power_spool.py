"""The power goes while queues are used: what `put` has promised is there, whole, and everything else is there whole or was never there."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bubbles.errors import BubblesError
from bubbles.spool import STATES, Queue
from bubbles.spool.disk import orders_renames
from tests.disasters.power import Record, differences, lay
from tests.disasters.record import Entry, Recorder, entries
from tests.disasters.soak import SOAK

NOW = 1_764_500_400
ROUNDS = 40 if SOAK else 5
CUTS = 100 if SOAK else 30


class Play:
    """A producer and an owner of one queue, who do what chance wants and remark what they were promised."""

    def __init__(self, path: Path, recorder: Recorder, chance: random.Random) -> None:
        ticks = itertools.count(NOW * 10**9, 1_000_000)
        self._queue = Queue(path, disk=recorder, clock=lambda: next(ticks))
        self._note = recorder.note
        self._chance = chance
        self._claimed: list[str] = []
        self._serial = itertools.count()

    def prepare(self) -> None:
        self._queue.prepare()
        self._note("begun")

    def step(self) -> None:
        self._chance.choice([self.put, self.put, self.put, self.claim, self.claim, self.settle, self.settle, self.decide])()

    def put(self) -> None:
        id = f"m{next(self._serial)}"
        body = {"id": id, "text": "x" * self._chance.choice([0, 10, 3000, 9000])}
        self._note("putting", id, body)
        sync = self._chance.random() < 0.7
        assert self._queue.put(id, body, sync=sync)
        self._note("promised" if sync else "put", id)

    def claim(self) -> None:
        due = self._queue.due(NOW + 10_000)
        if due:
            self._claimed.append(self._queue.claim(due[0]).id)

    def settle(self) -> None:
        if self._claimed:
            id = self._claimed.pop(0)
            how = self._chance.choice(["finish", "finish", "defer", "hold"])
            self._note(how, id)
            match how:
                case "finish":
                    self._queue.finish(id)
                case "defer":
                    self._queue.defer(id, NOW + 1)
                case "hold":
                    self._queue.hold(id, "why")

    def decide(self) -> None:
        for item in list(self._queue.list("held"))[:1]:
            how = self._chance.choice(["release", "drop"])
            self._note(how, item.id)
            {"release": self._queue.release, "drop": self._queue.drop}[how](item.id)


def recorded(path: Path, seed: int, skips: Callable[[str, int], bool] = lambda path, fd: False) -> Record:
    root = path / f"disk-{seed}"
    root.mkdir()
    recorder = Recorder(root, path / f"record-{seed}", skips=skips)
    play = Play(root / "q", recorder, random.Random(seed))
    play.prepare()
    for _ in range(60):
        play.step()
    found = entries(path / f"record-{seed}")
    record = Record(found, found.index(("begun",)))
    assert not differences(record.state(len(found), random.Random(0), 1.0), root, lambda place: True)
    return record


def complaints(path: Path, remarks: list[Entry]) -> list[str]:
    """What is wrong with a queue after a power cut, once its owner has taken it up again."""
    of: dict[str, set[str]] = {}
    bodies: dict[str, Any] = {}
    for kind, *rest in remarks:
        of.setdefault(kind, set()).update(rest[:1])
        if kind == "putting":
            bodies[rest[0]] = rest[1]
    found: list[str] = []
    owner = Queue(path, clock=lambda: (NOW + 1000) * 10**9)
    try:
        owner.recover()
        found += _promises(owner, of, bodies)
        handed = _drained(owner)
    except (OSError, BubblesError, AssertionError) as error:
        return [f"the owner stumbles: {error!r}"]
    found += [f"{id} was handed out with another body" for id, body in handed if body != bodies[id]]
    found += [f"{id} was handed out twice" for id in {id for id, _ in handed} if [each for each, _ in handed].count(id) > 1]
    for id, body in bodies.items():  # whoever was promised nothing tries again, and then it is there
        if id not in of.get("promised", ()):
            with suppress(BubblesError):
                owner.put(id, body)
            if owner.find(id) is None:
                found.append(f"{id} cannot be put again")
    return found


def _promises(owner: Queue, of: dict[str, set[str]], bodies: dict[str, Any]) -> list[str]:
    found = []
    for id in of.get("promised", ()):
        state = owner.find(id)
        may = {"new", *(["done"] if id in of.get("finish", ()) or id in of.get("drop", ()) else []), *(["held"] if id in of.get("hold", ()) else [])}
        if state not in may:
            found.append(f"{id} was promised and is {state or 'lost'}")
    for item in owner.list("held"):
        if item.id in of.get("promised", ()) and item.body != bodies[item.id]:
            found.append(f"{item.id} is held with another body")
    return found


def _drained(owner: Queue) -> list[tuple[str, dict[str, Any]]]:
    handed = []
    for id in owner.due(NOW + 100_000):
        with suppress(BubblesError):  # what was promised to nobody may be a page of zeros: it is held for a person
            item = owner.claim(id)
            assert owner.finish(id)
            handed.append((item.id, item.body))
    assert owner.due(NOW + 100_000) == []
    return handed


def judged(record: Record, path: Path, seed: int, *, ordered: bool = True, cuts: int = CUTS, enough: int = 10**6) -> list[str]:
    found: list[str] = []
    for n, (cut, state) in enumerate(record.states(random.Random(seed), cuts, 4, ordered=ordered)):
        place = path / f"after-{seed}-{ordered}-{n}"
        lay(state, place)
        found += complaints(place / "q", record.until(cut))
        if len(found) >= enough:
            break
    return found


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_what_was_promised_outlasts_a_power_cut_and_litter_is_litter(tmp_path: Path, quick: Path, seed: int) -> None:
    assert judged(recorded(tmp_path, seed), quick, seed) == []


def test_where_renames_are_not_ordered_the_directory_is_synced(tmp_path: Path, quick: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or orders_renames(shared):
        pytest.skip("there is no such disk on this machine")
    place = shared / f"bubbles-{tmp_path.parent.name}-{tmp_path.name}"
    place.mkdir()
    try:
        assert judged(recorded(place, 1), quick, 1, ordered=False) == []
    finally:
        shutil.rmtree(place)


# The simulator finds what it is for.


def test_a_put_that_is_not_synced_is_found(tmp_path: Path, quick: Path) -> None:
    record = recorded(tmp_path, 2, skips=lambda path, fd: "/new" not in path)  # its files are opened in tmp/
    assert any("was promised and is lost" in each for each in judged(record, quick, 2, enough=5))


def test_a_directory_that_is_not_synced_is_found(tmp_path: Path, quick: Path) -> None:
    record = recorded(tmp_path, 3, skips=lambda path, fd: path.endswith("/new"))
    assert any("was promised and is lost" in each for each in judged(record, quick, 3, ordered=False, enough=5))


def test_a_rename_before_the_content_is_found(tmp_path: Path) -> None:
    """A disk that keeps names before contents would show an owner half a message, did it not look at how a file ends."""
    record = recorded(tmp_path, 4)
    halves = 0
    for _, state in record.states(random.Random(4), 40, 4):
        contents = [found[0] for path, found in state.items() if found and path.startswith("q/new/")]
        halves += sum(not content.endswith(b"}\n") for content in contents)
    assert halves > 10


def test_the_states_are_many(tmp_path: Path) -> None:
    """Torn, zeros behind, absent, whole: each kind is among those that are judged."""
    record = recorded(tmp_path, 5)
    kinds: set[str] = set()
    for cut, state in record.states(random.Random(5), 60, 5):
        whole = record.state(cut, random.Random(0), 1.0)
        for path, found in whole.items():
            if found is None or "/done/" in path:
                continue
            other = state.get(path)
            content = other[0] if other else b""
            kinds.add(_kind(None if other is None else content, found[0]))
    assert kinds == {"gone", "whole", "zeros", "torn", "empty"}
    assert set(STATES[:4]) <= {path.split("/")[1] for path in state if path.startswith("q/")}


def _kind(content: bytes | None, whole: bytes) -> str:
    if content is None or content == whole:
        return "gone" if content is None else "whole"
    return "zeros" if b"\0" in content else "torn" if content else "empty"
