"""Every attack of the corpus against every backend, and against a jail that lacks the wall which keeps it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from bubbles.sandboxes.binary import candidates
from tests.disasters.soak import SOAK
from tests.sandboxes.attacks.conftest import Results, users
from tests.sandboxes.attacks.corpus import ARRANGEMENTS, HELD, JAILED, NOT_APPLICABLE, NOT_HELD, Attack, corpus

USERS = users()
NUMBERED = {attack.number: attack for attack in corpus()}


def is_root(user: str) -> bool:
    """Whether it is a root to whom other processes are open (CAP_SYS_PTRACE), which in a container need not be."""
    effective = next((line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff")), "CapEff: 0")
    return user == "root" and bool(int(effective.split()[1], 16) >> 19 & 1)


def played(user: str) -> tuple[str, ...]:
    """The arrangements that are played as `user`: all in a soak; else those in which another way can be expected to come to another end."""
    if SOAK or len(USERS) == 1:
        return ARRANGEMENTS
    return ("local_isolated", "bwrap") if user == "root" else ("local", "local_isolated", "bwrap", "bwrap_public")


def cases() -> list[tuple[str, str, str]]:
    """User, arrangement and number of every attack that is run."""
    return [
        (user, arrangement, attack.number)
        for user in USERS
        for arrangement in played(user)
        for attack in corpus()
        if attack.must(arrangement, as_root=is_root(user)) != NOT_APPLICABLE
    ]


def told(found: dict[str, Any], attack: Attack) -> dict[str, Any]:
    assert "failed" not in found, found["failed"]
    one: dict[str, Any] = found["told"][attack.number]
    assert one["ran"], f"{attack.title}: {one['output']}"
    return one


@pytest.mark.parametrize(("user", "arrangement", "number"), cases())
def test_an_attack_ends_as_stated(results: Results, user: str, arrangement: str, number: str) -> None:
    attack = NUMBERED[number]
    one = told(results(user, arrangement), attack)
    if attack.must(arrangement, as_root=is_root(user)) == HELD:
        assert not one["seen"], f"{attack.title}: got through\n{one['output']}"
        assert arrangement not in JAILED or not one["stray"], f"{attack.title}: saw {one['stray']}\n{one['output']}"
    else:
        assert one["seen"], f"{attack.title}: stated as not held, but it was\n{one['output']}"


@pytest.mark.parametrize(("user", "number"), [(user, attack.number) for user in USERS for attack in corpus() if attack.wall])
def test_an_attack_succeeds_where_its_wall_is_missing(results: Results, user: str, number: str) -> None:
    attack = NUMBERED[number]
    if attack.only_before and candidates() and candidates()[0].version >= attack.only_before:
        pytest.skip("this bubblewrap follows no link to a mount point")
    one = told(results(user, "weakened"), attack)
    assert one["seen"], f"{attack.title}: failed although {attack.wall} was taken away\n{one['output']}"


@pytest.mark.parametrize(("user", "arrangement"), [(user, name) for user in USERS for name in JAILED if name in played(user)])
def test_nothing_outside_a_jail_has_changed(results: Results, user: str, arrangement: str) -> None:
    found = results(user, arrangement)
    assert "failed" not in found, found["failed"]
    assert found["damage"] == []


def test_the_corpus_is_in_order() -> None:
    assert len(NUMBERED) == len(corpus()), "a number stands twice"
    for attack, as_root in itertools.product(corpus(), (True, False)):
        assert bool(attack.wall) != bool(attack.uncontrolled), f"{attack.number}: a wall, or why none can be taken away"
        stated = {attack.must(arrangement, as_root=as_root) for arrangement in ARRANGEMENTS}
        assert stated <= {HELD, NOT_HELD, NOT_APPLICABLE}, attack.number
        assert all(attack.must(name, as_root=as_root) != NOT_HELD for name in ("bwrap", "bwrap_public")), attack.number
