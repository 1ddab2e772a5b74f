"""Say what is configured, and what is running.

It tells of the installation: the default model, the providers that are set up, the channels that are on, the
daemons. A session is named only where it differs: settings of its own, or a job. It changes nothing.

Input:
  nothing
Output:
  lines for people, or with --json one JSON object
Exit codes:
  0   told
  78  the configuration is wrong: standard error says where; the rest is told all the same
Examples:
  bubbles status
  bubbles status --json | jq -r '.daemons | to_entries[] | select(.value == null).key'
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from bubbles import __version__, config
from bubbles.bus import is_running
from bubbles.bus.dial import Dial
from bubbles.errors import BubblesError, DataError, Misconfigured
from bubbles.kernel.clip import clean
from bubbles.messages import from_line
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import program
from bubbles.programs.queue import queues
from bubbles.providers import REGISTRY
from bubbles.providers.route import is_set_up, route

DAEMONS = ("agentd", "modeld", "cron")


@program("status", __doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(as_json: bool) -> None:
    home = Home.find()
    found: dict[str, Any] = {"version": __version__, "home": str(home.root)}
    wrong: Misconfigured | None = None
    try:
        found |= configured(home)
    except Misconfigured as error:
        wrong = error
    found |= running(home) | {"sessions": list(differing(home))}
    if as_json:
        lines.put(found)
    else:
        print("\n".join(f"{name:<10} {clean(text)}".rstrip() for name, text in told(found)))
    if wrong is not None:
        raise wrong


def configured(home: Home) -> dict[str, Any]:
    """What the owner's file says. Raises Misconfigured."""
    settings = config.load(home)  # all of it: a fault in any section stops some daemon
    try:
        default: dict[str, Any] = dict(zip(("provider", "model", "why"), _route(settings), strict=True))
    except Misconfigured as error:
        default = {"provider": "", "model": "", "why": f"{error.text}; {error.remedy}"}
    platforms = {name: getattr(settings.channels, name) for name in type(settings.channels).model_fields}
    return {
        **default,
        "providers": [name for name, entry in REGISTRY.items() if is_set_up(entry, settings)],
        "channels": [name for name, platform in platforms.items() if getattr(platform, "enabled", False)],
        "sandbox": settings.tools.sandbox.backend,
        "warnings": list(settings.warnings),
    }


def _route(settings: config.Settings) -> tuple[str, str, str]:
    found = route(settings)
    return found.provider, found.model, found.why


def running(home: Home) -> dict[str, Any]:
    """What runs, and what waits for a person."""
    daemons = {name: is_running(home, name) for name in DAEMONS}
    held = sum(1 for _, queue in queues(home, "") for _ in queue.list("held"))
    found: dict[str, Any] = {"daemons": daemons, "open_turns": 0, "troubles": [], "held_messages": held}
    found["held_turns"] = sorted(path.stem for path in (home.turns / "held").glob("*.jsonl"))
    if daemons["agentd"]:
        try:
            with Dial(home, "agentd") as dial:
                answer = dial.call("status", timeout_s=2)[0]
            broken = [f"the session {key} cannot be used: {why}" for key, why in answer.get("broken", {}).items()]
            found |= {"open_turns": answer["open"], "troubles": [*broken, *answer.get("troubles", [])]}
        except BubblesError as error:
            found["troubles"] = [f"agentd runs and does not answer: {error.text}"]
    return found


def differing(home: Home) -> Iterator[dict[str, Any]]:
    """The sessions with settings of their own, or with jobs."""
    jobs = _jobs(home)
    for directory in sorted(home.sessions.glob("*")):
        own = _object(directory / "config.json")
        own.pop("version", None)
        if own or directory.name in jobs:
            yield {"session": directory.name, "settings": own, "jobs": jobs.get(directory.name, [])}


def _jobs(home: Home) -> dict[str, list[str]]:
    """The names of jobs by their session."""
    found: dict[str, list[str]] = {}
    jobs = _object(home.jobs).get("jobs", [])
    for job in jobs if isinstance(jobs, list) else list(jobs.values()):
        if isinstance(job, dict) and job.get("session"):
            found.setdefault(str(job["session"]), []).append(str(job.get("name") or job.get("id")))
    return found


def _object(path: Any) -> dict[str, Any]:
    """A file's JSON object; nothing where it cannot be read: its own program says so."""
    try:
        return from_line(path.read_bytes())
    except (OSError, DataError):
        return {}


def told(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The lines for people: a name and a text each."""
    yield "bubbles", f"{found['version']}, home {found['home']}"
    if "model" in found:
        yield "model", f"{found['model'] or 'its only one'} by {found['provider']}: {found['why']}" if found["provider"] else found["why"]
        yield "providers", ", ".join(found["providers"]) or "none is set up; bubbles onboard"
        yield "channels", ", ".join(found["channels"]) or "none is on"
        yield "sandbox", found["sandbox"]
    yield "daemons", ", ".join(f"{name} {f'runs (pid {pid})' if pid is not None else 'is down'}" for name, pid in found["daemons"].items())
    if found["open_turns"]:
        yield "turns", f"{found['open_turns']} running"
    if found["held_turns"]:
        yield "given up", f"turns: {', '.join(found['held_turns'])}; bubbles queue list turns | bubbles scan"
    if found["held_messages"]:
        yield "held", f"{found['held_messages']} messages; bubbles queue list | bubbles scan"
    for each in found["sessions"]:
        own = [f"{key} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}" for key, value in each["settings"].items()]
        yield "session", f"{each['session']}: {', '.join([*own, *(f'job {name}' for name in each['jobs'])])}"
    for text in [*found.get("warnings", []), *found["troubles"]]:
        yield "warning", text
