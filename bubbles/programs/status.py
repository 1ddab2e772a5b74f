"""Say what is configured, what runs, and whether something is wrong.

It tells of the installation: the default model and why it is that one, the providers that are set up, the daemons and
who runs them, the channels that are on, what waits in the queues. A session is named only where it differs: settings of
its own, or a job. It changes nothing, and waits for no daemon longer than two seconds.

Wrong is:
  a unit that failed, or restarted three times and the last time within a minute; a daemon that does not answer;
  while agentd, modeld or cron runs for good (by a unit, a gateway or by hand): another of the three that does not
  a channel that is switched on and does not run (while the others do), is not connected, is silent for longer than its
  platform ever is, or has messages that have waited for ten minutes
  a service manager that does not answer; a message or a turn that is held for you
  a session whose settings cannot be used, jobs that cannot be read, and what else agentd is troubled by
  the sandbox bwrap, where no jail can be made: every command is refused then
  a disk with less than 200 MiB of room for the home

Worth knowing and not wrong: daemons that have not seen the last change of config.json, or are of another version; jobs
whose last turn failed; a budget that is used up; settings that do nothing. A home in which nothing was started, or has
been stopped, is well.

Input:
  nothing
Output:
  lines for people, or with --json one JSON object; wrong and notes in it hold what is told above, each with a remedy
Exit codes:
  0   nothing is wrong
  1   something is
  78  the configuration is wrong: standard error says where; the rest is told all the same
Examples:
  bubbles status
  bubbles status --json | jq -r '.wrong[] | .text, "  " + .remedy'
  bubbles status > /dev/null || bubbles send telegram:42 "look at the machine"
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bubbles import __version__, config, regular
from bubbles.errors import DataError, Misconfigured
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.programs import lines, today, verdict
from bubbles.programs.channels import Depth, Standing, faults, standing, switched_on, used, when
from bubbles.programs.page import program
from bubbles.programs.queue import queues
from bubbles.programs.running import CORE, RUN_BY, Ran, Running, look
from bubbles.programs.screen import Block, show
from bubbles.programs.verdict import Fault
from bubbles.providers import REGISTRY
from bubbles.providers.route import is_set_up, route
from bubbles.sandboxes import probe
from bubbles.sandboxes.probe import Verdict
from bubbles.sessions.folder import Folder

LEAST_FREE = 200 << 20  # bytes
_NAMED = 5  # of many things of one kind


@program("status", __doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(as_json: bool) -> int:
    home = Home.find()
    found: dict[str, Any] = {"version": __version__, "home": str(home.root)}
    wrong: Misconfigured | None = None
    settings: config.Settings | None = None
    on: list[str] = []
    try:
        settings = config.load(home)  # all of it: a fault in any section stops some daemon
        on = switched_on(settings.channels)
        found |= configured(settings)
    except Misconfigured as error:
        wrong = error
    ran = look(home, on)
    channels = list(standing(home, _channels(home, on, ran), on, ran.daemons, resting=verdict.at_rest(ran)))
    seen = _Seen(home, settings, ran, channels)
    found |= seen.told()
    found |= {"today": today.spent(home, settings.agents)} if settings is not None else {}
    found["notes"] = [fault.told() for fault in (*seen.notes(found.pop("warnings", [])), *today.used_up(found.get("today")))]
    if as_json:
        lines.put(found)
    else:
        show([*_baseline(found), _daemons(ran), _of_channels(seen.channels), *_rest(found)])
    if wrong is not None:
        raise wrong
    return int(bool(found["wrong"]))


def configured(settings: config.Settings) -> dict[str, Any]:
    """What the owner's file says."""
    try:
        default: dict[str, Any] = dict(zip(("provider", "model", "why"), _route(settings), strict=True))
    except Misconfigured as error:
        default = {"provider": "", "model": "", "why": f"{error.text}; {error.remedy}"}
    return {
        **default,
        "providers": [name for name, entry in REGISTRY.items() if is_set_up(entry, settings)],
        "sandbox": settings.tools.sandbox.backend,
        "warnings": list(settings.warnings),
    }


def _route(settings: config.Settings) -> tuple[str, str, str]:
    found = route(settings)
    return found.provider, found.model, found.why


def _channels(home: Home, on: Iterable[str], ran: Ran) -> list[str]:
    """Those worth a line: switched on, running or with a unit that wants them; one that was used before only where something waits in it."""
    waits = [name for name in used(home) if Depth.of(home.outbound(name)).ids]
    return sorted({*on, *waits, *(daemon.channel for daemon in ran.daemons.values() if daemon.channel and _is_there(daemon))})


def _is_there(daemon: Running) -> bool:
    return daemon.pid is not None or (daemon.unit is not None and (daemon.unit.enabled.startswith("enabled") or daemon.unit.active != "inactive"))


class _Seen:
    """What was seen of a home: its daemons, channels, queues, sessions and jobs. `settings`: None where the configuration is wrong."""

    def __init__(self, home: Home, settings: config.Settings | None, ran: Ran, channels: list[Standing]) -> None:
        self.home, self.settings, self.ran, self.channels = home, settings, ran, channels
        self.queues = {name: Depth.of(queue.path) for name, queue in queues(home, "")}
        self.held_turns = sorted(path.stem for path in (home.turns / "held").glob("*.jsonl"))
        self.agentd = ran.daemons["agentd"].answer or {}
        self.free = _free(home)
        self.jobs, self.bad_jobs = _jobs(home)
        self.sessions, self.bad_sessions = _sessions(home, settings, self.jobs)
        self.jail = _jail(home, settings)

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "daemons": {name: self.ran.daemons[name].told() for name in CORE},
            "channels": [channel.told() for channel in self.channels],
            "queues": {name: depth.told() for name, depth in self.queues.items()},
            "open_turns": self.agentd.get("open", 0),
            "held_messages": sum(depth.held for depth in self.queues.values()),
            "held_turns": self.held_turns,
            "free_bytes": self.free,
            "sessions": self.sessions,
            "jail": {key: getattr(self.jail, key) for key in ("ok", "binary", "version", "why", "remedy")} if self.jail else None,
            "wrong": [fault.told() for fault in dict.fromkeys(self._wrong())],
        }

    def _wrong(self) -> Iterator[Fault]:
        yield from verdict.of_manager(self.ran)
        yield from verdict.of_daemons(self.ran)
        for channel in self.channels:
            yield from channel.faults
        for name, depth in self.queues.items():
            if depth.held:
                yield Fault(f"{depth.held} held in {name}", _held_remedy(name))
        if self.held_turns:
            yield Fault(f"turns were given up: {_some(self.held_turns)}", "bubbles queue list turns | bubbles scan")
        if self.jail is not None and not self.jail.ok:
            yield Fault(f"every command is refused, because no jail can be made: {self.jail.why}", self.jail.remedy)
        yield from self._unusable()
        for text in self.agentd.get("troubles", []):
            yield Fault(text, "bubbles audit --since 1h --priority warning")
        if self.free is not None and self.free < LEAST_FREE:
            yield Fault(f"the disk has {self.free >> 20} MiB left for {self.home.root}", f"bubbles tidy; df -h {self.home.root}")

    def _unusable(self) -> Iterator[Fault]:
        """Sessions and jobs, as their files say; what else is wrong with a session agentd alone knows."""
        if self.bad_jobs:
            yield Fault(f"the jobs cannot be used: {self.bad_jobs}", f"mend or move away: {shlex.quote(str(self.home.jobs))}")
        broken = {**self.agentd.get("broken", {}), **self.bad_sessions}
        for key, why in list(broken.items())[:_NAMED]:
            yield Fault(f"the session {key} cannot be used: {why}", f"mend or move away: {shlex.quote(str(self.home.session(key) / 'config.json'))}")
        if len(broken) > _NAMED:
            yield Fault(f"{len(broken) - _NAMED} more sessions cannot be used: {_some(list(broken)[_NAMED:])}", "bubbles doctor")

    def notes(self, warnings: Iterable[str]) -> Iterator[Fault]:
        """What is worth knowing."""
        if self.settings is not None:  # a restart with a file that does not load would take down what works
            yield from verdict.changed(self.ran)
        yield from verdict.other_versions(self.ran, __version__)
        failed = [job for job in self.jobs if job.get("last") in ("failed", "limit")]
        for job in failed[:_NAMED]:
            why = job.get("why") or job["last"]
            yield Fault(f"the last turn of the job {_name(job)} came to nothing: {why}", "bubbles cron list | bubbles scan")
        if failed[_NAMED:]:
            yield Fault(f"the last turns of {len(failed) - _NAMED} more jobs came to nothing", "bubbles cron list | bubbles scan")
        if self.ran.unseen:
            yield Fault(f"the units cannot be seen: {self.ran.unseen}")
        for text in warnings:
            yield Fault(text)


def _free(home: Home) -> int | None:
    """The bytes that are left for the home; None where it is not there."""
    try:
        return shutil.disk_usage(home.root).free
    except OSError:
        return None


def _some(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _sessions(home: Home, settings: config.Settings | None, all_jobs: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The sessions with settings of their own, or with jobs; and those whose settings cannot be used, with the reason."""
    jobs: dict[str, list[str]] = {}
    for job in all_jobs:
        if job.get("session"):
            jobs.setdefault(str(job["session"]), []).append(_name(job))
    found, broken = [], {}
    for directory in sorted(path for path in home.sessions.glob("*") if path.is_dir()):
        own: dict[str, Any] = {}
        try:
            own = _own(Folder(directory.name, directory), settings)
        except Misconfigured as error:
            broken[directory.name] = error.text
        own.pop("version", None)
        if own or directory.name in jobs:
            found.append({"session": directory.name, "settings": own, "jobs": jobs.get(directory.name, [])})
    return found, broken


def _own(session: Folder, settings: config.Settings | None) -> dict[str, Any]:
    """What a session's file says. Raises Misconfigured where agentd could not use it."""
    found = config.session_file(session.overrides(), where := str(session.config))
    if settings is not None:
        config.session_settings(settings, found, where)
    return found


def _jobs(home: Home) -> tuple[list[dict[str, Any]], str]:
    """The jobs, and why there are none to be seen."""
    try:
        jobs = from_line(regular.read(home.jobs)).get("jobs")
    except FileNotFoundError:
        return [], ""
    except (OSError, DataError) as error:
        return [], f"{home.jobs}: {error.text if isinstance(error, DataError) else error.strerror}"
    if not isinstance(jobs, list):
        return [], f"{home.jobs}: 'jobs' is not a list"
    return [job for job in jobs if isinstance(job, dict)], ""


def _jail(home: Home, settings: config.Settings | None) -> Verdict | None:
    """Whether jails hold, where commands are to have them; it is known from before, or tried."""
    wanted = settings is not None and settings.tools.sandbox.backend == "bwrap" and home.run.is_dir()
    return probe.verdict(home, settings.tools.sandbox) if settings is not None and wanted else None


def _held_remedy(queue: str) -> str:
    return f"bubbles queue list --state held {queue} | bubbles scan; then: bubbles queue release {queue} ID, or drop"


def _name(job: dict[str, Any]) -> str:
    return str(job.get("name") or job.get("id"))


# -- for people ------------------------------------------------------------------------------------


def _baseline(found: dict[str, Any]) -> Iterator[Block]:
    block = Block()
    block.add("bubbles", f"{found['version']}, home {found['home']}")
    if "model" in found:
        named = f"{found['model'] or 'its only one'} by {found['provider']}: {found['why']}"
        block.add("model", named if found["provider"] else found["why"])
        block.add("providers", ", ".join(found["providers"]) or "none is set up; bubbles onboard")
        block.add("sandbox", _sandbox(found))
    if words := today.words(found.get("today")):
        block.add("today", words)
    if found["free_bytes"] is not None and found["free_bytes"] < LEAST_FREE:
        block.add("disk", f"{found['free_bytes'] >> 20} MiB left")
    yield block


def _sandbox(found: dict[str, Any]) -> str:
    jail = found["jail"]
    if jail is None:
        return str(found["sandbox"])
    return f"{found['sandbox']}, tried with {jail['binary']} {jail['version']}" if jail["ok"] else f"{found['sandbox']}, which does not hold here"


def _daemons(ran: Ran) -> Block:
    block = Block()
    for daemon in (ran.daemons[name] for name in CORE):
        block.add(daemon.name, daemon.state, *_how(daemon), mark=_mark(daemon, ran))
    return block


def _mark(daemon: Running, ran: Ran) -> str:
    if daemon.state in ("failed", "restarting") or (daemon.state == "up" and daemon.silent):
        return "bad"
    if daemon.state == "down":
        return "off" if verdict.at_rest(ran) else "bad"
    return "ok" if daemon.state == "up" else "note"


def _how(daemon: Running) -> Iterator[str]:
    """Since when, by whom, and its own word, a column each; nothing where there is nothing to say."""
    unit = daemon.unit
    if daemon.pid is None and unit is None:
        return
    yield when(daemon.since if daemon.pid is not None or unit is None else unit.since or None)
    more = [f"pid {daemon.pid}"] if daemon.pid is not None else []
    more += [f"{unit.restarts} restarts"] if unit is not None and unit.restarts else []
    yield ", ".join([RUN_BY.get(daemon.by, "systemd"), *more])
    own = unit.status if unit is not None and daemon.by == "unit" else ""
    yield daemon.silent or own or str((daemon.answer or {}).get("text", ""))


def _of_channels(channels: list[Standing]) -> Block:
    block = Block()
    for channel in channels:
        told = channel.told()
        events = [f"{way} {when(at)} ago" for way, at in (("in", channel.last_in), ("out", channel.last_out)) if at is not None]
        counts = [f"{told[key]} {key}" for key in ("waiting", "sending", "held", "uncertain") if told[key]]
        block.add(channel.name, channel.state, ", ".join(events) or "no message yet", ", ".join(counts), channel.why, mark=channel.mark)
    if not channels:
        block.add("channels", "none is on")
    return block


def _rest(found: dict[str, Any]) -> Iterator[Block]:
    block = Block()
    for name, depth in found["queues"].items():
        if any(depth.values()):
            block.add(name, ", ".join(f"{count} {state}" for state, count in depth.items() if count))
    if found["open_turns"]:
        block.add("turns", f"{found['open_turns']} running")
    yield block
    block = Block()
    for each in found["sessions"]:
        own = [f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for key, value in each["settings"].items()]
        block.add("session", f"{each['session']}: {', '.join([*own, *(f'job {name}' for name in each['jobs'])])}")
    yield block
    yield faults((Fault(**note) for note in found["notes"]), "note", "note")
    yield faults(Fault(**fault) for fault in found["wrong"])
