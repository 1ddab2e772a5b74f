"""Who decides how a session's commands are held: the owner, by a command or at the terminal. Nothing that a model can write or ask for does."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbles import config, sandboxes, starter
from bubbles.agentd.overrides import Overrides
from bubbles.agentd.texts import told
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.sandboxes import probe
from bubbles.tools import load, schemas
from tests.agentd.test_chain import call
from tests.agentd.test_command_chain import answer, tell
from tests.agentd.test_commands import Room, room, shared  # noqa: F401  # fixtures
from tests.agentd.world import World, world

JAILED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
# A place where the kernel makes no further namespaces, and so no jail.
WITHOUT = ["unshare", "-Ur", "sh", "-c", 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"', "sh"]


@pytest.fixture
def jail(tmp_path: Path) -> None:
    if not probe.verdict(Home(tmp_path / "probed"), config.settings_of(Home(tmp_path), {}, "tools").tools.sandbox).ok:
        pytest.skip("no jail can be made here")


# -- what an owner says ------------------------------------------------------------------------------


def test_a_weaker_sandbox_is_told_for_what_it_is(room: Room) -> None:  # noqa: F811
    first, then, *forbidden = room.give("/config sandbox local").splitlines()
    assert (first, then) == ("sandbox: local   (this session)", told("not jailed", "en"))
    assert all("docs/units.md" in line for line in forbidden)
    room.give("/config language zh")
    assert told("not jailed", "zh") in room.give("/config sandbox local_isolated")


@JAILED
def test_a_jail_is_had_for_the_asking_and_its_network_told(room: Room, jail: None) -> None:  # noqa: F811
    assert room.give("/config network").endswith("(here: host)")
    assert told("jailed", "en", network="public") in room.give("/config sandbox bwrap")
    assert room.give("/config network").endswith("(here: public)")
    assert "- sandbox: bwrap: each command in a jail." in room.give("/prompt")
    assert room.give("/config network none") == "network: none   (this session)"
    assert told("network open", "en") in room.give("/config network host")
    assert told("not jailed", "en") in room.give("/config sandbox local")
    assert room.own() == {"sandbox": "local", "network": "host"}


def test_the_case_of_letters_does_not_matter_and_what_was_not_set_is_not_taken_back(room: Room) -> None:  # noqa: F811
    assert room.give("/config sandbox -") == "sandbox: local_isolated"
    assert room.give("/config sandbox LOCAL").startswith("sandbox: local   (this session)\n")
    assert room.give("/config network Host") == "network: host   (this session)"
    assert room.own() == {"sandbox": "local", "network": "host"}
    assert told("not jailed", "en") in room.give("/config sandbox -")


@JAILED
def test_what_keeps_less_than_was_asked_for_is_refused(room: Room, jail: None) -> None:  # noqa: F811
    room.give("/config sandbox bwrap")
    room.give("/config network none")
    for text in ("local", "local_isolated"):
        assert room.give(f"/config sandbox {text}") == told("sandbox keeps less", "en", sandbox=text, network="none")
    assert room.give("/config sandbox -") == told("sandbox keeps less", "en", sandbox="local_isolated", network="none")
    assert room.own() == {"sandbox": "bwrap", "network": "none"}
    room.give("/config network -")
    assert room.give("/config sandbox -").startswith("sandbox: local_isolated\n")
    assert room.own() == {}


def test_two_settings_that_do_not_go_together_are_named_and_taken_back(home: Home) -> None:
    owners = config.settings_of(home, {"tools": {"sandbox": {"backend": "bwrap"}}}, "agents", "tools")
    overrides = Overrides(home, "s", owners)
    overrides.change("network", "none")
    path = home.session("s") / "config.json"
    path.write_text('{"version": 1, "sandbox": "local", "network": "none"}')
    assert overrides.misfits() == ["sandbox", "network"]
    overrides.change("sandbox", None)
    assert overrides.own() == {"network": "none"}


@pytest.mark.parametrize("text", ["/config sandbox local", "/config sandbox bwrap", "/config network none", "/config network host"])
@pytest.mark.parametrize("group", [True, False])
def test_others_neither_loosen_nor_tighten(room: Room, text: str, group: bool) -> None:  # noqa: F811
    """A jail around somebody's work, or no network, is a way to stop it: that is the owner's to decide as well."""
    assert room.give(text, owner=False, is_group=group) == told("owner only", "en", name="config")
    assert room.own() == {}


def test_settings_that_others_may_write_hold_no_turn(room: Room) -> None:  # noqa: F811
    room.give("/config timezone Asia/Tokyo")
    path = room.place.home.session(room.session) / "config.json"
    path.chmod(0o664)
    with pytest.raises(Misconfigured, match="is not believed: others may write it") as caught:
        room.actor.session.refresh()
    assert "chmod 600" in caught.value.remedy
    assert room.give("/config sandbox local") == told("broken", "en")
    path.chmod(0o600)
    room.actor.session.refresh()


# -- what a model says -------------------------------------------------------------------------------

# All that a tool may be told. A new one is thought about here: could it loosen what holds a command?
TOLD = {
    "path", "content", "offset", "limit", "line_numbers", "old", "new", "replace_all", "edits", "command", "timeout_s", "cwd", "background",
    "id", "wait_s", "depth", "to", "text", "files", "query",
}  # fmt: skip
LOOSENS = ("sandbox", "network", "bwrap", "jail", "unsafe", "danger", "disable", "privilege", "mount", "bind", "env", "root", "user", "policy")


def _properties(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from _properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _properties(inner)


def test_no_tool_has_an_argument_that_loosens_anything() -> None:
    tools = load(config.settings_of(Home(Path("/nowhere")), {}, "tools").tools)
    told_to_models = {one["function"]["name"]: one["function"]["parameters"] for one in schemas(tools)}
    named = {(name, argument) for name, schema in told_to_models.items() for argument in _properties(schema)}
    assert named
    assert [(tool, argument) for tool, argument in named if any(word in argument.lower() for word in LOOSENS)] == []
    assert {argument for _, argument in named} <= TOLD
    for tool in tools.values():
        assert tool.Arguments.model_config.get("extra") == "forbid"


def test_what_a_tool_writes_decides_nothing(home: Home) -> None:
    """The real daemon: a model that writes settings, by file tool and by shell, by name, by link and by hard link, is refused or not heard."""
    loose = json.dumps({"version": 1, "sandbox": "local", "network": "host"})
    calls = [
        call("write_file", path="../config.json", content=loose),
        call("write_file", path="config.json", content=loose),
        call("edit_file", path="../config.json", old_text="local_isolated", new_text="local"),
        call("exec", command=f"printf %s '{loose}' > ../config.json"),
        call("exec", command="ln -f ../config.json alias; ls"),
        call("exec", command="ls", sandbox="local"),
        call("exec", command="ls", network="host"),
    ]
    with world(home, {"rules": [{"when": "go", "times": 1, "calls": calls}], "default": {"reply": "done"}}) as w:
        w.start()
        w.ask("session.set", session="s", key="sandbox", value="local_isolated")
        before = (home.session("s") / "config.json").read_bytes()
        w.say("go")
        results = [message["content"] for message in w.history() if message["role"] == "tool"]
        assert len(results) == len(calls)
        assert [n for n, text in enumerate(results) if n not in (1,) and "rror" not in text] == []
        assert (home.session("s") / "config.json").read_bytes() == before
        assert w.ask("session.show", session="s")["settings"]["sandbox"] == "local_isolated"


def test_settings_are_read_again_for_each_turn_and_believed_or_not(home: Home) -> None:
    """The real daemon: what an owner wrote holds from the next turn on, and what somebody else may have written keeps the turn waiting."""
    rules = [{"when": word, "times": 1, "calls": [call("exec", command=f"env | grep ^HOME= > {word}")]} for word in ("one", "two", "three")]
    with world(home, {"rules": rules, "default": {"reply": "ok"}}) as w:
        w.start()
        w.say("one")
        path, work = home.session("s") / "config.json", home.session("s") / "work"
        path.write_text('{"sandbox": "local"}')
        path.chmod(0o600)
        w.say("two")
        assert (work / "one").read_text() != (work / "two").read_text()
        path.chmod(0o606)
        id = w.put("three")
        w.ring()
        w.until((home.inbound("cli") / "held" / f"{id}.json").exists)
        assert not (work / "three").exists()


# -- where no jail can be made -----------------------------------------------------------------------


@contextmanager
def unjailed(home: Home, script: dict[str, Any] | None = None, **changes: Any) -> Iterator[World]:
    """A world whose agentd lives where the kernel refuses every jail."""
    with world(home, script, **changes) as w:
        w.start("modeld")
        argv = [*WITHOUT, sys.executable, "-m", "bubbles.programs.agentd"]
        w.running["agentd"] = starter.Started(home, "agentd", argv, None).wait()
        yield w


@JAILED
def test_a_jail_that_cannot_be_made_is_refused_with_the_remedy(home: Home) -> None:
    with unjailed(home, {"default": {"reply": "ok"}}) as w:
        said = answer(w, tell(w, "t-1", "/config sandbox bwrap"))
        assert said.startswith("sandbox cannot be bwrap here, so nothing was changed: ")
        assert "\nWhat helps: " in said
        assert "local_isolated" in answer(w, tell(w, "t-2", "/config sandbox"))
        with pytest.raises(Misconfigured, match="sandbox cannot be bwrap here") as caught:
            w.ask("session.set", session="s", key="sandbox", value="bwrap")
        assert caught.value.remedy


@JAILED
def test_where_the_jail_is_gone_no_command_runs(home: Home) -> None:
    rules = [{"when": "go", "times": 1, "calls": [call("exec", command="touch ran")]}]
    with unjailed(home, {"rules": rules, "default": {"reply": "ok"}}, tools__sandbox__backend="bwrap") as w:
        assert w.say("go").text == "ok"
        (result,) = [message["content"] for message in w.history() if message["role"] == "tool"]
        assert result.startswith("Error: ")
        assert not (home.session("s") / "work" / "ran").exists()


# -- turns that no person began ----------------------------------------------------------------------


@contextmanager
def service() -> Iterator[int]:
    """The port of a service of this machine."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        yield listening.getsockname()[1]


def reaches(port: int, word: str) -> dict[str, Any]:
    command = f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached-{word} || echo kept-{word}"
    return {"when": word, "times": 1, "calls": [call("exec", command=command)]}


def results(w: World, session: str) -> str:
    return " ".join(message["content"] for message in w.history(session) if message["role"] == "tool")


@JAILED
@pytest.mark.parametrize(("most", "group", "system"), [("none", "kept", "kept"), ("host", "reached", "reached")])
def test_a_turn_of_a_job_or_a_group_has_at_most_the_network_for_the_unattended(
    home: Home, jail: None, most: str, group: str, system: str
) -> None:
    jailed = {"tools__sandbox__backend": "bwrap", "tools__sandbox__network": "host", "tools__sandbox__unattended_network": most}
    with service() as port, world(home, {"default": {"reply": "ok"}}, **jailed) as w:
        w.fake.play({"rules": [reaches(port, word) for word in ("mine", "ours", "tick")], "default": {"reply": "ok"}})
        w.start()
        w.say("mine")
        assert "reached-mine" in results(w, "s")
        tick = w.put("tick", queue="cron", job="j1")
        w.ring()
        w.wait(tick)
        assert f"{system}-tick" in results(w, "s")
        tell(w, "t-1", "ours", is_group=True, mentioned=True)
        w.until(lambda: w.ends("telegram-42"))
        assert f"{group}-ours" in results(w, "telegram-42")


def test_the_order_of_the_networks() -> None:
    for mine in sandboxes.NETWORKS:
        for most in sandboxes.NETWORKS:
            found = sandboxes.narrower("bwrap", mine, most)
            assert sandboxes.NETWORKS.index(found) == min(map(sandboxes.NETWORKS.index, (mine, most)))
