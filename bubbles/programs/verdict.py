"""What is wrong with how the daemons and channels of a home run, each with what to do about it.

It does not look: `bubbles.programs.running` and `bubbles.programs.channels` have. A home in which nothing runs for good is at rest, and a daemon
that is not there is no fault in it.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bubbles.channels import CHANNELS
from bubbles.programs.running import CORE, Ran, Running

if TYPE_CHECKING:
    from bubbles.programs.channels import Standing
    from bubbles.systemd import Unit

FLAPS = 3  # restarts of a unit, the last of them no longer ago than
FLAPS_S = 60.0
UNDELIVERED_S = 600.0  # a message that has waited so long is no hiccup of the network; agentd tells the owner then, too
_NO_CHANNEL = "there is no such channel, or it is not built yet"
_MEANT = {64: "it was called wrongly", 75: "it was to be tried again", 78: "the configuration is wrong"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, or worth knowing, and what to type."""

    text: str
    remedy: str = ""

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def at_rest(ran: Ran) -> bool:
    """Whether nothing of the home runs for good: not at all, or for the time of a terminal."""
    return not any(daemon.lasts or daemon.state == "restarting" for name, daemon in ran.daemons.items() if name in CORE)


def of_manager(ran: Ran) -> Iterator[Fault]:
    """What is wrong with the person's service manager."""
    if ran.is_hung:
        user = f"user@{os.geteuid()}"
        anew = f"to begin anew, with all that it runs: sudo systemctl restart {user}"
        yield Fault("your service manager does not answer: the units cannot be seen", f"systemctl status {user}; {anew}")


def of_daemons(ran: Ran) -> Iterator[Fault]:
    """What is wrong with the daemons of a home, those of channels left out."""
    resting = at_rest(ran)
    for daemon in (ran.daemons[name] for name in CORE):
        yield from of_daemon(daemon)
        if daemon.state == "down" and not resting:
            others = ", ".join(name for name in CORE if ran.daemons[name].lasts)
            yield Fault(f"{daemon.name} is down, and {others} {'run' if ',' in others else 'runs'}", _start(daemon))


def of_daemon(daemon: Running) -> Iterator[Fault]:
    """What is wrong with one that runs, or that its unit should run."""
    unit, state = daemon.unit, daemon.state
    if unit is not None and state in ("failed", "restarting") and _is_in_vain(daemon):
        yield Fault(f"the unit {daemon.unit_name} failed: {_NO_CHANNEL}", _off(daemon))
    elif unit is not None and state == "failed":
        yield Fault(f"{daemon.name} failed: {ended(unit)}", f"{_log(daemon)}; then: systemctl --user restart {_short(daemon)}")
    elif unit is not None and daemon.by in ("gateway", "hand") and unit.sub == "auto-restart":
        instead = "Ctrl-C where bubbles gateway runs; the unit starts then" if daemon.by == "gateway" else f"kill {daemon.pid}"
        yield Fault(f"the unit of {daemon.name} cannot start: it runs already, {_started(daemon)}", instead)
    elif unit is not None and (state == "restarting" or _flaps(unit)):
        yield Fault(f"{daemon.name} is restarted again and again ({unit.restarts} times): {ended(unit)}", _log(daemon))
    if state == "up" and daemon.silent:
        yield Fault(f"{daemon.name} runs ({_named(daemon)}) and does not answer: it {daemon.silent}", _again(daemon))


def of_channel(channel: Standing, *, resting: bool) -> Iterator[Fault]:
    """What is wrong with one channel."""
    daemon, name = channel.daemon, channel.name
    yield from of_daemon(daemon)
    if channel.wanted and daemon.state == "down" and not resting:
        yield _missed(channel)
    if daemon.answer is not None and channel.state == "down":
        yield Fault(f"{name} is not connected: {channel.why}", f"bubbles audit --channel {name}")
    if channel.is_silent:
        yield Fault(f"nothing has been heard from {name} for too long: {channel.why}", _again(daemon))
    if channel.wanted and channel.depth.oldest is not None and time.time() - channel.depth.oldest > UNDELIVERED_S and not resting:
        waits = f"{channel.depth.new + channel.depth.cur} waiting for {name}, the first for {(time.time() - channel.depth.oldest) / 60:.0f} minutes"
        yield Fault(f"messages are not delivered: {waits}", f"bubbles queue list outbound/{name} | bubbles scan")


def _missed(channel: Standing) -> Fault:
    """Of a channel that should run and does not: who says that it should?"""
    if channel.daemon.unit is not None and _is_in_vain(channel.daemon):
        return Fault(f"the unit {channel.daemon.unit_name} is {channel.daemon.unit.enabled}: {_NO_CHANNEL}", _off(channel.daemon))
    if not channel.enabled and channel.daemon.unit is not None:
        return Fault(f"the unit {channel.daemon.unit_name} is {channel.daemon.unit.enabled}, and does not run", _start(channel.daemon))
    return Fault(f"{channel.name} is switched on, and its daemon does not run", _start(channel.daemon))


def _is_in_vain(daemon: Running) -> bool:
    """Whether there is a unit for a channel that no program of ours can serve; one that somebody has changed may run another's."""
    return daemon.channel != "" and daemon.channel not in CHANNELS and daemon.unit is not None and not daemon.unit.drop_ins


def changed(ran: Ran) -> Iterator[Fault]:
    """What is not wrong and worth knowing: daemons that a change of config.json has not reached, or of another version than `own`."""
    late = [daemon for daemon in ran.daemons.values() if daemon.before_config]
    for by in dict.fromkeys(daemon.by for daemon in late):
        those = [daemon for daemon in late if daemon.by == by]
        yield Fault(f"{_listed(those)} started before config.json was changed: the change takes effect with a restart", _restart(those, by))


def other_versions(ran: Ran, own: str) -> Iterator[Fault]:
    """Daemons of another version than `own`, which is this program's."""
    for daemon in ran.daemons.values():
        if daemon.version and daemon.version != own:
            yield Fault(f"{daemon.name} is {daemon.version}, and this program {own}", _restart([daemon], daemon.by))


# -- words -----------------------------------------------------------------------------------------


def ended(unit: Unit) -> str:
    """How the last process of a unit ended, for a person."""
    if unit.result == "signal" or unit.result == "core-dump":
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(unit.code).name}"
    return {
        "exit-code": f"{_MEANT.get(unit.code, 'it ended')} (exit code {unit.code})",
        "watchdog": "it hung, and the watchdog ended it",
        "oom-kill": "it was ended for want of memory",
        "timeout": "it was not ready, or did not end, in time",
        "protocol": "it ended before it was ready",
        "success": "it ended",
    }.get(unit.result, unit.result)


def _flaps(unit: Unit) -> bool:
    is_coming = unit.active in ("active", "activating") or (unit.active == "inactive" and unit.job > 0)
    return unit.restarts >= FLAPS and is_coming and 0 <= time.time() - unit.since < FLAPS_S


def _short(daemon: Running) -> str:
    return shlex.quote(daemon.unit_name)


def _log(daemon: Running) -> str:
    return f"journalctl --user -u {_short(daemon)} -n 20"


def _off(daemon: Running) -> str:
    """What rids one of a unit."""
    name = _short(daemon)
    return f"systemctl --user disable --now {name}; systemctl --user reset-failed {name}"


def _named(daemon: Running) -> str:
    return f"pid {daemon.pid}"


def _started(daemon: Running) -> str:
    return f"started by {'a gateway' if daemon.by == 'gateway' else 'hand'} ({_named(daemon)})"


def _listed(daemons: Iterable[Running]) -> str:
    return ", ".join(daemon.name for daemon in daemons)


def _start(daemon: Running) -> str:
    if daemon.unit is not None:
        kept = not daemon.channel or daemon.unit.enabled.startswith("enabled")  # those of no channel belong to the target
        return f"systemctl --user {'start' if kept else 'enable --now'} {_short(daemon)}"
    return f"bubbles channel {daemon.channel}, and read what it says" if daemon.channel else "bubbles gateway, which runs what does not run yet"


def _again(daemon: Running) -> str:
    """What gets rid of one that runs and does nothing; where its door may be elsewhere, what finds it."""
    if daemon.silent.startswith("has no door") and not os.environ.get("XDG_RUNTIME_DIR"):
        return f"export XDG_RUNTIME_DIR=/run/user/{os.geteuid()}"
    if daemon.by == "unit":
        return f"systemctl --user restart {_short(daemon)}"
    then = {"gateway": "; the gateway starts another", "terminal": "; the next question starts another"}.get(daemon.by, f"; then: {_start(daemon)}")
    return f"kill -KILL {daemon.pid}{then}"


def _restart(daemons: list[Running], by: str) -> str:
    if by == "unit":
        return f"systemctl --user restart {' '.join(_short(daemon) for daemon in daemons)}"
    pids = " ".join(str(daemon.pid) for daemon in daemons)
    then = {"gateway": "the gateway starts them again", "terminal": "the next question starts them again"}.get(by, "then start them again")
    return f"kill {pids}; {then}"
