"""How each channel stands, who may speak on it, and whether its platform lets it in.

`status` says whether each is switched on, runs and is connected, and what waits for it. Those are shown that are switched
on, run, have a unit, or have been used; a NAME shows that one, whatever it is. It changes nothing.

A channel that is switched on, runs, or has a unit that is enabled or failed, is well when its daemon runs and answers,
is connected or about to be (a platform has ten seconds to say so), has heard from its platform within the time that the
platform allows, and nothing is held or has waited for ten minutes. While neither agentd, modeld nor cron runs for good,
a daemon that does not run is none that is missed.

A stranger who writes to the bot in a private chat is told a code. `pair` lets in whose code that is: as the owner where
the channel has none yet, else as a guest, unless you say which. `people` lists those who may speak, `unpair` lets one
of them in no more; those of config.json are changed there. `test` asks the platform who the bot is, through the daemon
where that runs; `login` goes through what a platform wants once, where it wants more than a token.

Input:
  nothing; login: the answers
Output:
  status: a line a channel: its state, who runs its daemon, when a message last came in and went out, how many wait, are
  being sent, are held (for you to decide) and are uncertain (nobody knows whether they arrived). With --json one JSON object
  a channel; people: a line a person, or with --json an object
Exit codes:
  0   all are well, or there is none; done
  1   one of them is not, or there is no channel, code or person of that name
  69  the daemon does not answer
  75  the platform cannot be reached, or the disk is full
  78  the configuration is wrong: standard error says where; the rest is told all the same. The credentials are rejected
Examples:
  bubbles channels status
  bubbles channels pair ABCDEFGH
  bubbles channels people telegram
  bubbles channels status --json | jq -r 'select(.well | not) | .channel + ": " + .why'
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import click

from bubbles import config
from bubbles.channels import CHANNELS, pairing
from bubbles.channels.receipts import Receipts
from bubbles.config.channels import Channels, Platform
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.programs import lines, people, platforms, verdict
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
    if name is not None and not _is_known(name, known):
        return 1
    found = list(standing(home, [name] if name is not None else known, on, ran.daemons, resting=verdict.at_rest(ran)))
    _print(found, as_json)
    if wrong is not None:
        raise wrong
    return int(any(not channel.well for channel in found))


@main.command("pair")
@click.option("--owner/--guest", "owner", default=None, help="As yourself, or as a guest; else as the owner where the channel has none yet.")
@click.argument("code")
def pair(code: str, owner: bool | None) -> int:
    """Let somebody in who was given a code."""
    home = Home.find()
    name = people.asking(home, code)
    person = people.let_in(home, name, code, owner) if name else None
    if person is None:
        print(f"bubbles: nobody has the code {pairing.shown(code)}\n  try: write to the bot again: a code is good once, for an hour", file=sys.stderr)
        return 1
    role = "the owner" if person["owner"] else "a guest"
    print(f"{_who(person)} may speak on {name} from now on, as {role}")
    print(f"not so? bubbles channels unpair {name} {shlex.quote(person['id'])}")
    return 0


@main.command("people")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a person.")
@click.argument("name", required=False, metavar="[NAME]")
def who_may_speak(name: str | None, as_json: bool) -> int:
    """Say who may speak."""
    home = Home.find()
    known = sorted({*switched_on(config.load(home, "channels").channels), *pairing.channels(home)})
    if name is not None and not _is_known(name, known):
        return 1
    found = list(people.listed(home, [name] if name is not None else known))
    if as_json:
        for person in found:
            lines.put(person)
    elif not found:
        print("nobody yet; write to the bot in a private chat, and it tells you a code")
    else:
        block = Block(heads=("channel", "id", "name", "may speak as", "by", "for"))
        for person in found:
            role = "owner" if person["owner"] else "guest"
            id = "everybody" if person["id"] == "*" else person["id"]
            block.add(person["channel"], pairing.shown(id), pairing.shown(person["name"]) or "-", role, person["by"], when(person["at"]))
        show([block])
    return 0


@main.command("unpair")
@click.argument("name", metavar="CHANNEL")
@click.argument("id")
def unpair(name: str, id: str) -> int:
    """Let somebody in no more."""
    home = Home.find()
    person = people.put_out(home, name, id) if name in pairing.channels(home) else None
    own = people.rules(home, name)
    if person is None:
        print(f"bubbles: nobody of that id was let in by a code\n  try: bubbles channels people {pairing.shown(name)}", file=sys.stderr)
    else:
        print(f"{_who(person)} may not speak on {name} any more")
    if id in own.owners | own.guests:
        print(f"bubbles: {home.config} names that id, too\n  try: take it out of channels.{name}, and restart its daemon", file=sys.stderr)
        return 1
    return 0 if person is not None else 1


@main.command("test")
@click.argument("name")
def test(name: str) -> int:
    """Ask the platform who the bot is there."""
    print(f"{name}: connected, as {pairing.shown(platforms.who(Home.find(), name)) or 'nobody that the platform names'}")
    return 0


@main.command("login")
@click.argument("name")
def login(name: str) -> int:
    """Go through what a platform wants once."""
    platforms.login(Home.find(), name)
    return 0


def _who(person: dict[str, Any]) -> str:
    return f"{pairing.shown(person['name'])} (id {pairing.shown(person['id'])})" if person["name"] else f"id {pairing.shown(person['id'])}"


def _is_known(name: str, known: list[str]) -> bool:
    """Whether there is a channel of that name. Says so where there is none."""
    if name in known or name in _platforms():
        return True
    print(f"bubbles: there is no channel {name!r}\n  try: {', '.join(sorted({*known, *_platforms()}))}", file=sys.stderr)
    return False


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
