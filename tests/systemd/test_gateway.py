"""`bubbles gateway` where a user's systemd runs the units: it starts the target or finds it started, tells, and stops only what it started."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import Person
from tests.systemd.world import AGENTD, ALL, CHANNEL, CRON, MODELD, TARGET, World, world


class Watch:
    """A gateway of a person's; `said` is its standard error so far."""

    def __init__(self, person: Person, *options: str) -> None:
        self._person = person
        begin = ["sh", "-c", 'echo $$ >gateway.pid; exec bubbles gateway "$@"', "gateway", *options]
        command = person.machine.command(begin, user=person.name)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.said += line

    def expect(self, *wanted: str) -> None:
        for each in wanted:
            try:
                self._person.until(lambda each=each: each in self.said)
            except AssertionError:
                pytest.fail(f"{each!r} was not said:\n{self.said}")

    def signal(self, name: str) -> None:
        pid = self._person.machine.path(self._person.home / "gateway.pid").read_text().strip()
        self._person.run(["kill", f"-{name}", pid])

    def ended(self) -> int:
        code = self.process.wait(60)
        self._reader.join(5)
        return code


@contextlib.contextmanager
def watch(person: Person, *options: str) -> Iterator[Watch]:
    found = Watch(person, *options)
    try:
        yield found
    finally:
        try:
            if found.process.poll() is None:
                found.signal("KILL")
                found.ended()
        finally:
            found.process.kill()


def active(person: Person, *units: str) -> list[str]:
    return [person.unit(unit)["ActiveState"] for unit in units]


@pytest.fixture
def bubbles(person: Person, tmp_path: Path) -> Iterator[World]:
    with world(person, tmp_path / "state", {"default": {"reply": "by the units"}}) as made:
        yield made


def test_it_starts_the_target_follows_it_and_stops_it(bubbles: World) -> None:
    person = bubbles.person
    with watch(person) as gateway:
        gateway.expect(f"gateway: starting {TARGET}; Ctrl-C stops it\n")
        gateway.expect("gateway: agentd is ready (pid ", "gateway: modeld is ready (pid ", "gateway: channel-test is ready (pid ")
        assert bubbles.ask("hello") == "by the units"
        gateway.expect(" agentd turn.close replied")
        person.systemctl("kill", "--signal=KILL", "--kill-whom=main", AGENTD)
        gateway.expect("gateway: agentd was ended by SIGKILL; it is started again", "gateway: agentd is back (pid ")
        assert bubbles.ask("and now?") == "by the units"
        gateway.signal("INT")
        assert gateway.ended() == 0
    assert f"gateway: stopping {TARGET}; Ctrl-C again leaves it to that\n" in gateway.said
    assert f"gateway: {TARGET} is stopped\n" in gateway.said
    assert active(person, TARGET, AGENTD, MODELD, CRON, CHANNEL) == ["inactive"] * 5


def test_a_second_ctrl_c_leaves_a_slow_stop_to_the_manager(bubbles: World) -> None:
    person = bubbles.person
    bubbles.adjust(CHANNEL, "slow", "[Service]\nExecStop=/bin/sleep 3\n")
    with watch(person) as gateway:
        gateway.expect("gateway: channel-test is ready (pid ")
        gateway.signal("INT")
        gateway.expect("gateway: stopping")
        gateway.signal("INT")
        assert gateway.ended() == 0
    assert gateway.said.endswith(f"gateway: {TARGET} goes on stopping by itself\n")
    person.until(lambda: active(person, TARGET, CHANNEL) == ["inactive"] * 2)


def test_a_target_that_was_active_goes_on(bubbles: World) -> None:
    person = bubbles.person
    bubbles.start()
    before = bubbles.pids(*ALL)
    with watch(person) as gateway:
        gateway.expect(
            f"gateway: {TARGET} is active already; Ctrl-C ends this watch, and stops nothing\n", f"gateway: agentd runs (pid {before[AGENTD]})"
        )
        assert bubbles.ask("hello") == "by the units"
        gateway.expect(" agentd turn.close replied")
        beside = person.run(["bubbles", "gateway", "--children"], check=False)
        assert (beside.returncode, beside.stderr.splitlines()[0]) == (75, f"bubbles: {TARGET} is active, and keeps the daemons")
        gateway.signal("TERM")
        assert gateway.ended() == 0
    assert f"gateway: {TARGET} goes on\n" in gateway.said
    assert bubbles.pids(*ALL) == before
    with watch(person) as gateway:
        gateway.expect("is active already")
        person.systemctl("stop", TARGET)
        assert gateway.ended() == 0
    assert f"gateway: {TARGET} was stopped by somebody else\n" in gateway.said


def test_what_a_unit_said_that_failed_is_shown(bubbles: World) -> None:
    person = bubbles.person
    bubbles.platform.faults(status={"code": 401, "path": ""})
    with watch(person) as gateway:
        gateway.expect(
            "gateway: channel-test ended with 78, and is not started again\n",
            "  bubbles: the platform rejects the token: 401",
            "    try: give it another",
        )
        assert bubbles.ask("hello") == "by the units"
        gateway.signal("INT")
        assert gateway.ended() == 0


def test_where_all_fail_it_ends_with_their_code(bubbles: World) -> None:
    person = bubbles.person
    person.systemctl("disable", CHANNEL)
    bubbles.adjust(CRON, "broken", "[Service]\nExecStart=\nExecStart=/bin/sh -c 'exit 78'\n")
    person.write(".bubbles/config.json", '{"agents": {"defaults": {"temperature": "hot"}}}')
    with watch(person) as gateway:
        assert gateway.ended() == 78
    assert "agents.defaults.temperature" in gateway.said
    assert active(person, TARGET) == ["inactive"]


def test_it_runs_children_where_it_is_asked_to_and_no_target_beside_them(bubbles: World) -> None:
    person = bubbles.person
    with watch(person, "--children") as gateway:
        gateway.expect("gateway: starting modeld, agentd and cron as children of this program\n", "gateway: all run; Ctrl-C ends all")
        assert bubbles.ask("hello") == "by the units"
        beside = person.run(["bubbles", "gateway"], check=False)
        assert beside.returncode == 75
        assert re.match(r"bubbles: gateway is already running \(pid \d+\), and keeps the daemons as its children\n  try: ", beside.stderr)
        assert active(person, TARGET) == ["inactive"]
        gateway.signal("HUP")
        assert gateway.ended() == 0
    bubbles.start()
    assert bubbles.ask("hello") == "by the units"


def test_units_are_not_started_beside_a_gateway_that_has_children(bubbles: World) -> None:
    person = bubbles.person
    with watch(person, "--children") as gateway:
        gateway.expect("gateway: all run; Ctrl-C ends all")
        beside = person.run(["bubbles", "units", "install", "--now"], check=False)
        assert beside.returncode == 75
        assert "bubbles gateway (pid " in beside.stderr
        assert f"systemctl --user enable --now {TARGET}" in beside.stderr
        assert active(person, AGENTD) == ["inactive"]
        gateway.signal("INT")
        assert gateway.ended() == 0
    assert person.run(["bubbles", "units", "install", "--now"]).returncode == 0
    assert active(person, AGENTD) == ["active"]
