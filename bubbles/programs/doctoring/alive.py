"""The daemons that run: whether each answers, is of this version, and started with the settings of now.

It does not know what is wrong with one; `bubbles.programs.verdict` does. It says with it what the unit said last.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from bubbles import __version__, config
from bubbles.errors import BubblesError
from bubbles.paths import Home
from bubbles.programs import channels as platforms
from bubbles.programs import journald, verdict
from bubbles.programs.doctoring.finding import Findings, Patient, fail, note, ok, warn
from bubbles.programs.doctoring.said import said
from bubbles.programs.running import CORE, Ran, Running, look

_PATIENCE_S, _PAUSE_S = 6.0, 0.2  # a machine that is busy for a moment is no daemon that hangs
_STARTS_S = 30.0  # who started it gives up then
_LOOKED_AT, _WORDS = "12", 3  # entries; those that are told


def daemons(patient: Patient) -> Findings:
    """Do the daemons answer, and are they of this version?"""
    ran = _patiently(patient.home)
    if ran.unseen:
        yield warn(f"the units cannot be looked at: {ran.unseen}", "systemctl --user status")
    if ran.is_hung:  # `units` tells that this is wrong, and what to do
        yield warn("who runs them is not known: your service manager does not answer", "see `units` below")
    yield from _faults(ran)
    for fault in verdict.other_versions(ran, __version__):
        yield fail(fault.text, fault.remedy)
    for daemon in ran.daemons.values():
        if daemon.answer is not None and daemon.version in ("", __version__):
            yield ok(f"{daemon.name} answers (pid {daemon.pid}, run by {_by(daemon)})")
    yield from (note(f"{daemon.name} is starting (pid {daemon.pid})") for daemon in ran.daemons.values() if is_starting(daemon))
    if all(daemon.state == "down" for daemon in ran.daemons.values()):
        yield note("no daemon runs; the first `bubbles agent` starts them")
    yield from _troubles(ran.daemons["agentd"])


def _patiently(home: Home, channels: Iterable[str] = ()) -> Ran:
    """How the daemons run, looked at again and again where one is silent."""
    until = time.monotonic() + _PATIENCE_S
    ran = look(home, channels)
    while (ran.is_hung or any(daemon.silent for daemon in ran.daemons.values())) and time.monotonic() < until:
        time.sleep(_PAUSE_S)
        ran = look(home, channels)
    return ran


def is_starting(daemon: Running) -> bool:
    """Whether a daemon that has no door where we look is only about to open it there."""
    if daemon.pid is None or not daemon.silent.startswith("has no door") or not 0 <= time.time() - (daemon.since or 0) < _STARTS_S:
        return False
    try:
        with open(f"/proc/{daemon.pid}/environ", "rb") as file:
            theirs = dict(line.partition("=")[::2] for line in map(os.fsdecode, file.read().split(b"\0")))
    except OSError:
        return True
    return theirs.get("XDG_RUNTIME_DIR", "") == os.environ.get("XDG_RUNTIME_DIR", "")


def _faults(ran: Ran) -> Findings:
    told = {fault.text for fault in verdict.of_manager(ran)}
    for daemon in (ran.daemons[name] for name in CORE):
        for fault in verdict.of_daemon(daemon):
            told.add(fault.text)
            if is_starting(daemon):  # that it is silent then is all that may be wrong with it
                continue
            yield fail(f"{fault.text}{_words(daemon)}", fault.remedy)
    for fault in verdict.of_daemons(ran):
        if fault.text not in told:
            yield fail(fault.text, fault.remedy)


def _words(daemon: Running) -> str:
    """What a unit that is not up said last."""
    if daemon.unit is None or daemon.state not in ("failed", "restarting"):
        return ""
    told = said("journalctl", "--user", "--no-pager", "-q", "-u", daemon.unit.name, "-n", _LOOKED_AT, "-o", "json")
    found = filter(None, map(journald.parsed, told.out.encode().splitlines() if told else ()))
    own = [line.fields.get("MESSAGE", "") for line in found if line.fields.get("SYSLOG_IDENTIFIER") != "systemd"]
    return f"; it said: {' / '.join(line[:200] for line in own[-_WORDS:])}" if own else ""


def _by(daemon: Running) -> str:
    return {"unit": "its unit", "gateway": "a gateway", "terminal": "a terminal"}.get(daemon.by, "hand")


def _troubles(agentd: Running) -> Findings:
    """What agentd itself knows to be wrong."""
    told = agentd.answer or {}
    for key, why in told.get("broken", {}).items():
        yield fail(f"the session {key} cannot be used: {why}", "mend what it names; its messages are held meanwhile")
    for text in told.get("troubles", []):
        yield warn(str(text), "bubbles status")


def channels(patient: Patient) -> Findings:
    """Is every channel that is switched on there, and connected?"""
    home = patient.home
    on = _switched_on(home)
    ran = _patiently(home, on)
    names = sorted({*on, *(daemon.channel for daemon in ran.daemons.values() if daemon.channel)})
    for standing in platforms.standing(home, names, on, ran.daemons, resting=verdict.at_rest(ran)):
        faults = [] if is_starting(standing.daemon) else list(verdict.of_channel(standing, resting=verdict.at_rest(ran)))
        for fault in faults:
            yield fail(f"{fault.text}{_words(standing.daemon)}", fault.remedy)
        if not faults:
            yield ok(f"{standing.name} is {standing.state}")


def _switched_on(home: Home) -> list[str]:
    try:
        return platforms.switched_on(config.load(home, "channels").channels)
    except BubblesError:  # `config` tells
        return []


def restart(patient: Patient) -> Findings:
    """Did every daemon start with the settings of now?"""
    try:
        config.load(patient.home)
    except BubblesError:
        yield note("config.json does not load: what runs goes on with what it read before, and a restart would end it")
        return
    ran = look(patient.home)
    late = list(verdict.changed(ran))
    for fault in late:
        yield warn(fault.text, fault.remedy)
    if not late and any(daemon.pid is not None for daemon in ran.daemons.values()):
        yield ok("no daemon is older than config.json")
