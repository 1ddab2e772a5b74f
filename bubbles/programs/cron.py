"""Keep jobs: words that come to a session at a time, or again and again.

Without a verb it is the daemon that keeps time. Where that is down, the verbs do their work themselves, and what is
due meanwhile is made up for, once, when it is back. A job is named by its id, or by its name. Without a session it
has one of its own.

Times are those of --tz, else of agents.defaults.timezone, else of this system.

Input:
  add: the message as arguments, or plain text on standard input; remove, enable, disable and run: ids as arguments,
  or on standard input, plain or as the id of a JSON object
Output:
  one JSON object a job: id, name, session, enabled, schedule, when, next, last (what became of its last message),
  why, fired_at, text
Exit codes:
  0   done
  1   a job was not found, or cannot be switched on or run
  64  the call is wrong: no such time, no such interval
  75  the daemon is running already, or the disk is full
  78  cron/jobs.json cannot be read; it is left alone
Examples:
  bubbles cron add --at "2026-12-01 09:00" --session work 'remind me of the review'
  bubbles cron add --at "in 10m" 'is the build done?'
  bubbles cron add --every 30m --name mail --session work 'anything new in the mailbox? If not, say nothing'
  bubbles cron list | jq -r 'select(.last=="failed").id' | bubbles cron run
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bubbles import ids
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.bus.lock import Lock
from bubbles.cron import when
from bubbles.cron.ops import Ops
from bubbles.cron.service import Service
from bubbles.errors import DataError, TryAgain, Unavailable, Usage
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import named, verbs

_PATIENCE_S = 5.0
_LEAST_S = 10  # of an interval that is typed: each beat is a turn of a model
_AS_JSON = click.option("--json", is_flag=True, expose_value=False, help="Print JSON, as is done anyway.")
_IDS = click.argument("names", nargs=-1, metavar="[JOB]...")


@verbs("cron", __doc__)
@click.option("--until-idle", metavar="SECONDS", type=float, help="The daemon: end when nobody has needed it for so long.")
@click.option("--once", is_flag=True, help="The daemon: send what is due now, and end.")
@click.pass_context
def main(context: click.Context, until_idle: float | None, once: bool) -> None:
    if context.invoked_subcommand is None:
        keep_time([*(["--until-idle", f"{until_idle:g}"] if until_idle is not None else []), *(["--once"] if once else [])])
    if until_idle is not None or once:
        raise Usage("--until-idle and --once are the daemon's, which has no verb", remedy="bubbles cron --help")


main.invoke_without_command = True


@main.command("add")
@click.option("--at", metavar="TIME", help='Once: "2026-12-01 09:00", "09:00", "tomorrow 09:00", "in 10m", or with an offset (+01:00).')
@click.option("--every", metavar="INTERVAL", help="Again and again: 30m, 2h, 1h30m, 1d; at least 10s.")
@click.option("--tz", metavar="ZONE", help="The time zone that --at is meant in, such as Europe/Berlin.")
@click.option("-s", "--session", callback=named, help="The session that the message comes to.")
@click.option("--name", default="", help="What the job is called.")
@_AS_JSON
@click.argument("words", nargs=-1, metavar="[TEXT]...")
def add(at: str | None, every: str | None, tz: str | None, session: str | None, name: str, words: tuple[str, ...]) -> None:
    """Add a job."""
    if (at is None) == (every is None):
        raise Usage("a job has one time or one interval", remedy="give --at or --every")
    home = _home()
    zone = _zone(home, tz) if at is not None else tz or ""
    schedule: dict[str, Any] = {"kind": "every", "every_s": _interval(every)} if every is not None else {}
    if at is not None:
        schedule = {"kind": "at", "at": when.moment(at, time.time(), when.zone(zone))}
    if zone:
        when.zone(zone)
        schedule["tz"] = zone
    text = " ".join(words) if words else sys.stdin.buffer.read().decode("utf-8", "replace").strip("\n")
    if not text.strip():
        raise Usage("a job without a message", remedy="bubbles cron add --help")
    lines.put(shown(ask(home, "job.add", {"name": name, "message": text, "schedule": schedule, "session": session or ""})))
    if is_running(home, "cron") is None:
        print("bubbles: the daemon that keeps time is not running; jobs wait until it is\n  try: bubbles gateway", file=sys.stderr)


def _interval(text: str) -> int:
    seconds = when.interval(text)
    if seconds < _LEAST_S:
        raise Usage(f"{text!r} is too often, each time is a turn of a model: the least is {_LEAST_S}s", remedy=f"--every {_LEAST_S}s, or rather 10m")
    return seconds


@main.command("list")
@_AS_JSON
def list_() -> None:
    """List the jobs, those that are over as well."""
    for job in ask(_home(), "job.list", {})["jobs"]:
        lines.put(shown(job))


@main.command("remove")
@_AS_JSON
@_IDS
def remove(names: tuple[str, ...]) -> int:
    """Remove jobs."""
    return _each(names, "job.remove", {})


@main.command("enable")
@_AS_JSON
@_IDS
def enable(names: tuple[str, ...]) -> int:
    """Switch jobs on; each goes on at its next beat."""
    return _each(names, "job.enable", {"enabled": True})


@main.command("disable")
@_AS_JSON
@_IDS
def disable(names: tuple[str, ...]) -> int:
    """Switch jobs off, and keep them."""
    return _each(names, "job.enable", {"enabled": False})


@main.command("run")
@click.option("-f", "--force", is_flag=True, help="Those that are switched off or over, too.")
@_AS_JSON
@_IDS
def run(force: bool, names: tuple[str, ...]) -> int:
    """Run jobs now, besides their times."""
    return _each(names, "job.run", {"force": force})


def _each(names: Iterable[str], op: str, body: dict[str, Any]) -> int:
    home, missed = _home(), 0
    for name in names or lines.ids():
        try:
            lines.put(shown(ask(home, op, {**body, "id": name})))
        except DataError as error:
            missed = 1
            print(f"bubbles: {error.text}\n  try: {error.remedy}", file=sys.stderr)
    return missed


def _home() -> Home:
    home = Home.find()
    home.prepare()
    return home


def _zone(home: Home, tz: str | None) -> str:
    """The time zone's name, "" for the system's. The configuration is read only where it counts: that takes longer than all the rest."""
    if tz is not None or not home.config.exists():
        return tz or ""
    from bubbles import config

    return str(config.load(home, "agents").agents.defaults.timezone)


def shown(job: dict[str, Any]) -> dict[str, Any]:
    """A job as a line, with its times in words."""
    line = {**job, "when": _when(job["schedule"], job["next"])}
    line["text"] = line.pop("message")
    return line


def _when(schedule: dict[str, Any], coming: float | None) -> str:
    """`every 30m, next Tue 2026-12-01 09:00 CET`"""
    rhythm = f"every {when.spelled(schedule['every_s'])}, " if schedule["kind"] == "every" else ""
    if coming is None:
        return f"{rhythm}off" if rhythm else f"over, was {_told(schedule['at'], schedule)}"
    return f"{rhythm}next {_told(coming, schedule)}" if rhythm else _told(coming, schedule)


def _told(at: float, schedule: dict[str, Any]) -> str:
    try:
        return when.told(at, when.zone(schedule.get("tz", "")))
    except Usage:  # made where that zone was known
        return when.told(at, None)


def ask(home: Home, op: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask cron's daemon; where there is none, hold its lock and do it here. Raises what the operation raises, Unavailable if neither can be had."""
    request, deadline = ids.fresh("q"), time.monotonic() + _PATIENCE_S
    while True:
        try:
            if is_running(home, "cron") is not None:
                with Dial(home, "cron") as dial:
                    return dial.call(op, body, id=request)[0]
            with _instead_of_the_daemon(home) as ops:
                return ops.answer(op, body, request)
        except Unavailable:  # it is just starting or ending, or another of us has the lock
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@contextlib.contextmanager
def _instead_of_the_daemon(home: Home) -> Iterator[Ops]:
    """Hold cron's lock meanwhile. Raises Unavailable where somebody else took it first."""
    lock = Lock(home, "cron")
    try:
        lock.acquire()
    except TryAgain as error:
        if is_running(home, "cron") is None:
            raise
        raise Unavailable(error.text, remedy=error.remedy) from error
    try:
        service = Service(home, lambda: _ring(home))
        service.open()
        yield Ops(service)
    finally:
        lock.release()


def _ring(home: Home) -> None:
    with contextlib.suppress(Unavailable), Dial(home, "agentd") as dial:
        dial.ring()


def keep_time(argv: list[str] | None = None) -> None:
    """The program `bubbles-cron`: keep time until told to stop."""
    from bubbles.cron import daemon  # the verbs have no use for an event loop, and are done before it would be loaded

    daemon.main(argv)


if __name__ == "__main__":
    keep_time()
