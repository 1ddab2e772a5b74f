"""Bubbles as units of a booted systemd: the start of its target, the return of agentd, and what running and not used costs with the watchdog fed.

    python bench/units.py [--seconds 30]

The machine is that of tests/systemd, and needs root. Times are taken inside it, each round beside a `python -c pass` that ran there. An ask meets
agentd's end in two ways: it begins at that moment, and what the model spends is taken off; or it waits for the model by then, and counts
by how much its answer is later than that of an ask that nothing disturbs.
"""

from __future__ import annotations

import compileall
import json
import sys
from pathlib import Path
from typing import Any

import chain
from in_machine import UNDER_WAY_S
from row import Row, main, median

sys.path.insert(0, str(chain.ROOT))
from tests.systemd.machine import Impossible, Person, boot  # noqa: E402  # found only once the path above is set

ROUNDS = 9
_MODEL_MS = 1000.0  # an answer takes so long that an ask can be found waiting for it
_INSIDE = Path(__file__).with_name("in_machine.py")
_UNITS = ("modeld", "agentd", "cron")


def measure() -> list[Row]:
    compileall.compile_dir(chain.ROOT / "bubbles", quiet=1)  # an installation has it done, and a person cannot do it to a checkout of root's
    try:
        with boot() as machine, chain.model(_MODEL_MS) as url:
            person = machine.person()
            _install(person, url)
            return [_target(_told(person, "target")), *_restarts(_told(person, "restart")), *_idle(person)]
    except Impossible as why:
        return [Row("units", float("nan"), "", beside=f"not measured: {why}")]


def _install(person: Person, url: str) -> None:
    settings = {"version": 1, "providers": {"custom": {"base_url": url}}, "agents": {"defaults": {"model": "custom/bench"}}}
    person.write(".bubbles/config.json", json.dumps(settings))
    person.run(["chmod", "-R", "go=", ".bubbles"])
    person.run(["bubbles", "units", "install"])


def _told(person: Person, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(person.run([sys.executable, _INSIDE, what, str(ROUNDS)], timeout_s=600).stdout)
    return found


def _target(rounds: list[dict[str, Any]]) -> Row:
    times = {name: [told["units"][f"bubbles-{name}.service"] for told in rounds] for name in _UNITS}
    parts = [f"{name} {median([t['run'] for t in of]):.0f} run, {median([t['ready'] for t in of]):.0f} ready" for name, of in times.items()]
    return Row("target, to all ready", median([told["took"] for told in rounds]), "ms", beside=f"{_times_pass(rounds, 'took')}; {'; '.join(parts)}")


def _restarts(rounds: list[dict[str, Any]]) -> list[Row]:
    rows = []
    for how, title in {"restart": "agentd restarted", "kill": "agentd killed"}.items():
        new = median([told[f"{how}, new"] for told in rounds]) - _MODEL_MS
        later = median([told[f"{how}, waiting"] + UNDER_WAY_S * 1000 - told["ask"] for told in rounds])
        alone = f"its unit is ready after {median([told[f'{how}, back'] for told in rounds]):.0f} ms"
        undisturbed = f"undisturbed {median([told['ask'] for told in rounds]) - _MODEL_MS:.0f} ms"
        rows.append(Row(f"{title}, to the answer of a new ask", new, "ms", 600, 1000, beside=f"{alone}; {undisturbed}"))
        rows.append(Row(f"{title}, a waiting ask is later by", max(0.0, later), "ms", 600, 1000))
    return rows


def _idle(person: Person) -> list[Row]:
    seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 30.0
    pids = {name: person.unit(f"bubbles-{name}.service")["MainPID"] for name in _UNITS}
    pids["manager"] = person.machine.run(["systemctl", "show", "--value", "-p", "MainPID", f"user@{person.uid}.service"]).stdout.strip()
    words = [f"{name}={pid}" for name, pid in pids.items()]
    told = json.loads(person.machine.run([sys.executable, _INSIDE, "idle", f"{seconds:g}", *words], timeout_s=seconds + 60).stdout)
    parts = {what: " + ".join(f"{name} {told[name][what]:.2f}" for name in _UNITS) for what in ("pss", "wakes")}
    sums = {what: sum(told[name][what] for name in _UNITS) for what in ("pss", "wakes", "cpu")}
    manager = f"the user's manager {told['manager']['wakes']:.2f} /s, {told['manager']['cpu']:.1f} ms"
    watchdog = person.unit("bubbles-agentd.service")["WatchdogUSec"]
    return [
        Row("idle memory (PSS), units", sums["pss"] * 2**20 / 1e6, "MB", 65, 90, beside=f"MiB: {parts['pss']}", peer="idle memory"),
        Row(
            "idle wake-ups, units", sums["wakes"], "/s", 0.3, 1,
            beside=f"{parts['wakes']}; CPU {sums['cpu']:.1f} ms in {seconds:g} s; watchdog {watchdog}; {manager}", peer="idle wakes",
        ),
    ]  # fmt: skip


def _times_pass(rounds: list[dict[str, Any]], what: str) -> str:
    return f"{median([told[what] / told['bare'] for told in rounds]):.0f} x pass in there"


if __name__ == "__main__":
    main(measure)
