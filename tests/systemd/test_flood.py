"""More entries than journald takes: a daemon's own log is whole all the same, and where journald has dropped some, `bubbles audit` counts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.person import Person

EVENTS = 20_000
LIMITED = Path("/etc/systemd/journald.conf.d/flood.conf")
# As a daemon does, in a unit of its own: entry after entry as fast as they come, and one when all is over.
FLOOD = f"""
import time
from bubbles import log
from bubbles.paths import Home
home = Home.find()
home.prepare()
log.setup("agentd", home=home)
assert log._sink.journal, "a unit's standard error leads to journald"
started = time.monotonic()
for n in range({EVENTS}):
    log.event("turn.start", str(n), session="main", turn="t-1", x="an ordinary line of some fifty characters, or more")
assert time.monotonic() - started < 30
time.sleep(%s)
log._sink.burst_until = 0.0
log.event("turn.close", "over")
"""


def flood(person: Person, after_s: float) -> None:
    argv = ["systemd-run", "--user", "--quiet", "--wait", "--collect", "--unit=flood", f"--setenv=PYTHONPATH={CHECKOUT}"]
    person.run([*argv, CHECKOUT / ".venv/bin/python", "-c", FLOOD % after_s])


def audited(person: Person) -> tuple[list[int], str]:
    """The numbers that `bubbles audit` tells, and what it says beside them."""
    done = person.run(["bubbles", "audit", "--event", "turn.start"])
    return [int(json.loads(line)["message"]) for line in done.stdout.splitlines()], done.stderr


def in_journal(person: Person) -> int:
    person.machine.run(["journalctl", "--sync"])
    return person.run(["journalctl", "--user", "-q", "-o", "cat", "BUBBLES_EVENT=turn.start"]).stdout.count("\n")


def test_20_000_entries_at_once_and_none_is_lost(person: Person) -> None:
    flood(person, 0)
    assert 1000 < in_journal(person) < 10_000, "no more than journald keeps of all that a person runs, whatever room its disk has"
    told, beside = audited(person)
    assert told == list(range(EVENTS))
    assert beside == ""
    warned = person.run(["journalctl", "--user", "-q", "-o", "cat", "BUBBLES_EVENT=daemon.warning"]).stdout
    assert "log/agentd.jsonl" in warned


@pytest.fixture
def strict(machine: Machine) -> Iterator[None]:
    """A journald that takes a tenth of what it takes by default."""
    machine.run(["mkdir", "-p", LIMITED.parent])
    machine.run(["tee", LIMITED], input="[Journal]\nRateLimitIntervalSec=2s\nRateLimitBurst=1000\n")
    machine.run(["systemctl", "restart", "systemd-journald"])
    yield
    machine.run(["rm", LIMITED])
    machine.run(["systemctl", "restart", "systemd-journald"])


def test_what_journald_dropped_is_counted_for_a_person_who_may_not_read_the_systems_log(person: Person, strict: None) -> None:
    flood(person, 2.5)
    kept = in_journal(person)
    assert kept < 4998
    told, beside = audited(person)
    dropped = EVENTS - len(told)
    assert dropped > 0
    assert f"bubbles: journald dropped {dropped} entries of agentd between " in beside.replace(f" {dropped + 1} ", f" {dropped} ")
    assert "  try: bubbles doctor" in beside
    said = person.machine.run(["journalctl", "-q", "-o", "cat", "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"]).stdout
    assert "Suppressed" in said
    assert f"user@{person.uid}.service" in said, "all that a person runs counts as one"
    assert person.run(["journalctl", "-q", "-o", "cat", "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"]).stdout == ""
