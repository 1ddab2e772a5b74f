"""The units of the person's service manager: installed, as they should be, alive, and there after the last logout.

It does not know what stands in a unit; `bubbles.programs.units` does.
"""

from __future__ import annotations

import getpass
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bubbles.paths import Home, typed
from bubbles.programs import journald, verdict
from bubbles.programs.doctoring.finding import Finding, Findings, Patient, fail, note, ok, warn
from bubbles.programs.doctoring.said import said
from bubbles.programs.running import Ran
from bubbles.systemd import SERVICES, TARGET, TIDY, Unit, UserManager, is_hung, lingers, unit_of

_LINES = 5  # of systemd's words that are told
_FAILED = "d9b373ed55a64feb8242e02dbe79a49c"  # the id of systemd's message about a unit that failed, with its result
_OUT_OF_MEMORY = "fe6faa94e7774663a0da52717891d8ef"  # and about a process in one that the kernel ended
_ENDS = {"watchdog": "hung, and the watchdog ended it", "oom-kill": "was out of memory", "timeout": "did not end in time", "signal": "was killed"}


def units(patient: Patient) -> Findings:
    """Are the units installed, and as this version writes them?"""
    manager = UserManager.reach()
    if manager is None:
        yield _unmanned(patient)
        return
    home = manager.home_of_units()
    if home is None:
        yield note("no units are installed; `bubbles gateway` runs the daemons without", "bubbles units install")
        return
    if os.path.realpath(home) != os.path.realpath(patient.home.root):
        yield note(f"the units are for {home}, and this is about {patient.home.root}", f"BUBBLES_HOME={typed(home)} bubbles doctor")
        return
    wrong = [*_drift(patient.home), *_stale(manager), *_off(manager)]
    yield from wrong
    if not any(found.level != "note" for found in wrong):
        yield ok("the units are as this version writes them")


def _unmanned(patient: Patient) -> Finding:
    if is_hung():
        (fault,) = verdict.of_manager(Ran(is_hung=True))
        return fail(fault.text, fault.remedy)
    if not (patient.root / "run/systemd/system").is_dir():
        return note("no systemd here: `bubbles gateway` runs the daemons")
    uid = os.geteuid()
    if Path(f"/run/user/{uid}/systemd/private").exists():
        return warn("your service manager runs, and XDG_RUNTIME_DIR does not lead to it", f"export XDG_RUNTIME_DIR=/run/user/{uid}")
    return note("systemd runs, and no service manager of yours", "loginctl enable-linger, then log in anew (not by su or sudo)")


def _drift(home: Home) -> Findings:
    """What differs from what would be installed now, and what systemd has against what is."""
    from bubbles.programs import units as installed

    names = sorted({line.split("/", 1)[1] for line in installed.differences(home) if line.startswith(("--- installed/", "+++ wanted/"))})
    if names:
        yield warn(f"not as this version and configuration want it: {', '.join(names)}", "bubbles units install --now")
    there = [name for name in installed.texts(home) if (installed.directory() / name).is_file()]
    for line in installed.faults(there)[:_LINES]:
        yield fail(f"systemd finds a fault: {line}", "bubbles units install; else look into your drop-ins: systemctl --user cat 'bubbles-*'")


def _names(manager: UserManager) -> tuple[str, ...]:
    return (*SERVICES, *map(unit_of, manager.channels()), *TIDY)


def _stale(manager: UserManager) -> Findings:
    """Files that were changed since the manager read them."""
    names = (TARGET, *_names(manager))
    told = manager.call("show", "--property=NeedDaemonReload", "--value", "--", *names, timeout_s=10).split()
    if changed := [name for name, said in zip(names, told, strict=False) if said == "yes"]:
        yield warn(f"{', '.join(changed)} changed on disk, and the service manager goes by what it read before", "systemctl --user daemon-reload")


def _off(manager: UserManager) -> Findings:
    target = manager.show(TARGET)[TARGET]
    if target.enabled not in ("enabled", "enabled-runtime"):
        yield note("the units do not start by themselves", f"systemctl --user enable --now {TARGET}")
    elif target.active != "active":
        yield warn(f"{TARGET} is enabled and {target.active}", f"systemctl --user start {TARGET}")


def ends(patient: Patient) -> Findings:
    """Can every unit be used, and how did those end that had to be started again?"""
    manager = UserManager.reach()
    if manager is None or manager.home_of_units() is None:
        return
    shown = manager.show(TARGET, *_names(manager))
    wrong = [*_unusable(shown[name] for name in shown), *_untidy(shown), *_ended()]
    yield from wrong
    if not wrong:
        yield ok("none had to be started again in the last day")


def _unusable(units: Iterable[Unit]) -> Findings:
    for unit in units:
        if unit.load in ("bad-setting", "error", "masked"):
            yield fail(f"{unit.name} cannot be used ({unit.load})", f"systemctl --user status {unit.name}; bubbles units install")


def _untidy(shown: dict[str, Unit]) -> Findings:
    """The unit that runs once a day; the daemons' are told above."""
    unit = shown["bubbles-tidy.service"]
    if unit.active == "failed":
        yield warn(
            f"{unit.name} failed: {verdict.ended(unit)}", "bubbles tidy, and read what it says; then: systemctl --user reset-failed bubbles-tidy"
        )


def _ended() -> Findings:
    """How units ended in the last day that were started again, as the journal has it."""
    told = said(
        "journalctl", "--user", "--no-pager", "-q", "-o", "json", "--since=-1d", f"MESSAGE_ID={_FAILED}", f"MESSAGE_ID={_OUT_OF_MEMORY}", timeout_s=15
    )
    found = filter(None, map(journald.parsed, told.out.encode().splitlines() if told else ()))
    counts = Counter((line.fields.get("USER_UNIT", ""), line.fields.get("UNIT_RESULT") or "memory") for line in found)
    for (unit, result), count in sorted(counts.items()):
        if unit.startswith("bubbles-") and result == "memory":
            yield note(
                f"the kernel ended something in {unit} that took too much memory, {_times(count)} in the last day",
                "MemoryMax= of the unit, or a smaller task",
            )
        elif unit.startswith("bubbles-") and result in _ENDS:
            yield warn(f"{unit} {_ENDS[result]}, {_times(count)} in the last day", f"journalctl --user -u {unit} --since=-1d")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def linger(patient: Patient) -> Findings:
    """Do the units start at boot, and stay after the last logout?"""
    manager = UserManager.reach()
    if manager is None or manager.home_of_units() is None:
        return
    if lingers():
        yield ok("they start at boot and stay when you log out")
    else:
        yield warn("the units end when you log out, and do not start at boot", f"sudo loginctl enable-linger {getpass.getuser()}")
