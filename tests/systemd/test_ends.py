"""The end of all, and of the machine: a stop leaves no process, and what was open goes on after the next boot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.systemd.person import Person
from tests.systemd.world import ALL, CHAT, CHATS_SESSION, TARGET, World, command, world

_SLOW = {"when": "slowly", "times": 2, "calls": [command("begun", 600)]}
_OF_THE_MANAGER = {"systemd", "(sd-pam)", "dbus-daemon"}


def _processes(person: Person) -> set[str]:
    """What runs for this person besides the manager itself."""
    listed = person.machine.run(["ps", "-U", person.name, "-o", "comm="], check=False).stdout.split("\n")
    return {name for name in listed if name} - _OF_THE_MANAGER


def _asked(bubbles: World) -> subprocess.Popen[str]:
    """A turn in a terminal and one in a chat are in the middle of a command."""
    asking = bubbles.asking("slowly")
    bubbles.platform.say("slowly", chat=CHAT)
    bubbles.person.until(lambda: bubbles.ran() and bubbles.ran(CHATS_SESSION))
    return asking


def test_stopping_the_target_leaves_no_process(person: Person, tmp_path: Path) -> None:
    stray = {"name": "exec", "arguments": {"command": "setsid sleep 600 >/dev/null 2>&1 & echo begun >> ran; sleep 600"}}
    with world(person, tmp_path / "state", {"rules": [{"when": "stray", "calls": [stray]}]}) as bubbles:
        bubbles.start()
        bubbles.platform.say("stray", chat=CHAT)
        person.until(lambda: bubbles.ran(CHATS_SESSION))
        assert "sleep" in _processes(person)
        person.systemctl("stop", TARGET)  # it asks the units to stop, and does not wait for them
        person.until(lambda: not _processes(person))
        assert {unit["ActiveState"] for unit in map(person.unit, ALL)} == {"inactive"}
        assert {unit["Result"] for unit in map(person.unit, ALL)} == {"success"}


@pytest.mark.parametrize("cleanly", [True, False])
def test_a_reboot_resumes_what_was_open(person: Person, tmp_path: Path, cleanly: bool) -> None:
    with world(person, tmp_path / "state", {"rules": [_SLOW], "default": {"reply": "where was I?"}}) as bubbles:
        bubbles.start()
        asking = _asked(bubbles)
        person.machine.reboot(cleanly=cleanly)
        asking.communicate(timeout=20)  # its terminal went with the machine
        assert person.until(lambda: [sent["text"] for sent in bubbles.platform.sent()]) == ["where was I?"]
        assert person.until(bubbles.said) == ["where was I?"]
        for session in ("s", CHATS_SESSION):
            assert bubbles.ran(session) == ["begun"]
            result = next(line["content"] for line in bubbles.history(session) if line.get("role") == "tool")
            assert "may or may not" in result
