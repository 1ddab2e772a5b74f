"""`bubbles doctor` under a real systemd: what only a service manager and a journal can have wrong, provoked there, and gone after its remedy."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.machine import Machine
from tests.systemd.person import Person
from tests.systemd.world import AGENTD, MODELD, TARGET, World, world

Lines = list[dict[str, Any]]
UNITS = ("daemons", "channels", "restart", "units", "ends", "linger")


def doctor(person: Person, *names: str) -> Lines:
    done = person.run(["bubbles", "doctor", "--json", *names], check=False)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def wrong(person: Person, *names: str) -> Lines:
    return [line for line in doctor(person, *names) if line["level"] in ("warn", "fail")]


def only(lines: Lines) -> dict[str, Any]:
    assert len(lines) == 1, lines
    return lines[0]


def follow(person: Person, line: dict[str, Any]) -> None:
    """Type what the remedy says; with sudo, what comes after it as root."""
    for command in line["remedy"].split("; "):
        as_root = command.startswith("sudo ")
        run = person.machine.run if as_root else person.run
        run(["sh", "-c", command.replace("sudo ", "") if as_root else command.replace("then: ", "")])


@pytest.fixture(scope="module")
def up(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A person's Bubbles, installed and started, for all tests here: each leaves it well."""
    person = machine.person()
    with world(person, tmp_path_factory.mktemp("world") / "state", {"models": ["fake-1"], "default": {"reply": "yes"}}) as bubbles:
        bubbles.start()
        yield bubbles
    person.leave()


def test_what_is_installed_and_started_is_well_and_what_is_not_is_said(up: World) -> None:
    person = up.person
    assert up.ask("well?") == "yes"
    found = doctor(person, *UNITS, "home", "modes", "sockets", "config", "model", "providers", "journal", "rate")
    assert [line for line in found if line["level"] not in ("ok", "note")] == []
    assert "agentd answers (pid " in next(line["text"] for line in found if line["check"] == "daemons")
    assert "run by its unit" in found[0]["text"]

    person.machine.run(["rm", f"/var/lib/systemd/linger/{person.name}"])
    linger = only(wrong(person, "linger"))
    assert "do not start at boot" in linger["text"]
    follow(person, linger)
    assert wrong(person, "linger") == []

    unit = f".config/systemd/user/{AGENTD}"
    person.write(unit, person.read(unit).replace("Restart=", "Restart=no\n#", 1))
    drift = wrong(person, "units")
    assert {line["remedy"] for line in drift} == {"bubbles units install --now", "systemctl --user daemon-reload"}
    assert f"not as this version and configuration want it: {AGENTD}" in drift[0]["text"]
    follow(person, drift[0])
    assert wrong(person, "units") == []


def test_a_unit_that_stays_down_is_told_with_its_last_words(up: World) -> None:
    person = up.person
    whole = person.read(".bubbles/config.json")
    person.write(".bubbles/config.json", json.dumps({**json.loads(whole), "agents": {"defaults": {"temperature": "hot"}}}))
    assert wrong(person, "restart") == []  # nobody is sent to restart what works with a file that does not
    person.systemctl("restart", AGENTD, check=False)
    found = only([line for line in wrong(person, "daemons") if "failed" in line["text"]])
    assert "78" in found["text"]
    assert "agents.defaults.temperature" in found["text"]
    person.write(".bubbles/config.json", whole)
    person.systemctl("restart", TARGET)
    assert wrong(person, "daemons", "restart") == []


def test_a_unit_that_was_killed_or_hung_is_told(up: World) -> None:
    person = up.person
    assert not any(MODELD in line["text"] for line in wrong(person, "ends"))
    up.signal("KILL", up.pid(MODELD))
    person.until(lambda: up.pid(MODELD) and person.unit(MODELD)["ActiveState"] == "active")
    assert f"{MODELD} was killed, once in the last day" in [line["text"] for line in wrong(person, "ends")]
    up.adjust(AGENTD, "soon", "[Service]\nWatchdogSec=1\n")
    person.systemctl("restart", AGENTD)
    up.signal("STOP", up.pid(AGENTD))
    person.until(lambda: any("the watchdog ended it" in line["text"] for line in wrong(person, "ends")))


def test_units_of_another_home_are_not_this_ones(up: World) -> None:
    done = up.person.run(["bubbles", "doctor", "--json", "units"], env={"BUBBLES_HOME": f"{up.person.home}/other"})
    line = json.loads(done.stdout)
    assert (line["level"], line["remedy"]) == ("note", f"BUBBLES_HOME={up.person.home}/.bubbles bubbles doctor")


def test_a_service_manager_that_hangs_is_not_taken_for_one_that_is_not_there(up: World) -> None:
    machine, person = up.machine, up.person
    person.until(lambda: wrong(person, "daemons", "units") == [])
    manager = machine.run(["systemctl", "show", "--property=MainPID", "--value", f"user@{person.uid}.service"]).stdout.strip()
    machine.run(["kill", "-STOP", manager])
    try:
        found = wrong(person, "daemons", "units")
    finally:
        machine.run(["kill", "-CONT", manager])
    hung = only([line for line in found if line["check"] == "units"])
    assert (hung["level"], hung["text"].partition(":")[0]) == ("fail", "your service manager does not answer")
    assert [line["level"] for line in found if line["check"] == "daemons"] == ["warn"], found  # they work, and who runs them is not known
    assert wrong(person, "daemons", "units") == []


@contextlib.contextmanager
def journald(machine: Machine, settings: str) -> Iterator[None]:
    """journald with these settings until the block ends; what it then has in memory goes to disk."""
    path = "/etc/systemd/journald.conf.d/test.conf"
    machine.run(["mkdir", "-p", "/etc/systemd/journald.conf.d"])
    machine.run(["sh", "-c", f"cat >{path}"], input=f"[Journal]\n{settings}\n")
    _restart(machine)
    try:
        yield
    finally:
        machine.run(["rm", path])
        _restart(machine)
        machine.run(["journalctl", "--flush"])


def _restart(machine: Machine) -> None:
    machine.run(["systemctl", "reset-failed", "systemd-journald"])  # or the fifth restart in ten seconds is refused
    machine.run(["systemctl", "restart", "systemd-journald"])


def test_a_journal_in_memory_is_not_kept_and_not_its_persons(up: World) -> None:
    machine, person = up.machine, up.person
    assert wrong(person, "journal") == []
    with journald(machine, "Storage=volatile"):
        lost, unread = wrong(person, "journal")
        assert "Storage=volatile" in lost["text"]
        assert unread["text"] == "you may not read your own entries in the journal"
    assert wrong(person, "journal") == []


def test_what_journald_dropped_is_told_with_how_to_widen_it(up: World) -> None:
    machine, person = up.machine, up.person
    with journald(machine, "RateLimitIntervalSec=1s\nRateLimitBurst=1"):
        narrow = only(wrong(person, "rate"))
        assert "entries in 1 s from all that you run together" in narrow["text"]
        for _ in range(8):
            up.ask("again")
        up.model.play({"default": {"reply": "yes"}})
    # Each program counts its entries: one that comes after those that were dropped tells how many.
    person.systemctl("restart", TARGET)
    found = person.until(lambda: [line for line in wrong(person, "rate") if "were not kept" in line["text"]])
    assert any("entries of agentd were not kept in the last day" in line["text"] for line in found)
    assert "RateLimitBurst" in found[0]["remedy"]
    machine.run(["usermod", "-aG", "systemd-journal", person.name])
    assert all("takes" not in line["text"] for line in wrong(person, "rate"))


def test_it_runs_as_root_beside_the_person(up: World) -> None:
    machine = up.machine
    command = [str(Path(__file__).parents[2] / "bin" / "bubbles"), "doctor", "--json"]
    done = machine.run(command, check=False, env={"BUBBLES_HOME": f"{up.person.home}/.bubbles"})
    assert done.returncode == 1
    assert done.stderr == ""
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert any("belongs to another user" in line["text"] for line in found if line["check"] == "home")
    assert not any("fault of ours" in line["text"] for line in found)
    assert up.person.systemctl("is-active", TARGET).stdout.strip() == "active"
