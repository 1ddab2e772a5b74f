"""How each channel stands: whether it is switched on, runs and is connected, and what waits for it.

Those are shown that are switched on, run, have a unit, or have been used; a NAME shows that one, whatever it is. It
changes nothing.

A channel that is switched on, runs, or has a unit that is enabled or failed, is well when its daemon runs and answers,
is connected or about to be (a platform has ten seconds to say so), has heard from its platform within the time that the
platform allows, and nothing is held or has waited for ten minutes. While neither agentd, modeld nor cron runs for good,
a daemon that does not run is none that is missed.

Input:
  nothing
Output:
  a line a channel: its state, who runs its daemon, when a message last came in and went out, how many wait, are being
  sent, are held (for you to decide) and are uncertain (nobody knows whether they arrived). With --json one JSON object
  a channel
Exit codes:
  0   all are well, or there is none
  1   one of them is not, or there is no channel of that name
  78  the configuration is wrong: standard error says where; the rest is told all the same
Examples:
  bubbles channels status
  bubbles channels status --json | jq -r 'select(.well | not) | .channel + ": " + .why'
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click

from bubbles import config
from bubbles.channels import CHANNELS
from bubbles.channels.receipts import Receipts
from bubbles.config.channels import Channels, Platform
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.programs import lines, verdict
from bubbles.programs.facts import unconfirmed
from bubbles.programs.page import verbs
from bubbles.programs.running import RUN_BY, Running, look
from bubbles.programs.screen import Block, ago, show
from bubbles.programs.verdict import Fault
from bubbles.spool import STATES

_APART_S = 0.02  # longer than it takes to make a queue's directories
_NOT_PLATFORMS = ("cli", "cron")  # queues that are no channel's daemon's


@dataclass(slots=True)
class Depth:
    """How many messages lie in a queue, by state, and since when the first of those that wait does (epoch seconds)."""

    new: int = 0
    cur: int = 0
    held: int = 0
    oldest: float | None = None
    ids: list[str] = field(default_factory=list)  # of all of them

    @classmethod
    def of(cls, queue: Path) -> Depth:
        """That of the queue at `queue`. What is done is not looked at."""
        found = cls()
        for state in ("new", "cur", "held"):
            entries = [entry for entry in _entries(queue / state) if entry.name.endswith(".json")]
            setattr(found, state, len(entries))
            found.ids += [entry.name.removesuffix(".json") for entry in entries]
            if state != "held":
                found.oldest = min(chain(filter(None, [found.oldest]), filter(None, map(_mtime, entries))), default=None)
        return found

    def told(self) -> dict[str, int]:
        """As JSON."""
        return {"new": self.new, "cur": self.cur, "held": self.held}


@dataclass(slots=True)
class Standing:
    """One channel. `enabled`: the owner has switched it on; `last_in`, `last_out`: epoch seconds, None: never, or nobody knows."""

    name: str
    enabled: bool
    daemon: Running
    depth: Depth  # of what goes out
    inbound: Depth
    last_in: float | None
    last_out: float | None
    uncertain: int
    faults: list[Fault] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        """Whether it should run, as far as the owner has said."""
        unit = self.daemon.unit
        by_unit = unit is not None and (unit.enabled.startswith("enabled") or unit.active not in ("inactive", ""))
        return self.enabled or self.daemon.pid is not None or by_unit

    @property
    def state(self) -> str:
        """up, connecting, or down (the platform); starting, stopping, restarting, failed, down (the daemon); off."""
        if not self.wanted:
            return "off"
        if self.daemon.state != "up":
            return self.daemon.state
        return str((self.daemon.answer or {}).get("state", "down"))

    @property
    def is_silent(self) -> bool:
        """Whether the platform has said nothing for longer than one that is there would."""
        told = self.daemon.answer or {}
        silent_s, stale_s = told.get("silent_s"), told.get("stale_s")
        longer = isinstance(silent_s, int | float) and isinstance(stale_s, int | float) and silent_s > stale_s
        return self.state == "up" and (longer or bool(told.get("rebuilds")))

    @property
    def why(self) -> str:
        """What there is to say about its state, "" where it speaks for itself."""
        told, unit = self.daemon.answer or {}, self.daemon.unit
        if self.is_silent:
            silent_s, rebuilds = told.get("silent_s"), told.get("rebuilds")
            return f"silent for {ago(silent_s)}" if isinstance(silent_s, int | float) else f"{rebuilds} new clients have heard nothing"
        if unit is not None and self.state in ("failed", "restarting"):
            return verdict.ended(unit)
        if self.daemon.pid is not None and self.daemon.silent:
            return f"its daemon {self.daemon.silent}"
        return "its daemon does not run" if self.state == "down" and self.daemon.pid is None else str(told.get("why", ""))

    @property
    def well(self) -> bool:
        return not self.faults

    @property
    def mark(self) -> str:
        if self.faults:
            return "bad"
        return {"up": "ok", "off": "off", "down": "off"}.get(self.state, "note")

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "channel": self.name,
            "enabled": self.enabled,
            "built": self.name in CHANNELS,
            "state": self.state,
            "why": self.why,
            "well": self.well,
            "last_in": self.last_in,
            "last_out": self.last_out,
            "waiting": self.depth.new + self.depth.cur,
            "sending": (self.daemon.answer or {}).get("sending"),
            "held": self.depth.held + self.inbound.held,
            "uncertain": self.uncertain,
            "silent_s": (self.daemon.answer or {}).get("silent_s"),
            "daemon": self.daemon.told(),
        }


def standing(home: Home, names: Iterable[str], enabled: Iterable[str], daemons: dict[str, Running], *, resting: bool) -> Iterator[Standing]:
    """How the channels `names` stand; those of `enabled` the owner has switched on."""
    on = set(enabled)
    for name in names:
        daemon = daemons.get(f"channel-{name}") or Running(f"channel-{name}")
        inbound, outbound, told = home.inbound(name), home.outbound(name), daemon.answer or {}
        depth = Depth.of(outbound)
        found = Standing(
            name,
            name in on,
            daemon,
            depth,
            Depth.of(inbound),
            told.get("last_in") or came(inbound),
            told.get("last_out") or went(outbound),
            _uncertain(outbound, depth.ids, sending=bool(told.get("sending"))),
        )
        found.faults = [*verdict.of_channel(found, resting=resting), *_held(found)]
        yield found


def used(home: Home) -> list[str]:
    """The channels that have ever served this home: they have a queue for what goes out."""
    return sorted(path.parent.name for path in (home.root / "spool" / "outbound").glob("*/new") if path.parent.name not in _NOT_PLATFORMS)


def switched_on(channels: Channels) -> list[str]:
    """The platforms that the owner has switched on."""
    return [name for name in type(channels).model_fields if isinstance(found := getattr(channels, name), Platform) and found.enabled]


def _held(channel: Standing) -> Iterator[Fault]:
    for way, depth in (("inbound", channel.inbound), ("outbound", channel.depth)):
        if depth.held and channel.wanted:
            yield Fault(f"{depth.held} held in {way}/{channel.name}", f"bubbles queue list --state held {way}/{channel.name} | bubbles scan")


# -- what the disk tells ---------------------------------------------------------------------------


def came(queue: Path) -> float | None:
    """When a message last came into a queue: its directory's own time is the place of the last one (spool/queue.py)."""
    times = _times(queue)
    return _past(queue) if times and max(times.values()) - min(times.values()) > _APART_S else None


def went(queue: Path) -> float | None:
    """When a message last went out of a queue, no later than this: each of the two directories changes with it, and for other reasons too."""
    times = _times(queue)
    return min(_past(queue / "cur"), _past(queue / "done")) if times and times["done"] - min(times.values()) > _APART_S else None


def _times(queue: Path) -> dict[str, float]:
    """When the directories of a queue last changed. They are made at once: one that is younger than another has been used."""
    try:
        return {state: (queue / state).stat().st_mtime for state in STATES}
    except OSError:
        return {}


def _past(path: Path) -> float:
    return min(path.stat().st_mtime, time.time())  # a queue's own time may be ahead of a clock that was put back


def _uncertain(queue: Path, ids: Iterable[str], *, sending: bool) -> int:
    """Of how many of a queue's messages a part may have arrived, and may not. What is `sending` just now is not in doubt yet."""
    receipts = Receipts(queue)
    known = [id for id in ids if os.path.exists(receipts.path / f"{id}.jsonl") and unconfirmed(receipts, id)]
    return sum(1 for id in known if not sending or _doubted(receipts.facts(id)))


def _doubted(facts: list[dict[str, Any]]) -> bool:
    return "begun" not in facts[-1] or any("uncertain" in fact for fact in facts)


def _entries(path: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except OSError:
        return


def _mtime(entry: os.DirEntry[str]) -> float | None:
    try:
        return entry.stat().st_mtime
    except OSError:  # it has moved on
        return None


# -- the program -----------------------------------------------------------------------------------


@verbs("channels", __doc__)
def main() -> None: ...


@main.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a channel.")
@click.argument("name", required=False, metavar="[NAME]")
def status(name: str | None, as_json: bool) -> int:
    """Say how the channels stand."""
    home = Home.find()
    wrong: Misconfigured | None = None
    on: list[str] = []
    try:
        on = switched_on(config.load(home, "channels").channels)
    except Misconfigured as error:
        wrong = error
    ran = look(home, on)
    known = sorted({*on, *used(home), *(daemon.channel for daemon in ran.daemons.values() if daemon.channel)})
    if name is not None and name not in known and name not in _platforms():
        print(f"bubbles: there is no channel {name!r}\n  try: {', '.join(sorted({*known, *_platforms()}))}", file=sys.stderr)
        return 1
    found = list(standing(home, [name] if name is not None else known, on, ran.daemons, resting=verdict.at_rest(ran)))
    _print(found, as_json)
    if wrong is not None:
        raise wrong
    return int(any(not channel.well for channel in found))


def _platforms() -> list[str]:
    return [name for name, info in Channels.model_fields.items() if isinstance(info.get_default(call_default_factory=True), Platform)]


def _print(found: list[Standing], as_json: bool) -> None:
    if as_json:
        for channel in found:
            lines.put(channel.told())
    elif not found:
        print("no channel is on; the terminal is always there: bubbles agent")
    else:
        show([table(found), faults(fault for channel in found for fault in channel.faults)])


def table(found: Iterable[Standing]) -> Block:
    """The channels for a person, all that is known of them."""
    block = Block(heads=("channel", "state", "run by", "in", "out", "waits", "sends", "held", "uncertain"))
    for channel in found:
        told = channel.told()
        by = f"{RUN_BY[channel.daemon.by]}, {channel.daemon.pid}" if channel.daemon.pid is not None else "-"
        numbers = [str(told[key] or "-") for key in ("waiting", "sending", "held", "uncertain")]
        off = "" if channel.wanted else "it is not switched on" if told["built"] else "it is not built yet"
        why = channel.why if channel.well else ""  # what is wrong is told below
        block.add(channel.name, channel.state, by, when(channel.last_in), when(channel.last_out), *numbers, why or off, mark=channel.mark)
    return block


def when(at: float | None) -> str:
    """How long ago that was: `5 min`, or a dash."""
    return ago(time.time() - at) if at is not None else "-"


def faults(found: Iterable[Fault], name: str = "wrong", mark: str = "bad") -> Block:
    """What is wrong for a person, each with what to do."""
    block = Block()
    for fault in found:
        block.add_with_remedy(name, fault.text, fault.remedy, mark=mark)
    return block
