"""`bubbles status` where units run everything: all well, a unit that failed, one that is restarted again and again, a stopped house."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.systemd.machine import Machine
from tests.systemd.world import AGENTD, ALL, CHANNEL, CRON, MODELD, TARGET, World, world

DAEMONS = {"agentd": AGENTD, "modeld": MODELD, "cron": CRON}


@pytest.fixture(scope="module")
def house(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One person's Bubbles for the tests of this file, started."""
    with world(machine.person(), tmp_path_factory.mktemp("house") / "state", {"default": {"reply": "heard"}}) as made:
        made.start()
        yield made


def told(house: World) -> dict[str, Any]:
    """What `status --json` prints, its exit code held against it."""
    done = house.person.run(["bubbles", "status", "--json"], check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(found["wrong"]), done.stderr
    return found


def row(house: World) -> dict[str, Any]:
    """What `channels status --json` prints of the test channel."""
    found: dict[str, Any] = json.loads(house.person.run(["bubbles", "channels", "status", "test", "--json"], check=False).stdout)
    return found


def all_well(house: World) -> bool:
    found = told(house)
    return found["wrong"] == [] and {each["state"] for each in (*found["daemons"].values(), *found["channels"])} == {"up"}


def test_all_is_well_and_each_runs_by_its_unit(house: World) -> None:
    house.person.until(lambda: all_well(house))
    found = told(house)
    for name, unit in DAEMONS.items():
        seen = found["daemons"][name]
        assert (seen["by"], seen["pid"], seen["unit"]["name"], seen["unit"]["restarts"]) == ("unit", house.pid(unit), unit, 0)
        assert time.time() - 600 < seen["unit"]["since"] <= time.time() + 1
    assert found["daemons"]["agentd"]["unit"]["status"] == "waiting for messages"
    house.platform.say("good morning")
    channel = house.person.until(lambda: seen if (seen := row(house))["last_out"] else None)
    assert (channel["state"], channel["daemon"]["by"], channel["daemon"]["pid"]) == ("up", "unit", house.pid(CHANNEL))
    shown = house.person.run(["bubbles", "status"]).stdout
    assert "waiting for messages" in shown
    assert "systemd, pid" in shown


def test_a_unit_that_failed_is_told_with_how_it_ended_and_where_to_look(house: World) -> None:
    house.platform.faults(status={"code": 401, "path": "/me"})
    house.person.systemctl("restart", CHANNEL, check=False)
    house.person.until(lambda: house.person.unit(CHANNEL)["ActiveState"] == "failed")
    seen = row(house)
    assert (seen["state"], seen["well"], seen["daemon"]["unit"]["code"]) == ("failed", False, 78)
    done = house.person.run(["bubbles", "status"], check=False)
    assert done.returncode == 1
    assert "channel-test failed: the configuration is wrong (exit code 78)" in done.stdout
    assert "journalctl --user -u bubbles-channel@test -n 20" in done.stdout
    assert {each["state"] for each in told(house)["daemons"].values()} == {"up"}
    house.platform.faults()
    house.person.systemctl("restart", CHANNEL)
    house.person.until(lambda: all_well(house))


def test_a_unit_that_is_restarted_again_and_again_is_wrong_also_while_it_runs(house: World) -> None:
    house.adjust(CRON, "broken", "[Service]\nRestartSec=0.1\nExecStart=\nExecStart=/bin/false\n")
    house.person.systemctl("restart", CRON, check=False)
    house.person.until(lambda: int(house.person.unit(CRON)["NRestarts"]) >= 3)
    done = house.person.run(["bubbles", "status"], check=False)
    assert done.returncode == 1
    assert "cron is restarted again and again" in done.stdout
    house.adjust(CRON, "broken", "")
    house.person.until(lambda: told(house)["daemons"]["cron"]["state"] == "up")
    found = told(house)
    restarts = found["daemons"]["cron"]["unit"]["restarts"]
    assert [each["text"].split(":")[0] for each in found["wrong"]] == [f"cron is restarted again and again ({restarts} times)"]
    house.person.systemctl("stop", CRON)  # by a person: it is counted from the beginning
    house.person.systemctl("start", CRON)
    assert all_well(house)


def test_one_that_a_person_stopped_is_missed_while_the_others_run(house: World) -> None:
    house.person.systemctl("stop", MODELD)
    (fault,) = told(house)["wrong"]
    assert fault == {"text": "modeld is down, and agentd, cron run", "remedy": "systemctl --user start bubbles-modeld"}
    house.person.systemctl("start", MODELD)
    house.person.until(lambda: all_well(house))


def test_a_manager_that_hangs_is_told_and_the_daemons_are_its_own_all_the_same(house: World, machine: Machine) -> None:
    manager = machine.run(["systemctl", "show", "--property=MainPID", "--value", f"user@{house.person.uid}"]).stdout.strip()
    machine.run(["kill", "-STOP", manager])
    try:
        done = house.person.run(["timeout", "9", "bubbles", "status", "--json"], check=False)
    finally:
        machine.run(["kill", "-CONT", manager])
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert [fault["text"] for fault in found["wrong"]] == ["your service manager does not answer: the units cannot be seen"]
    assert {each["by"] for each in found["daemons"].values()} == {"unit"}
    house.person.until(lambda: all_well(house))


def test_the_unit_of_a_channel_that_is_not_built_is_to_be_switched_off(house: World) -> None:
    house.person.systemctl("enable", "--now", "bubbles-channel@telegram", check=False)
    house.person.until(lambda: house.person.unit("bubbles-channel@telegram")["ActiveState"] == "failed")
    (fault,) = told(house)["wrong"]
    assert fault["text"] == "the unit bubbles-channel@telegram failed: there is no such channel, or it is not built yet"
    house.person.run(["sh", "-c", fault["remedy"]])
    house.person.until(lambda: all_well(house))


def test_a_change_of_the_configuration_wants_a_restart_by_systemd(house: World) -> None:
    config = house.person.home / ".bubbles/config.json"
    house.person.run(["touch", config])
    (note,) = told(house)["notes"]
    assert note["text"].startswith("agentd, modeld, channel-test started before config.json was changed")
    assert note["remedy"] == "systemctl --user restart bubbles-agentd bubbles-modeld bubbles-channel@test"
    house.person.run(["sh", "-c", note["remedy"]])
    house.person.until(lambda: all_well(house) and told(house)["notes"] == [])


def test_a_home_that_was_stopped_is_well_and_another_home_has_nothing_to_do_with_these_units(house: World) -> None:
    other = json.loads(house.person.run(["bubbles", "status", "--json"], env={"BUBBLES_HOME": str(house.person.home / "other")}).stdout)
    assert {each["unit"] for each in other["daemons"].values()} == {None}
    house.person.systemctl("stop", TARGET)
    house.person.until(lambda: set(house.pids(*ALL).values()) == {0})
    found = told(house)
    assert found["wrong"] == []
    assert {each["state"] for each in found["daemons"].values()} == {"down"}
    house.start()
    house.person.until(lambda: all_well(house))
