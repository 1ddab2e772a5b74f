"""An owner who loosens the sandbox is told what agentd's unit forbids all the same: what it says of itself is what systemd made of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.agentd.texts import told
from tests.systemd.person import Person
from tests.systemd.world import World, world

_ALWAYS = ("forbids rights",)
_STRICT = ("forbids home", "forbids system", "forbids tmp", "forbids manager")


@pytest.fixture(params=["", "--strict"])
def bubbles(request: pytest.FixtureRequest, person: Person, tmp_path: Path) -> Iterator[tuple[World, bool]]:
    with world(person, tmp_path / "state", {"default": {"reply": "ok"}}) as made:
        if request.param:
            person.run(["bubbles", "units", "install", request.param])
        made.start()
        yield made, bool(request.param)


def test_what_a_unit_forbids_is_told(bubbles: tuple[World, bool]) -> None:
    made, strict = bubbles
    said = made.person.run(["bubbles", "agent", "-s", "s", "-m", "/config sandbox local"]).stdout
    assert told("not jailed", "en") in said
    assert {key for key in (*_ALWAYS, *_STRICT) if told(key, "en") in said} == {*_ALWAYS, *(_STRICT if strict else ())}
