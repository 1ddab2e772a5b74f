"""The first thing that a person does: install the units, enable the target, ask, and read in the journal what was done."""

from __future__ import annotations

import json
from pathlib import Path

from tests.systemd.person import Person
from tests.systemd.world import AGENTD, ALL, CHANNEL, CHAT, TARGET, command, world

_CALLS = [command("one"), command("two")]


def test_an_installed_and_enabled_target_answers(person: Person, tmp_path: Path) -> None:
    script = {"rules": [{"when": "look", "times": 1, "calls": _CALLS}], "default": {"reply": "two things ran"}}
    with world(person, tmp_path / "state", script) as bubbles:
        bubbles.start()
        assert bubbles.ask("look around") == "two things ran"
        assert bubbles.person.run(["bubbles", "agent", "-m", "again"]).stdout.strip() == "two things ran"
        bubbles.platform.say("hello", chat=CHAT)
        assert bubbles.person.until(lambda: [sent["text"] for sent in bubbles.platform.sent()]) == ["two things ran"]
        units = {name: bubbles.person.unit(name) for name in (TARGET, *ALL)}
        assert {name: unit["ActiveState"] for name, unit in units.items()} == dict.fromkeys(units, "active")
        assert units[TARGET]["UnitFileState"] == units[CHANNEL]["UnitFileState"] == "enabled"

        started = bubbles.entries("BUBBLES_EVENT=tool.start")
        turn = bubbles.entries(f"BUBBLES_TURN={started[0]['BUBBLES_TURN']}")
        assert [entry["BUBBLES_EVENT"] for entry in turn if "BUBBLES_TOOL" in entry] == ["tool.start", "tool.finish"] * 2
        assert [json.loads(entry["MESSAGE"].partition(" ")[2]) for entry in started] == [call["arguments"] for call in _CALLS]
        assert {entry["_SYSTEMD_USER_UNIT"] for entry in started} == {AGENTD}
