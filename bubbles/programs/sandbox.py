"""Look at where commands run: which sandboxes work here, what one session's shows, and look around inside.

There are three: bwrap puts each command into a jail of its own, local_isolated gives each session a HOME of its own, and
local shares your environment. The last two hide no file from a command. tools.sandbox.backend says which one sessions
have, /config sandbox which one this session has.

probe makes one real jail by each bubblewrap that there is, as commands get it, and tries it from inside. describe says of
one session's sandbox what a command sees, may write, reaches and may take; it needs no daemon. shell puts you into the
jail of a session, at its work/, as a command would be in it: -- and a command run that alone. What you write in work/ and
in HOME there stays. You are in your own hands then: there is no time-out, no limit of output, no look at memory, processes
or the disk, and the log has none of the hosts you reach. What the jail shows and the network that it has are the same.

Input:
  config.json, and the session's own; shell: what you type
Output:
  lines for people, or with --json one JSON object; list --json: one a line for each sandbox
Exit codes:
  0    probe: jails hold here; else done; shell: the code of what ran there
  1    probe: no jail holds here, and why; describe and shell: there is no such session
  78   shell: the session has no jail, or none can be made; the configuration is wrong
Examples:
  bubbles sandbox probe
  bubbles sandbox probe --json | jq -r '.tried[] | .binary, .why'
  bubbles sandbox describe -s work
  bubbles sandbox shell -s work
  bubbles sandbox shell -s work --network none -- git status
  bubbles sandbox list
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from bubbles import config, sandboxes
from bubbles.errors import NO, OK, Misconfigured, ToolError
from bubbles.paths import Home
from bubbles.programs import lines
from bubbles.programs.page import named, verbs
from bubbles.programs.screen import TRY, Block, show

_SESSION = click.option("-s", "--session", required=True, metavar="NAME", callback=named, help="Whose sandbox.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@verbs("sandbox", __doc__)
def main() -> None: ...


@main.command("probe")
@_JSON
def probe_verb(as_json: bool) -> int:
    """Make a real jail by each bubblewrap here, and try it from inside."""
    from bubbles.programs.sandboxing import trials
    from bubbles.sandboxes import probe

    home = _prepared()
    settings = config.load(home, "tools").tools.sandbox
    tried = probe.every(home, settings)
    found = probe.summed(tried)
    if as_json:
        lines.put(trials.told(tried, found))
    else:
        show(list(trials.blocks(tried, found)))
    return OK if found.ok else NO


@main.command("list")
@_JSON
def list_verb(as_json: bool) -> None:
    """Which sandboxes there are, what each promises, whether it works here, and which session has which."""
    home = _prepared()
    settings = config.load(home, "tools").tools.sandbox
    of = _sessions(home)
    rows = [_standing(home, settings, name) | {"sessions": sorted(key for key, has in of.items() if has == name)} for name in sandboxes.REGISTRY]
    if as_json:
        for row in rows:
            lines.put(row)
        return
    block = Block(heads=("sandbox", "works", "promise"))
    for row in rows:
        name = f"{row['backend']} (yours)" if row["default"] else row["backend"]
        block.add(name, "yes" if row["works"] else "no", row["promise"], mark="ok" if row["works"] else "bad" if row["default"] else "off")
        if row["why"]:
            block.add("", "", row["why"])
            block.add("", "", f"{TRY}{row['remedy']}")
    show([block, _of_sessions(of)])


def _sessions(home: Home) -> dict[str, str]:
    """The sessions and what each has; "" for one whose settings cannot be used."""
    from bubbles.agentd.overrides import Overrides

    settings = config.load(home, "agents", "tools")
    found = {}
    for key in sorted(path.name for path in home.sessions.glob("*") if path.is_dir()):
        try:
            found[key] = Overrides(home, key, settings).effective().sandbox
        except Misconfigured:
            found[key] = ""
    return found


def _of_sessions(of: dict[str, str]) -> Block:
    block = Block(heads=("session", "sandbox"))
    for key, has in of.items():
        block.add(key, has or "its settings cannot be used", mark="" if has else "bad")
    return block


def _standing(home: Home, settings: Any, name: str) -> dict[str, Any]:
    """One of them, as JSON."""
    from bubbles.sandboxes import probe

    verdict = probe.verdict(home, settings, fresh=True) if name == "bwrap" else probe.Verdict(True)
    module, _, attribute = sandboxes.REGISTRY[name].partition(":")
    promise = getattr(import_module(module), attribute).promise
    default = settings.backend == name
    return {"backend": name, "default": default, "works": verdict.ok, "promise": promise, "why": verdict.why, "remedy": verdict.remedy}


@main.command("describe")
@_SESSION
@_JSON
def describe_verb(session: str, as_json: bool) -> int:
    """What a command of a session sees, may write, reaches and may take."""
    from bubbles.programs.sandboxing import words
    from bubbles.programs.sandboxing.inside import Inside, NoSession, told
    from bubbles.sandboxes import probe

    home = Home.find()
    try:
        inside = Inside.of(home, session, "describe")
        described = words.described(inside)
    except NoSession as error:
        return _missing(error)
    except ToolError as error:
        raise told(error) from error
    verdict = ""
    if inside.backend == "bwrap":
        found = probe.verdict(home, inside.tools.sandbox)
        described |= {"holds": found.ok, "binary": found.binary, "why": found.why, "remedy": found.remedy}
        verdict = f"holds, by {found.binary} {found.version}" if found.ok else f"commands are refused: {found.why}; try: {found.remedy}"
    if as_json:
        lines.put(described)
    else:
        show(list(words.blocks(described, verdict)))
    return OK


@main.command("shell")
@_SESSION
@click.option("--network", type=click.Choice(sandboxes.NETWORKS), help="What it may reach; else what the session has.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]")
def shell_verb(session: str, network: str | None, command: tuple[str, ...]) -> int:
    """Look around inside the jail of a session."""
    from bubbles.programs.sandboxing import visit
    from bubbles.programs.sandboxing.inside import Inside, NoSession, told

    home = Home.find()
    try:
        return visit.visit(Inside.of(home, session, "shell"), network or "", command)
    except NoSession as error:
        return _missing(error)
    except ToolError as error:
        raise told(error) from error


def _prepared() -> Home:
    home = Home.find()
    home.prepare()
    return home


def _missing(error: Any) -> int:
    print(f"bubbles: {error}\n  try: {error.remedy}", file=sys.stderr)
    return NO
