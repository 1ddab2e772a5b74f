"""A key that a drop-in hands to one unit: whoever needs it has it, before what config.json says, and nobody else has it from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.person import Person
from tests.systemd.world import AGENTD, MODELD, World, world

KEY, OTHER, WRITTEN = "sk-from-a-credential-1", "sk-from-the-environment-2", "sk-from-config-json-3"
CREDENTIAL = "[Service]\nLoadCredential=providers.custom.api_key:%h/keys/model\n"


@pytest.fixture
def bubbles(person: Person, tmp_path: Path) -> Iterator[World]:
    with world(person, tmp_path / "state", {"default": {"reply": "here"}}) as made:
        config = json.loads(person.read(".bubbles/config.json"))
        config["providers"]["custom"]["api_key"] = WRITTEN
        person.write(".bubbles/config.json", json.dumps(config))
        person.run(["chmod", "600", f"{person.home}/.bubbles/config.json"])
        yield made


def keyed(bubbles: World, path: str, text: str) -> None:
    """A file that only its owner can read."""
    bubbles.person.write(path, text)
    bubbles.person.run(["chmod", "600", bubbles.person.home / path])


def used(bubbles: World) -> str:
    """The key with which the model was asked last."""
    assert bubbles.ask("hello?") == "here"
    return str(bubbles.model.seen()["headers"][-1]["authorization"]).removeprefix("Bearer ")


def test_a_credential_stands_over_config_json_and_is_nowhere_else(bubbles: World) -> None:
    person = bubbles.person
    keyed(bubbles, "keys/model", f"{KEY}\n")
    bubbles.adjust(MODELD, "key", CREDENTIAL)
    bubbles.start()
    assert used(bubbles) == KEY
    for unit in (MODELD, AGENTD):
        environ = person.run(["cat", f"/proc/{bubbles.pid(unit)}/environ"], check=False)
        assert (environ.stdout, environ.returncode) == ("", 1)  # closed to all but root
    for unit in (MODELD, AGENTD):
        assert KEY not in person.machine.run(["cat", f"/proc/{bubbles.pid(unit)}/environ"]).stdout
    assert "CREDENTIALS_DIRECTORY" not in person.machine.run(["cat", f"/proc/{bubbles.pid(AGENTD)}/environ"]).stdout
    assert KEY not in person.run(["journalctl", "--user", "-o", "json", "--all"]).stdout
    assert KEY not in person.systemctl("show", MODELD).stdout


def test_a_file_of_variables_stands_over_config_json_too_and_a_credential_over_both(bubbles: World) -> None:
    keyed(bubbles, "keys/environment", f"BUBBLES_PROVIDERS__CUSTOM__API_KEY={OTHER}\n")
    keyed(bubbles, "keys/model", KEY)
    bubbles.adjust(MODELD, "key", "[Service]\nEnvironmentFile=%h/keys/environment\n")
    bubbles.start()
    assert used(bubbles) == OTHER
    assert OTHER not in bubbles.person.run(["cat", f"/proc/{bubbles.pid(MODELD)}/environ"], check=False).stdout
    assert OTHER not in bubbles.person.machine.run(["cat", f"/proc/{bubbles.pid(AGENTD)}/environ"]).stdout
    bubbles.adjust(MODELD, "credential", CREDENTIAL)
    bubbles.person.systemctl("restart", MODELD)
    assert used(bubbles) == KEY


def test_a_credential_that_is_not_there_fails_the_start_where_it_is_seen(bubbles: World) -> None:
    bubbles.adjust(MODELD, "key", CREDENTIAL)
    bubbles.person.systemctl("start", MODELD, check=False, timeout_s=30)
    unit = bubbles.person.unit(MODELD)
    assert unit["ActiveState"] != "active"
    assert unit["ExecMainStatus"] == "243"  # systemd's own: CREDENTIALS
