"""Each method of a queue, killed at each of its system calls, refused each of them, and with the power cut."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bubbles.errors import BubblesError, DataError, Misconfigured, TryAgain
from bubbles.spool import STATES, Item, Queue
from tests.spool.disks import Dying, Killed, Recording, Refusing, Unsynced

NOW = 1_764_500_400.0


NAMED = {
    errno.ENOSPC: TryAgain,
    errno.EDQUOT: TryAgain,
    errno.EIO: TryAgain,
    errno.EMFILE: TryAgain,
    errno.EACCES: Misconfigured,
    errno.EROFS: Misconfigured,
}


def clock() -> int:
    return int(NOW * 1e9)


def queue(path: Path, disk: Any = os) -> Queue:
    return Queue(path, disk=disk, clock=clock)


def furnish(path: Path) -> dict[str, str]:
    """A queue with a message in every state; their states by id."""
    made = queue(path)
    for id in ("waiting", "claimed", "handled", "refused", "other"):
        made.put(id, {"id": id, "at": NOW}, sync=False)
    for id in ("claimed", "handled", "refused"):
        made.claim(id)
    made.finish("handled")
    made.hold("refused", "for good")
    return {"waiting": "new", "claimed": "cur", "handled": "done", "refused": "held", "other": "new"}


def states(path: Path) -> dict[str, list[str]]:
    """The states in which each id has a file."""
    found: dict[str, list[str]] = {}
    for state in STATES[1:]:
        for entry in sorted((path / state).glob("*.json")):
            found.setdefault(entry.stem, []).append(state)
    return found


# name: what is called, and the states in which each id that it concerns may be after a crash and `recover`
METHODS: dict[str, tuple[Callable[[Queue], Any], dict[str, set[str]]]] = {
    "prepare": (lambda q: q.prepare(), {}),
    "put": (lambda q: q.put("fresh", {"id": "fresh", "at": NOW}), {"fresh": {"", "new"}}),
    "put unsynced": (lambda q: q.put("fresh", {"id": "fresh", "at": NOW}, sync=False), {"fresh": {"", "new"}}),
    "put later": (lambda q: q.put("fresh", {"id": "fresh", "at": NOW}, not_before=NOW + 60), {"fresh": {"", "new"}}),
    "put known": (lambda q: q.put("handled", {"id": "handled", "at": NOW}), {}),
    "due": (lambda q: q.due(NOW), {}),
    "next_due": (lambda q: q.next_due(), {}),
    "find": (lambda q: q.find("refused"), {}),
    "list": (lambda q: list(q.list("held")), {}),
    "claim": (lambda q: q.claim("waiting"), {}),
    "finish": (lambda q: q.finish("claimed"), {"claimed": {"new", "done"}}),
    "defer": (lambda q: q.defer("claimed", NOW + 60), {}),
    "hold": (lambda q: q.hold("claimed", "no such chat"), {"claimed": {"new", "held"}}),
    "release": (lambda q: q.release("refused"), {"refused": {"held", "new"}}),
    "drop": (lambda q: q.drop("refused"), {"refused": {"held", "done"}}),
    "drop waiting": (lambda q: q.drop("waiting"), {"waiting": {"new", "done"}}),
    "recover": (lambda q: q.recover(), {}),
}


@pytest.mark.parametrize("name", METHODS)
def test_killed_at_each_call(name: str, tmp_path: Path) -> None:
    method, moves = METHODS[name]
    n, completed = 0, False
    while not completed:
        n += 1
        path = tmp_path / str(n)
        before = furnish(path)
        disk = Dying(n)
        with suppress(Killed):
            method(queue(path, disk))
            completed = True
        disk.release()
        allowed = {id: {"new"} if state == "cur" else {state} for id, state in before.items()} | moves
        check_after_crash(path, allowed)
    assert n > 1


def check_after_crash(path: Path, allowed: dict[str, set[str]]) -> None:
    owner = queue(path)
    owner.recover()
    found = states(path)
    for id, states_ in allowed.items():
        assert len(found.get(id, [])) <= 1, f"{id} is visible twice"
        assert found.get(id, [""])[0] in states_
    assert set(found) <= set(allowed)
    assert owner.put("fresh", {"id": "fresh", "at": NOW}) == ("fresh" not in found)
    handled = drain(owner)
    assert Counter(item.id for item in handled) == Counter({id for id, where in found.items() if where == ["new"]} | {"fresh"})
    assert all(item.body == {"id": item.id, "at": NOW} for item in handled)
    assert not list((path / "cur").iterdir())


def drain(owner: Queue) -> list[Item]:
    """Handle all there is."""
    handled = []
    for id in owner.due(NOW + 120):
        handled.append(owner.claim(id))
        assert owner.finish(id)
    assert owner.due(NOW + 120) == []
    return handled


def refusal(method: Callable[[Queue], Any], subject: Queue) -> BubblesError | None:
    try:
        method(subject)
    except BubblesError as error:
        return error
    return None


@pytest.mark.parametrize("error", NAMED)
@pytest.mark.parametrize("name", METHODS)
def test_refused_each_call(name: str, error: int, tmp_path: Path) -> None:
    method, moves = METHODS[name]
    n, made = 0, True
    while made:
        n += 1
        path = tmp_path / str(n)
        before = furnish(path)
        disk = Refusing(n, error)
        failure = refusal(method, queue(path, disk))
        if failure:
            assert isinstance(failure, NAMED[error]) or (name == "claim" and isinstance(failure, DataError))
            assert failure.remedy
            if moves == {"fresh": {"", "new"}}:
                assert "fresh" not in states(path), "half visible"
                assert not list((path / "tmp").iterdir()), "litter, though the process lives"
        made = disk.refused
        disk.release()
        allowed = {id: {"new"} if state == "cur" else {state} for id, state in before.items()} | moves
        if isinstance(failure, DataError):
            assert error != errno.EMFILE
            allowed["waiting"] = {"held"}  # a file that cannot be read is for a person
        check_after_crash(path, allowed)


def test_the_first_put_prepares_and_may_be_killed_at_each_call(tmp_path: Path) -> None:
    n, completed = 0, False
    while not completed:
        n += 1
        path = tmp_path / str(n) / "inbound" / "cli"
        disk = Dying(n)
        with suppress(Killed):
            completed = queue(path, disk).put("a", {"id": "a"})
        disk.release()
        queue(path).put("a", {"id": "a"})
        assert [item.body for item in drain(queue(path))] == [{"id": "a"}]
    assert n > 20


def test_a_power_cut_loses_nothing_that_was_promised(tmp_path: Path) -> None:
    chance = random.Random(8)
    torn = 0
    for round in range(150):
        path, disk = tmp_path / str(round), Unsynced()
        producer = queue(path, disk)
        promised = set()
        for k in range(6):
            sync = chance.random() < 0.5
            producer.put(f"m{k}", {"id": f"m{k}", "at": NOW}, sync=sync)
            promised |= {f"m{k}"} if sync else set()
        owner = queue(path)
        done = {owner.claim(id).id for id in owner.due(NOW)[: chance.randrange(3)]}
        for id in done:
            owner.finish(id)
        disk.cut(chance)
        owner = queue(path)
        owner.recover()
        due = set(owner.due(NOW))
        assert promised <= due | done
        torn += 6 - len(due | done)
        for k in range(6):  # whoever was not promised anything tries again
            assert producer.put(f"m{k}", {"id": f"m{k}", "at": NOW}) == (f"m{k}" not in due | done)
        assert {item.id for item in drain(owner)} | done == {f"m{k}" for k in range(6)}
    assert torn > 50


def test_a_message_costs_two_dozen_calls_and_done_is_never_listed(tmp_path: Path) -> None:
    queue(tmp_path).prepare()
    disk = Recording()
    subject = queue(tmp_path, disk)
    subject.put("a", {"id": "a"})
    subject.claim("a")
    subject.finish("a")
    assert len(disk.calls) <= 20, disk.calls
    assert "listdir" not in disk.calls
