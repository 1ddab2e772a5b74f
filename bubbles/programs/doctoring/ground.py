"""What sandboxes and limits stand on: user namespaces for a jail, cgroups for memory and processes.

Whether jails hold is tried with a real one, by each bubblewrap that there is. Nothing is wrong with a machine that makes none, unless its owner's
commands are to have them.
"""

from __future__ import annotations

import os
from pathlib import Path

from bubbles import config
from bubbles.config.tools import Sandbox
from bubbles.errors import BubblesError
from bubbles.programs.doctoring.finding import Finding, Findings, Patient, fail, note, ok, warn
from bubbles.programs.sandboxing import bounding
from bubbles.sandboxes import probe, refusal
from bubbles.sandboxes.probe import Verdict

_CONTROLLERS = {"memory", "pids"}
_DELEGATE = (
    "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu memory pids\\n'"
    " | sudo tee /etc/systemd/system/user@.service.d/bubbles.conf && sudo systemctl daemon-reload, then log in anew"
)


def namespaces(patient: Patient) -> Findings:
    """Does the sandbox that is set up work, and could commands be put into a jail? Tried for real."""
    settings = _settings(patient)
    tried = probe.every(patient.home, settings)
    found = probe.summed(tried)
    wanted = settings.backend == "bwrap"
    if found.ok:
        yield ok(f"{'commands get a jail' if wanted else 'a jail could be made'}: it was tried from inside, by {found.binary} {found.version}")
        if not wanted:
            yield note(f"commands have the sandbox {settings.backend}, which hides no file from them", "bubbles onboard --sandbox bwrap")
    elif wanted:
        why = f"every command is refused, because no jail can be made: {found.why}"
        yield fail(why, f"{found.remedy}; or: bubbles onboard --sandbox local_isolated")
    else:
        yield note(f"no jail can be made here, and the sandbox {settings.backend} needs none: {found.why}", found.remedy)
    yield from _others(tried, found)
    for cve in dict.fromkeys(text for each in tried for text in each.notes if refusal.CVE in text):
        yield note(cve)
    if found.ok and (forbidden := refusal.forbidding(patient.root)) is not None and os.geteuid():
        yield note(f"{forbidden.why}; {found.binary} may all the same")


def _settings(patient: Patient) -> Sandbox:
    """What is set; where that does not load, which `config` tells, what holds without a word."""
    try:
        return config.load(patient.home, "tools").tools.sandbox
    except BubblesError:
        return Sandbox()


def _others(tried: list[Verdict], found: Verdict) -> Findings:
    """The other bubblewraps of this machine: one that would serve in the first one's place, or is passed over."""
    for each in tried:
        if each.binary == found.binary:
            continue
        if each.ok:
            yield ok(f"{each.binary} {each.version} would hold as well")
        elif found.ok:
            yield _passed_over(each)
        elif each.why != found.why:
            yield note(f"{each.binary} {each.version} makes none either: {each.why}", each.remedy)


def _passed_over(each: Verdict) -> Finding:
    return note(f"{each.binary} {each.version} makes no jail here, and is passed over: {each.why}", each.remedy)


def cgroups(patient: Patient) -> Findings:
    """Do limits of memory and processes hold?"""
    divided = bounding.controllers(patient.home)
    if divided:
        yield ok(f"agentd gives each command a cgroup of its own ({', '.join(sorted(divided))})")
    elif divided is not None:
        yield note(f"memory and processes of commands are bounded {bounding.WATCHING}", "bubbles units install --now")
    top = patient.root / "sys/fs/cgroup"
    if not (top / "cgroup.controllers").exists():
        yield note("no unified cgroups here: limits of memory and processes (MemoryMax, TasksMax) do not hold")
        return
    if lacking := sorted(_CONTROLLERS - _controllers(top)):
        yield note(
            f"this machine gives unified cgroups no {' and no '.join(lacking)}: the units' limits (MemoryMax, TasksMax) do not hold",
            "boot it with systemd.unified_cgroup_hierarchy=1; in a container that is its host's affair",
        )
        return
    uid = os.geteuid()
    place = top / f"user.slice/user-{uid}.slice/user@{uid}.service"
    try:
        given = _controllers(place)
    except OSError:
        yield note("no service manager of yours has cgroups here; limits hold only under one")
        return
    if lacking := sorted(_CONTROLLERS - given):
        yield warn(f"your service manager was not given {' and '.join(lacking)}: the units' limits (MemoryMax, TasksMax) do not hold", _DELEGATE)
    else:
        yield ok(f"your service manager was given {', '.join(sorted(given))}")


def _controllers(place: Path) -> set[str]:
    """What may be limited in a cgroup. Raises OSError."""
    return set((place / "cgroup.controllers").read_text().split())
