"""A jail inside agentd's unit, as it is and confined by `--strict`: it is made, it holds, and its one way to the network opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.person import Person
from tests.systemd.world import World, world

_COMMAND = (
    "cat /proc/1/comm; touch there && ls; ls -a ~/.. /home 2>&1 | grep -c key; curl -sS -m 5 http://10.0.0.1/; "
    "ls /run/user/$(id -u) | wc -l; systemctl --user is-system-running 2>&1 | head -c 6"
)


@pytest.fixture(params=["", "--strict"])
def bubbles(request: pytest.FixtureRequest, person: Person, tmp_path: Path) -> Iterator[World]:
    script = {
        "rules": [{"when": "go", "times": 1, "calls": [{"name": "exec", "arguments": {"command": _COMMAND}}]}],
        "default": {"reply": "so it is"},
    }
    with world(person, tmp_path / "state", script) as made:
        person.write("key", "canary")
        config = json.loads(person.read(".bubbles/config.json"))
        config["tools"] = {"sandbox": {"backend": "bwrap"}}
        person.write(".bubbles/config.json", json.dumps(config))
        if request.param:
            person.run(["bubbles", "units", "install", request.param])
        made.start()
        yield made


def test_commands_of_a_unit_run_in_a_jail_that_holds(bubbles: World) -> None:
    assert bubbles.ask("go") == "so it is"
    [told] = [line["content"] for line in bubbles.history() if line.get("role") == "tool"]
    refused = "bubbles: http://10.0.0.1/ is refused: 10.0.0.1 is not public: a private network"
    assert told.splitlines()[:5] == ["bwrap", "there", "0", refused, "0"]
    assert "running" not in told
