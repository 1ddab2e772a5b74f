"""Run all attacks on one arrangement and print what was seen of each, as JSON; a program of its own, for the user who runs it.

    python -m tests.sandboxes.attacks.assault ROOT ARRANGEMENT [NUMBER…]

ROOT is an empty directory of this user's; ARRANGEMENT one of corpus.ARRANGEMENTS, or "weakened": there each attack meets a jail that lacks
its own `wall`. Where there are NUMBERs, only those attacks are run. This process plays the gateway: what it has in its environment and
memory is what attacks look for. Where no jail can be made it prints why, as {"skip": …}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.daemon import _undumpable as undumpable
from bubbles.errors import BubblesError, Refused
from bubbles.sandboxes import Limits, Outcome, Sandbox
from bubbles.sandboxes.probe import verdict
from tests.sandboxes.attacks.arena import OWN, Arena
from tests.sandboxes.attacks.corpus import NOT_APPLICABLE, Attack, corpus
from tests.sandboxes.processes import alive, tag

_TOLD = 20_000  # bytes of one attack's output that are looked at
# So little that a few hundred megabytes and processes are too much: the attacks on them shall not be felt.
LIMITS = {"memory_bytes": 256 << 20, "processes": 64, "file_bytes": 32 << 20, "tmp_bytes": 16 << 20, "free_bytes": 0}
_SETTLE_S = 0.05  # until what a socket was sent has been read


@dataclass(slots=True)
class Trial:
    """One attack as it went: `word` and `tag` are its own, `output` what it printed, `ran` whether it came to its end."""

    attack: Attack
    word: str
    tag: str
    output: str = ""
    ran: bool = False
    before: dict[str, dict[str, str]] = field(default_factory=dict)


class Scene:
    """What a coroutine of an attack has at hand: the arena, the sandbox, and its own word."""

    def __init__(self, arena: Arena, sandbox: Sandbox, trial: Trial) -> None:
        self.arena, self.sandbox, self.word, self.tag = arena, sandbox, trial.word, trial.tag

    def fill(self, template: str) -> str:
        """`template` with its names in braces replaced."""
        return self.arena.fill(template, {"word": self.word, "tag": self.tag})

    async def run(self, command: str, limits: Limits | None = None, **more: Any) -> Outcome:
        """Run a template as a command of the session, as `exec` would: the guard reads it."""
        return await self.sandbox.run(self.fill(command), limits or Limits(timeout_s=10), **more)

    async def script(self, command: str, limits: Limits | None = None, **more: Any) -> Outcome:
        """The same from a file, where no guard reads it."""
        return await self.sandbox.run(self.prepared(command), limits or Limits(timeout_s=10), **more)

    def prepared(self, command: str) -> str:
        """The command that runs the script made from the template `command`."""
        name = f".{self.word}.sh"
        (Path(self.arena.places["own_work"]) / name).write_text(self.fill(command))
        return f"bash ./{name}"


def opened(arena: Arena, arrangement: str, **settings: Any) -> Sandbox:
    """The real backend of an arrangement for the attacking session; `settings` are further ones of tools.sandbox."""
    name, _, network = arrangement.partition("_") if arrangement.startswith("bwrap") else (arrangement, "", "")
    settings = {"limits": LIMITS, **settings}
    chosen = Settings.model_validate({"backend": name, **settings})
    return sandboxes.open(name, arena.home.session(OWN), arena.home.session_home(OWN), chosen, network=network or "none" if name == "bwrap" else "")


async def assault(arena: Arena, sandbox: Sandbox, attacks: Iterable[Attack]) -> dict[str, Any]:
    """Run `attacks`; what was seen of each by its number, and what has changed in the arena meanwhile."""
    trials = [Trial(attack, f"w{secrets.token_hex(8)}", tag()) for attack in attacks]
    state = arena.state()
    try:
        await _together(arena, sandbox, [trial for trial in trials if trial.attack.is_text and not trial.attack.alone])
        await asyncio.sleep(_SETTLE_S)
        told = {trial.attack.number: _judged(arena, trial) for trial in trials if trial.ran}
        damage = _difference(state, arena.state())
        for trial in (trial for trial in trials if not trial.ran and (trial.attack.alone or not trial.attack.is_text)):
            arena.mend()
            state = arena.state()
            trial.before = {name: arena.state_of(name) for name in trial.attack.seen.names if trial.attack.seen.what == "breaks"}
            await _by_itself(arena, sandbox, trial)
            await asyncio.sleep(_SETTLE_S if trial.attack.seen.what == "connects" else 0)
            told[trial.attack.number] = _judged(arena, trial)
            damage += _difference(state, arena.state())
    finally:
        _end_what_is_left(trials)
        arena.mend()
    return {"told": told | {trial.attack.number: _judged(arena, trial) for trial in trials if trial.attack.number not in told}, "damage": damage}


async def _together(arena: Arena, sandbox: Sandbox, trials: list[Trial]) -> None:
    """All of them in one command, a process each, one after the other."""
    if not trials:
        return
    arena.mend()
    work, edge = Path(arena.places["own_work"]), secrets.token_hex(8)
    place = work / ".attacks"
    place.mkdir()
    lines = [f"cd {work}"]
    for trial in trials:
        path = place / trial.attack.number
        path.write_text(_text(arena, trial))
        program = f"{arena.places['python']} -I -S" if trial.attack.python else "bash"
        lines += [
            f"timeout -s KILL {trial.attack.timeout_s} {program} {path} < /dev/null > {path}.out 2>&1",
            f"printf '\\n{edge} {trial.attack.number}\\n'; head -c {_TOLD} {path}.out | LC_ALL=C tr -c '\\n\\40-\\176' '\\n'",
        ]
    (place / "all").write_text("\n".join([*lines, f"printf '\\n{edge} end\\n'"]))
    seconds = sum(trial.attack.timeout_s for trial in trials)
    outcome = await sandbox.run(f"bash {place}/all 2>/dev/null", Limits(timeout_s=min(seconds, 100), keep_bytes=2 * _TOLD * len(trials)))
    parts = dict(part.split("\n", 1) for part in outcome.output.split(f"\n{edge} ")[1:])
    for trial in trials:
        trial.ran, trial.output = trial.attack.number in parts, parts.get(trial.attack.number, f"did not run; all said: {outcome}")


async def _by_itself(arena: Arena, sandbox: Sandbox, trial: Trial) -> None:
    scene = Scene(arena, sandbox, trial)
    try:
        if isinstance(trial.attack.tries, str):
            (Path(arena.places["own_work"]) / f".{trial.word}").write_text(_text(arena, trial))
            program = f"{arena.places['python']} -I -S" if trial.attack.python else "bash"
            trial.output = (await sandbox.run(f"{program} ./.{trial.word}", Limits(timeout_s=trial.attack.timeout_s))).output
        else:
            trial.output = await trial.attack.tries(scene)
        trial.ran = True
    except BubblesError as error:
        trial.ran, trial.output = True, f"refused: {error.text}"


def _text(arena: Arena, trial: Trial) -> str:
    assert isinstance(trial.attack.tries, str)
    return arena.fill(trial.attack.tries, {"word": trial.word, "tag": trial.tag})


def _judged(arena: Arena, trial: Trial) -> dict[str, Any]:
    """Whether the attack succeeded (`seen`), and the canaries in its output that are not those it was after (`stray`)."""
    wanted = set(trial.attack.seen.names)
    return {
        "ran": trial.ran,
        "seen": trial.ran and _succeeded(arena, trial),
        "stray": sorted(arena.secrets_in(trial.output) - wanted),
        "output": trial.output[-2000:],
    }


def _succeeded(arena: Arena, trial: Trial) -> bool:
    names = trial.attack.seen.names
    match trial.attack.seen.what:
        case "reads":
            return bool(arena.secrets_in(trial.output) & set(names))
        case "writes":
            return any(arena.holds(name, trial.word) for name in names)
        case "breaks":
            return any(arena.state_of(name) != trial.before[name] for name in names)
        case "connects":
            heard = any(trial.word.encode() in said for name in names for said in arena.heard.get(name, ()))
            return heard or bool(arena.secrets_in(trial.output) & set(names))
        case "leaves":
            return bool(alive(trial.tag))
        case "says":
            return trial.word in (line.strip() for line in trial.output.splitlines())
    raise ValueError(trial.attack.seen.what)


def _difference(before: dict[str, str], after: dict[str, str]) -> list[str]:
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return [f"{path}: {before.get(path, 'nothing')} -> {after.get(path, 'nothing')}" for path in changed]


def _end_what_is_left(trials: list[Trial]) -> None:
    tags = [re.escape(trial.tag).encode() for trial in trials]
    pattern = re.compile(b"|".join(tags) or b"(?!)")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if pattern.search((entry / "cmdline").read_bytes()):
                    os.kill(int(entry.name), signal.SIGKILL)


def _applicable(arrangement: str) -> list[Attack]:
    as_root = os.geteuid() == 0
    return [attack for attack in _wanted() if attack.must(arrangement, as_root=as_root) != NOT_APPLICABLE]


def _wanted() -> list[Attack]:
    numbers = sys.argv[3:]
    return [attack for attack in corpus() if not numbers or attack.number in numbers]


async def _all(arena: Arena, arrangement: str) -> dict[str, Any]:
    async with arena.alive():
        if arrangement != "weakened":
            return await assault(arena, opened(arena, arrangement), _applicable(arrangement))
        from tests.sandboxes.attacks.walls import WALLS, weakened

        told: dict[str, Any] = {}
        for wall, attacks in _by_wall(WALLS).items():
            told |= (await assault(arena, weakened(arena, wall), attacks))["told"]
        return {"told": told, "damage": []}


def _by_wall(walls: Iterable[str]) -> dict[str, list[Attack]]:
    found: dict[str, list[Attack]] = {}
    for attack in _wanted():
        if attack.wall in walls:
            found.setdefault(attack.wall, []).append(attack)
    return found


def _why_no_jail(arena: Arena, arrangement: str) -> str:
    """Why bubblewrap makes no such jail here; "" where it does."""
    found = verdict(arena.home, Settings(backend="bwrap"))
    if not found.ok:
        return f"no jail can be made here: {found.why}"
    try:
        sandbox = opened(arena, "bwrap" if arrangement == "weakened" else arrangement)
        asyncio.run(sandbox.run("true", Limits(timeout_s=10)))
    except Refused as error:
        return error.text
    return ""


def main() -> None:
    """Run and print."""
    root, arrangement = Path(sys.argv[1]), sys.argv[2]
    os.umask(0o077)
    undumpable()
    with tempfile.TemporaryDirectory(prefix="ba-", dir="/tmp") as tmp:
        arena = Arena(root, Path(tmp), os.environ["GATEWAY_API_KEY"])
        os.environ.update(arena.environment())
        arena.build()
        why = _why_no_jail(arena, arrangement) if arrangement not in ("local", "local_isolated") else ""
        print(json.dumps({"skip": why} if why else asyncio.run(_all(arena, arrangement))))


if __name__ == "__main__":
    main()
