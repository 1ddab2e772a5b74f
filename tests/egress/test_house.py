"""The promise of SECURITY.md §3, kept by the whole installation: nothing leaves but to the model that is configured, and nobody listens.

Each test plays scenes of tests/egress/house.py in a network of their own, where strace writes down every call of every process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.disasters.soak import SOAK
from tests.egress.house import NAME, PLACES, REACHED, inside
from tests.egress.judge import Scene, breaches, summary
from tests.providers.test_embedded import model_file

_ROOT = Path(__file__).resolve().parents[2]
IDLE_S = 3600 if SOAK else 15
TICK_S = 60 if SOAK else 2  # in the soak as in the product
DAEMONS = {"agentd", "modeld", "cron", "channel-test"}


@dataclass
class Played:
    """What a house has left: its scenes by name, whom its watch has seen untraced, and which ports others than the fakes had open."""

    scenes: dict[str, Scene]
    looks: int
    untraced: list[Any]
    ports: list[dict[str, Any]] = field(default_factory=list)


def play(directory: Path, *scenes: str, **options: object) -> Played:
    """Play these scenes. Skips where that cannot be done here."""
    _see_whether_it_can_be_done()
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    argv = inside(str(directory), *words, *(word for scene in scenes for word in ("--only", scene)))
    done = subprocess.run(argv, cwd=_ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=IDLE_S + 240)
    assert done.returncode == 0, done.stdout + done.stderr
    watch = json.loads((directory / "watch.json").read_text())
    found = {path.parent.name: Scene.open(path.parent) for path in directory.glob("*/scene.json")}
    assert set(found) == set(scenes)
    return Played(found, watch["looks"], watch["untraced"], watch["ports"])


def _see_whether_it_can_be_done() -> None:
    if os.geteuid() != 0:
        pytest.skip("a network of its own, and a look into daemons that let nobody look, are root's")
    missing = [program for program in ("strace", "unshare", "ip", "mount") if shutil.which(program) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    trial = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "true"]
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", *trial], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no namespaces, or no tracing, here: {done.stderr.strip()}")


def test_idle_it_reaches_nobody_and_at_work_its_model_alone(tmp_path: Path, record_property: Any) -> None:
    """Gateway, channel, asks, tools, a job, an endpoint that fails or is away, the small programs; then nothing at all for a while, or an hour."""
    played = play(tmp_path / "house", "town", idle_s=IDLE_S, tick_s=TICK_S)
    town = played.scenes["town"]
    began, ended = town.told["idle"]
    idle = [act for act in town.record.acts if began <= act.at <= ended]
    record_property("told", f"egress: idle for {ended - began:.0f} s, woke {town.told['woke']}; meanwhile: {summary(idle) or 'no connect at all'}")
    assert town.breaches() == []
    beyond = {(act.program, str(act.address)) for act in idle if act.what != "socket" and act.address.family not in ("UNIX", "NETLINK")}
    assert beyond <= {("channel", place) for place in town.law.connect["channel"]}  # its platform lets a poll last 50 s
    assert ended - began >= IDLE_S - 1
    assert set(town.told["woke"]) == DAEMONS
    assert min(town.told["woke"].values()) >= IDLE_S / TICK_S - 2  # they did live meanwhile
    _everybody_was_seen(played)
    assert played.ports == []
    # And it is not for want of looking: what was to be reached was.
    programs = {town.record.program(pid) for pid in town.record.processes}
    assert programs >= {"gateway", "agentd", "modeld", "cron", "channel", "ask", "agent", "status", "tidy", "models", "tool"}
    endpoint = {str(act.address) for act in town.record.acts if act.program == "modeld" and act.kind == "TCP"}
    assert endpoint == set(town.law.connect["modeld"])
    away = [act for act in town.record.acts if act.program == "modeld" and act.kind == "TCP" and town.told["away"][0] < act.at < town.told["away"][1]]
    assert len(away) == 3, "an endpoint that is away is tried three times, and nobody else in its place"
    _the_tool_is_known_by_its_deeds(town)


def _the_tool_is_known_by_its_deeds(town: Scene) -> None:
    """A command connects by a thread, by a child and by a fork in a session of its own: each is seen, and none is taken for a daemon's."""
    for how, port in REACHED.items():
        (act,) = [act for act in town.record.acts if act.address.port == port]
        assert (how, act.program, act.what, act.kind) == (how, "tool", "connect", "TCP")
    strict = replace(town.law, connect={name: where for name, where in town.law.connect.items() if name != "tool"})
    assert len(breaches(town.record, strict)) == len(REACHED)


def _everybody_was_seen(played: Played) -> None:
    """Beside strace's own word (each that was born has a file) that of the kernel: who lived there had a tracer."""
    assert played.untraced == []
    assert played.looks > 1


def test_an_endpoint_with_a_name_is_looked_up_by_that_name_and_no_other(tmp_path: Path) -> None:
    played = play(tmp_path / "house", "named")
    named = played.scenes["named"]
    assert named.breaches() == []
    assert set(named.told["asked"]) == {NAME}
    assert {(act.program, act.names) for act in named.record.acts if act.names} == {("modeld", (NAME,))}
    assert [act for act in named.record.acts if act.program == "modeld" and act.kind == "TCP"] != []
    assert breaches(named.record, replace(named.law, names={"modeld": ("another.example",)})) != []
    _everybody_was_seen(played)
    assert played.ports == []


def test_onboarding_looks_where_model_servers_usually_are_on_this_machine(tmp_path: Path) -> None:
    onboard = play(tmp_path / "house", "onboard").scenes["onboard"]
    assert onboard.breaches() == []
    reached = [act for act in onboard.record.acts if act.what == "connect" and act.address.family != "UNIX"]  # a jail looks for nscd
    assert {act.address.port for act in reached} == set(PLACES)
    assert {act.address.host for act in reached} == {"127.0.0.1"}


def test_the_embedded_model_is_the_one_that_listens_and_on_loopback(tmp_path: Path) -> None:
    model = model_file()
    if model is None:
        pytest.skip("no model file: run `make test`, or set BUBBLES_TEST_GGUF")
    played = play(tmp_path / "house", "embedded", gguf=model)
    embedded = played.scenes["embedded"]
    assert embedded.breaches() == []
    assert {(port["table"], port["program"], port["address"].rpartition(":")[0]) for port in played.ports} == {("tcp", "llama", "127.0.0.1")}
    (listened,) = {act.address for act in embedded.record.acts if act.what == "listen" and act.kind == "TCP"}
    assert {str(act.address) for act in embedded.record.acts if act.what == "connect" and act.kind == "TCP"} == {str(listened)}
    assert breaches(embedded.record, replace(embedded.law, serve={})) != []
    _everybody_was_seen(played)


def test_daemons_that_do_what_they_should_not_are_caught(tmp_path: Path) -> None:
    """The judge can fail: each fault that was ordered is found, and laid at the door of the one that did it."""
    played = play(tmp_path / "house", "broken")
    found = sorted({breach.partition(" (")[0] for breach in played.scenes["broken"].breaches()})
    assert found == [
        "a socket that is neither ours nor on the list: cron",
        "it connects where it should not: agentd",
        "it connects where it should not: modeld",
        "it opens a port: modeld",
        "it sends a datagram: agentd",
        "it sends a datagram: cron",
    ]
    assert any("telemetry.example" in breach for breach in played.scenes["broken"].breaches())
    (port,) = played.ports
    assert (port["program"], port["address"].rpartition(":")[0]) == ("modeld", "0.0.0.0")
    _everybody_was_seen(played)
