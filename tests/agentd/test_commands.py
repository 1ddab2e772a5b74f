"""What each command does and answers: the agent in this process, a real modeld beside it, and a scripted model behind that."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles import config, starter
from bubbles.agentd.actor import Actor
from bubbles.agentd.agent import Agent
from bubbles.agentd.commands import Commands
from bubbles.agentd.configuring import LANGUAGES
from bubbles.agentd.spelling import COMMANDS
from bubbles.agentd.texts import told
from bubbles.config.agents import Defaults
from bubbles.ids import safe
from bubbles.messages import Inbound, Sender
from bubbles.sessions.lent import lend
from bubbles.workspace import Grant
from tests.programs.conftest import Place, a_place

_numbers = itertools.count()


@dataclass
class Room:
    """One agent whose commands are given by hand. `session` is this test's own."""

    place: Place
    agent: Agent
    commands: Commands
    runner: asyncio.Runner
    session: str = ""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    def inbound(self, text: str, *, id: str = "", channel: str = "telegram", owner: bool = True, **more: Any) -> Inbound:
        usual = {"id": id or f"{channel}-{next(_numbers)}", "at": time.time(), "channel": channel, "chat": "42", "session": self.session}
        return Inbound(**{**usual, "text": text, "sender": Sender("7", "Ann", owner=owner), **more})

    @property
    def actor(self) -> Actor:
        return self.agent.actor(self.session)

    def give(self, text: str, **more: Any) -> str:
        """The answer to a command."""
        return str(self.run(self.commands.take(self.inbound(text, **more), self.actor)))

    def broken(self, text: str, **more: Any) -> str:
        """The answer where the session cannot be used."""
        return str(self.run(self.commands.take(self.inbound(text, **more), None)))

    def say(self, text: str, **more: Any) -> Inbound:
        """Words, and their whole turn."""
        inbound = self.inbound(text, **more)

        async def turn() -> None:
            await self.actor.hear(inbound, lambda: None)
            while self.actor.busy:
                await asyncio.sleep(0.01)

        self.run(turn())
        return inbound

    def begin(self, text: str, *requests: int) -> Inbound:
        """Words whose turn goes on; return when the model was asked."""
        inbound = self.inbound(text)
        before = self.place.model.seen()["requests"]

        async def begin() -> None:
            await self.actor.hear(inbound, lambda: None)
            while self.place.model.seen()["requests"] == before:
                await asyncio.sleep(0.02)

        self.run(begin())
        return inbound

    def settle(self) -> None:
        async def idle() -> None:
            while self.actor.busy:
                await asyncio.sleep(0.01)

        self.run(idle())

    def own(self) -> dict[str, Any]:
        path = self.place.home.session(self.session) / "config.json"
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "version"} if path.exists() else {}

    def queued(self, channel: str = "telegram") -> list[dict[str, Any]]:
        folder = self.place.home.inbound(channel) / "new"
        return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with a_place(tmp_path_factory.mktemp("commands")) as place, asyncio.Runner() as runner:
        starter.start(place.home, "modeld")
        owners = config.load(place.home, "agents", "channels", "gateway", "tools")

        async def made() -> tuple[Agent, Commands]:
            agent = Agent(place.home, owners)
            await agent.open()
            return agent, Commands(agent)

        agent, commands = runner.run(made())
        yield Room(place, agent, commands, runner)
        agent.close()
        runner.run(asyncio.sleep(0))


@pytest.fixture
def room(shared: Room, request: pytest.FixtureRequest) -> Iterator[Room]:
    shared.session = safe(f"{request.node.name[:50]}-{next(_numbers)}")
    shared.place.model.play({"default": {"reply": "ok"}})
    yield shared
    shared.run(shared.actor.stop())
    shared.settle()
    for path in (shared.place.home.inbound("telegram") / "new").glob("*.json"):
        path.unlink()


# -- rights ----------------------------------------------------------------------------------------

EVERYBODY = {"help", "status", "stop", "retry"}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_only_four_commands_are_everybodys(room: Room, name: str) -> None:
    refused = room.give(f"/{name}", owner=False) == told("owner only", "en", name=name)
    assert refused is (name not in EVERYBODY)


@pytest.mark.parametrize("text", ["/config sandbox local", "/config workspace add /opt/x rw", "/model other", "/session main", "/new", "/compact"])
@pytest.mark.parametrize("group", [False, True])
def test_a_stranger_changes_nothing(room: Room, text: str, group: bool) -> None:
    assert "owner" in room.give(text, owner=False, is_group=group)
    assert room.own() == {}
    assert room.agent.chats.session_of(room.inbound("").address) is None


def test_the_terminal_is_the_owners(room: Room) -> None:
    assert "temperature" in room.give("/config", owner=False, channel="cli")


def test_help_names_what_one_may_use_in_ones_own_language(room: Room) -> None:
    mine, guests = room.give("/help").splitlines(), room.give("/help", owner=False).splitlines()
    assert [line.split()[0] for line in mine[:-1]] == [f"/{name}" for name in COMMANDS]
    assert {line.split()[0] for line in guests[:-1]} == {f"/{name}" for name in EVERYBODY}
    room.give("/config language zh")
    assert room.give("/help").splitlines()[0] == told("help help", "zh")


# -- language --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["/help", "/status", "/stop", "/retry", "/new", "/model", "/config", "/session", "/prompt", "/compact", "/stpo"])
def test_every_command_answers_in_both_languages(room: Room, text: str) -> None:
    english = room.give(text)
    room.run(asyncio.sleep(0))
    room.give("/config language zh")
    chinese = room.give(text)
    assert english != chinese
    assert any("\u4e00" <= character <= "\u9fff" for character in chinese)
    assert not any("\u4e00" <= character <= "\u9fff" for character in english)


def test_a_language_that_is_set_holds_for_the_answer_already(room: Room) -> None:
    assert room.give("/config language zh") == told("own setting", "zh", key="language", value="zh")
    assert room.give("/config language -") == told("setting", "en", key="language", value="auto")


def test_the_language_is_that_of_what_was_said_last(room: Room) -> None:
    room.say("今天天气怎么样？")
    assert room.give("/stop") == told("nothing runs", "zh")
    room.say("and tomorrow?")
    assert room.give("/stop") == told("nothing runs", "en")
    assert room.give("/retry 请再试一次") == told("no words", "zh", name="retry")


# -- a turn that runs ------------------------------------------------------------------------------


def test_stop_ends_the_turn_and_lets_its_own_notice_tell(room: Room) -> None:
    room.place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    words = room.begin("a long task")
    assert room.give("/stop") == ""
    assert room.give("/stop") == ""  # the turn is stopping
    room.settle()
    assert room.actor.session.history.end_of(words.id)["outcome"] == "stopped"
    assert [spoke["id"] for spoke in room.actor.session.history.ended[-1]["messages"]] == [words.id]


def test_who_stops_it_from_elsewhere_is_told(room: Room) -> None:
    room.place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    room.begin("a long task")
    assert room.give("/stop", channel="cli", chat="main") == "Stopped."


def test_nothing_runs(room: Room) -> None:
    assert room.give("/stop") == "Nothing is running."


@pytest.mark.parametrize("again", [True, False])
def test_the_same_stop_twice_stops_once_and_says_nothing_else(room: Room, again: bool) -> None:
    room.place.model.play({"rules": [{"when": "long", "delay_s": 30}], "default": {"reply": "ok"}})
    stop = room.inbound("/stop")
    room.begin("a long task")
    assert room.run(room.commands.take(stop, room.actor)) == ""
    room.settle()
    commands = room.commands if again else Commands(room.agent)  # one that remembers, and one after a restart
    assert room.run(commands.take(stop, room.actor)) == ""


def test_status_of_a_session_at_rest(room: Room) -> None:
    assert room.give("/status").splitlines() == [
        f"Session: {room.session}",
        "Model: fake \u2192 custom",
        "Nothing is running.",
        "History: 0 % of the 128k tokens that fit",
    ]


def test_status_of_a_turn_that_thinks(room: Room) -> None:
    room.place.model.play({"default": {"delay_s": 30}})
    words = room.begin("a long task")
    room.run(room.actor.hear(room.inbound("and another thing"), lambda: None))
    lines = room.give("/status").splitlines()
    assert lines[2].startswith("Working for ")
    assert lines[2].endswith(" s: thinking")
    assert lines[3] == "Messages waiting: 1"
    assert words.id not in "".join(lines)


def test_status_of_a_turn_that_runs_a_tool(room: Room) -> None:
    room.place.model.play({"default": {"calls": [{"name": "exec", "arguments": {"command": "touch here; sleep 30"}}]}})
    room.begin("run it")

    async def runs() -> None:
        while not (room.place.home.session(room.session) / "work" / "here").exists():
            await asyncio.sleep(0.02)

    room.run(runs())
    assert room.give("/status").splitlines()[2].endswith(" s: running exec")
    room.run(room.actor.stop())
    room.settle()
    assert room.give("/status").splitlines()[2] == "Nothing is running."


def test_status_tells_of_the_last_failure_until_something_went_well(room: Room) -> None:
    room.place.model.play({"rules": [{"status": 401, "times": 1}], "default": {"reply": "fine"}})
    room.say("break it")
    assert room.give("/status").splitlines()[-1] == "Last failure: the model's provider did not accept the key"
    assert room.give("/status", owner=False).splitlines()[-1].startswith("Last failure")
    room.say("never mind")
    assert "Last failure" not in room.give("/status")


@pytest.mark.parametrize(("s", "text"), [(-5, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (3720, "1 h 2 min")])
def test_how_long_something_lasts(room: Room, s: float, text: str) -> None:
    from bubbles.agentd.asked import asked
    from bubbles.agentd.spelling import Command
    from bubbles.agentd.standing import lasted

    assert lasted(asked(room.agent, room.inbound("/status"), Command("status"), room.actor), s) == text


# -- again, anew, shorter --------------------------------------------------------------------------


def test_retry_says_the_last_words_once_more_by_the_way_they_came(room: Room) -> None:
    room.place.model.play({"default": {"status": 500}})
    room.say("what is 2+2?", message="m1")
    assert room.give("/retry", id="telegram-r", message="m2", thread="t") == "Once more: what is 2+2?"
    (again,) = room.queued()
    wanted = {"id": "telegram-r.retry", "channel": "telegram", "chat": "42", "thread": "t", "message": "m2", "text": "what is 2+2?"}
    assert {key: again[key] for key in wanted} == wanted
    assert (again["sender"]["id"], again["origin"], again["session"]) == ("7", "user", room.session)
    for commands in (room.commands, Commands(room.agent)):
        room.run(commands.take(room.inbound("/retry", id="telegram-r", message="m2", thread="t"), room.actor))
    assert len(room.queued()) == 1


def test_a_guest_who_retries_speaks_as_a_guest(room: Room) -> None:
    room.say("delete everything", is_group=True)
    room.give("/retry", owner=False, is_group=True)
    (again,) = room.queued()
    assert (again["sender"]["owner"], again["is_group"], again["mentioned"]) == (False, True, True)


def test_words_from_another_chat_are_answered_there(room: Room) -> None:
    room.say("from the phone")
    assert room.give("/retry", channel="cli", chat="main") == told("elsewhere", "en"), "that chat is in another session"
    room.agent.chats.bind(room.inbound("").address, room.session)
    assert room.give("/retry", channel="cli", chat="main") == "Once more: from the phone"
    (again,) = room.queued()
    assert (again["channel"], again["chat"], again["message"]) == ("telegram", "42", "")
    room.agent.chats.bind(room.inbound("").address, None)


def test_retry_never_says_in_a_persons_name_what_a_background_job_printed(room: Room) -> None:
    ended = {"id": "job-s-j1-1000-end", "channel": "telegram", "chat": "42", "at": 1.0, "text": "| run it"}
    person = {"id": "telegram-1", "channel": "telegram", "chat": "42", "at": 2.0, "text": "and now?"}
    end = {"turn": ended["id"], "origin": "user", "outcome": "failed:model_down", "says": [], "at": 3.0}
    room.actor.session.history.add_turn([], {**end, "messages": [ended, person]})
    assert room.give("/retry") == "Once more: and now?"
    room.actor.session.history.add_turn([], {**end, "turn": "t2", "messages": [person, ended]})
    assert room.give("/retry") == "Once more: and now?"


def test_retry_without_words_or_beside_a_turn_does_nothing(room: Room) -> None:
    assert room.give("/retry") == told("nothing to retry", "en")
    room.say("first")
    room.place.model.play({"default": {"delay_s": 30}})
    room.begin("second")
    assert room.give("/retry") == told("busy", "en", name="retry")
    assert room.queued() == []


def test_new_keeps_the_history_and_sends_none_of_it(room: Room) -> None:
    room.say("my cat is called Murr")
    new = room.inbound("/new")
    for commands in (room.commands, room.commands, Commands(room.agent)):
        assert "kept" in room.run(commands.take(new, room.actor))
    room.say("what is it called?")
    sent = json.dumps(room.place.model.seen()["bodies"][-1])
    assert "what is it called?" in sent
    assert "Murr" not in sent
    assert "Murr" in (room.place.home.session(room.session) / "session.jsonl").read_text()


@pytest.mark.parametrize("name", ["new", "compact", "retry"])
def test_words_behind_a_command_that_takes_none_are_not_swallowed(room: Room, name: str) -> None:
    room.say("something")
    assert "nothing was done" in room.give(f"/{name} ideas for the garden")
    assert room.queued() == []
    assert len(room.actor.session.history.lines) == 2


def test_compact_tells_before_and_after(room: Room) -> None:
    assert room.give("/compact") == told("nothing to compact", "en")
    long = "this is what there is to be said of it, and " * 20
    room.place.model.play({"rules": [{"when": "replaced by a summary", "reply": "Much was said."}], "default": {"reply": long}})
    for n in range(4):
        room.say(f"number {n}")
    before, after = (int(word) for word in room.give("/compact").split() if word.isdigit())
    assert before > after > 0


def test_the_prompt_is_given_whole_and_its_tools_named(room: Room) -> None:
    room.give("/config system_prompt Speak like a pirate.")
    text = room.give("/prompt")
    assert "Speak like a pirate." in text
    assert text == f"{room.actor.session.prompt(tools=True)}\n\nTools: {', '.join(room.agent.tools)}"


# -- settings --------------------------------------------------------------------------------------


def test_config_shows_all_and_marks_what_is_the_sessions_own(room: Room) -> None:
    room.give("/config temperature 0.25")
    lines = room.give("/config").splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == list(config.SESSION_KEYS)
    assert [line for line in lines if "this session" in line] == ["temperature: 0.25   (this session)"]
    assert room.give("/config model") == "model: fake"


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("temperature", "0.25", 0.25),
        ("language", "zh", "zh"),
        ("timezone", "Asia/Shanghai", "Asia/Shanghai"),
        ("sandbox", "local", "local"),
        ("provider", "custom", "custom"),
        ("model", "custom/other", "custom/other"),
        ("system_prompt", "Be\nbrief. {x}", "Be\nbrief. {x}"),
        ("systemPrompt", "camel", "camel"),
    ],
)
def test_a_setting_is_set_and_taken_back(room: Room, key: str, text: str, value: Any) -> None:
    name = "system_prompt" if key == "systemPrompt" else key
    was = room.give(f"/config {key}")
    for commands in (room.commands, Commands(room.agent)):
        answer = room.run(commands.take(room.inbound(f"/config {key} {text}", id=f"once-{room.session}"), room.actor))
        assert text in answer
    assert room.own() == {name: value}
    assert getattr(room.actor.session.effective, name) == value
    assert room.give(f"/config {key} -").splitlines()[0] in (was, told("setting", "zh", key=name, value=was.partition(": ")[2]))
    assert room.own() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("temperature hot", "temperature cannot be hot. It is a number from 0 to 2."),
        ("temperature 9", "a number from 0 to 2"),
        ("language fr", "language cannot be fr. It is one of: auto, en, zh."),
        ("timezone Mars/Olympus", "a time zone such as"),
        ("provider nobody", "It is one of: anthropic"),
        ("sandbox jail", "sandbox cannot be jail. It is one of: local, local_isolated, bwrap."),
        ("network lan", "network cannot be lan. It is one of: none, public, host."),
        ("network none", "network cannot be none here: the sandbox local_isolated cannot keep commands from the network. bwrap can: /config s"),
        ("network public", "cannot keep commands from the network"),
        ("model two words", "without spaces"),
        ("workspaces etc", "etc cannot be a workspace: write its whole path."),
        ("workspaces /etc:rw", "/etc cannot be a workspace: it belongs to the system."),
        ('workspaces [{"path": "/etc"}]', "it belongs to the system"),
        ("workspaces [1", "write its whole path"),
        ("workspaces [1]", "a directory's whole path"),
        ("modle x", "There is no setting modle. Did you mean model?"),
        ("zzz", "There is no setting zzz. There are: model, provider"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(room: Room, text: str, said: str) -> None:
    assert said in room.give(f"/config {text}")
    assert room.own() == {}


def test_a_refusal_in_chinese_is_chinese(room: Room) -> None:
    room.give("/config language zh")
    assert "不能" in room.give("/config temperature 9")
    assert "系统" in room.give("/config workspace add /etc")


def test_a_model_that_leads_nowhere_is_not_kept(room: Room) -> None:
    room.give("/model custom/other")
    for text in ("/model openai_codex/x", "/config model openai_codex/x"):
        assert room.give(text) == told("model nowhere", "en", model="openai_codex/x")
        assert room.own() == {"model": "custom/other"}
    assert room.actor.session.effective.model == "custom/other"
    assert "\u2192 custom" in room.give("/status")


def test_model_shows_where_it_leads_and_what_else_there_is(room: Room) -> None:
    room.agent.models._routes.clear()
    lines = room.give("/model").splitlines()
    assert lines[0] == "Model: fake \u2192 custom"
    assert lines[1].startswith("Why: ")
    assert lines[-1] == told("model help", "en")
    assert any(line.startswith("Can be asked: custom/") for line in lines)
    assert room.give("/model custom/other").splitlines() == ["model: custom/other   (this session)", "Model: other \u2192 custom"]
    assert room.give("/model -").splitlines()[0] == "model: fake"


def test_a_workspace_is_granted_and_taken_back(room: Room, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b b"
    a.mkdir()
    b.mkdir()
    assert room.give(f"/config workspace add {a}") == f"workspaces: {a} (ro)   (this session)"
    room.give(f"/config workspace add {b}  rw ")
    assert room.own()["workspaces"] == [{"path": str(a), "mode": "ro"}, {"path": str(b), "mode": "rw"}]
    room.give(f"/config workspaces add {tmp_path}/x/../a rw")
    assert {"path": str(a), "mode": "rw"} in room.own()["workspaces"]
    assert [grant.mode for grant in room.actor.session.grants()] == ["rw", "rw"]
    assert str(a) not in room.give(f"/config workspace remove {a}")
    assert told("no workspace", "en", path=a) in room.give(f"/config workspace remove {a}")
    assert room.own()["workspaces"] == [{"path": str(b), "mode": "rw"}]


@pytest.mark.parametrize(
    ("path", "why"),
    [("/etc", "it belongs to the system"), ("/", "it holds far more than one project"), ("~", "it holds far more"), ("here", "write its whole path"),
     ("/no/such/place", "there is no such directory")],
)  # fmt: skip
def test_a_workspace_is_refused_with_the_reason(room: Room, path: str, why: str) -> None:
    answer = room.give(f"/config workspace add {path} rw")
    assert "cannot be a workspace" in answer
    assert why in answer
    assert room.own() == {}


@pytest.mark.parametrize("text", ["add", "remove", "remove /a rw"])
def test_half_a_word_of_workspaces_is_told_how(room: Room, text: str) -> None:
    assert told("workspace help", "en") in room.give(f"/config workspace {text}")


def test_the_owners_own_list_is_not_copied_and_that_is_said(room: Room, tmp_path: Path) -> None:
    mine, owners = tmp_path / "mine", tmp_path / "owners"
    mine.mkdir()
    owners.mkdir()
    raw = {"tools": {"workspaces": [str(owners)]}, "agents": {"defaults": {"model": "fake"}}}
    before, room.agent.settings = room.agent.settings, config.settings_of(room.place.home, raw, "agents", "tools")
    try:
        assert "tools.workspaces" in room.give(f"/config workspace remove {owners}")
        assert str(owners) in room.give(f"/config workspace add {mine}")
        assert room.own()["workspaces"] == [{"path": str(mine), "mode": "ro"}]
    finally:
        room.agent.settings = before


def test_what_a_terminal_lends_is_shown(room: Room, tmp_path: Path) -> None:
    with lend(room.place.home, room.session, Grant(tmp_path, "rw")):
        assert f"lent: {tmp_path} (rw)" in room.give("/config")
        assert f"lent: {tmp_path} (rw)" in room.give("/config workspace")
    assert "lent" not in room.give("/config")


def test_the_languages_are_those_of_the_settings() -> None:
    from typing import get_args

    assert get_args(Defaults.model_fields["language"].annotation) == LANGUAGES


@given(key=st.sampled_from([*config.SESSION_KEYS, "workspace", "workspace add", "workspace remove", "x"]), text=st.text(max_size=30))
@settings(max_examples=60)
def test_no_words_are_too_odd_for_a_setting(shared: Room, key: str, text: str) -> None:
    shared.session = "odd"
    assert shared.give(f"/config {key} {text}")
    assert shared.agent.actor("odd").session.effective == config.session_settings(shared.agent.settings, shared.own())


# -- a session whose settings are broken -----------------------------------------------------------


def test_a_setting_that_does_not_fit_is_named_and_can_be_taken_back(room: Room) -> None:
    room.give("/config timezone Asia/Tokyo")
    path = room.place.home.session(room.session) / "config.json"
    path.write_text('{"version": 1, "temperature": 99, "timezone": "Asia/Tokyo"}')
    for text in ("/config", "/config model", "/config language en"):
        assert "/config temperature -" in room.broken(text)
    assert "/config temperature -" in room.give("/config model x")
    assert room.broken("/status") == told("broken", "en")
    assert room.broken("/help").startswith("/help")
    assert room.broken("/config temperature -") == "temperature: 0.7"
    assert room.own() == {"timezone": "Asia/Tokyo"}


def test_a_file_that_is_no_settings_is_told_without_its_path(room: Room) -> None:
    room.give("/config timezone Asia/Tokyo")
    path = room.place.home.session(room.session) / "config.json"
    path.write_text('{"temperature":')
    for text in ("/config", "/config temperature -", "/config language en", "/model x", f"/config workspace add {path.parent}"):
        answer = room.give(text)
        assert "session" in answer
        assert str(room.place.home.root) not in answer.replace(str(path.parent), "") or "workspace" in text
    assert path.read_text() == '{"temperature":'
    path.unlink()


# -- sessions and chats ----------------------------------------------------------------------------


def test_a_private_chat_is_bound_to_a_session_and_back(room: Room) -> None:
    address = room.inbound("").address
    assert room.session in room.give("/session")
    for _ in range(2):
        assert room.give("/session Work at home") == told("bound", "en", name="Work at home")
        assert room.agent.chats.session_of(address) == "Work at home"
    assert room.give("/session -") == told("unbound", "en")
    assert room.agent.chats.session_of(address) is None


def test_a_group_stays_where_it_is(room: Room) -> None:
    assert room.give("/session@bot main", is_group=True) == told("not in a group", "en")
    assert room.give("/session", is_group=True) == told("this session", "en", name=room.session)
    assert room.agent.chats.session_of(room.inbound("").address) is None


def test_a_terminal_goes_by_itself(room: Room) -> None:
    assert "bubbles agent -s" in room.give("/session other", channel="cli", chat="main")


# -- of all ----------------------------------------------------------------------------------------


def test_a_near_miss_is_told_and_does_nothing(room: Room) -> None:
    assert room.give("/confg temperature 1") == told("near", "en", typed="confg", name="config")
    assert room.own() == {}


def test_the_same_message_twice_gets_the_same_answer(room: Room) -> None:
    status = room.inbound("/status")
    first = room.run(room.commands.take(status, room.actor))
    room.say("hello " * 2000)
    assert room.run(room.commands.take(status, room.actor)) == first


def test_commands_enter_neither_history_nor_request(room: Room) -> None:
    room.say("hello")
    for name in ("help", "status", "stop", "config", "model", "session", "prompt", "stpo"):
        room.give(f"/{name}")
    room.say("goodbye")
    sent = json.dumps(room.place.model.seen()["bodies"][-1]["messages"][1:])
    assert "/" not in sent.replace("·", "")
    assert len(room.actor.session.history.lines) == 4


def test_where_modeld_is_away_they_answer_all_the_same(shared: Room, tmp_path: Path) -> None:
    with a_place(tmp_path) as place, asyncio.Runner() as runner:
        owners = config.load(place.home, "agents", "channels", "gateway", "tools")

        async def answers() -> list[str]:
            agent = Agent(place.home, owners)
            commands = Commands(agent)
            actor = agent.actor("s")
            room = Room(place, agent, commands, runner, "s")
            given = [await commands.take(room.inbound(text), actor) for text in ("/status", "/prompt", "/config model x")]
            agent.close()
            return given

        status, prompt, model = runner.run(answers())
    assert "does not answer just now" in status
    assert "Tools: " in prompt
    assert model.startswith("model: x   (this session)\nModel: x (")


def test_a_code_is_for_a_private_chat_of_the_owners_or_the_terminal(room: Room) -> None:
    assert room.give("/pair") == told("pair help", "en")
    assert room.give("/pair ABCDEFGH king") == told("pair help", "en")
    assert room.give("/pair ABCDEFGH", is_group=True) == told("pair not here", "en")
    assert room.give("/pair ABCDEFGH") == told("no such code", "en")
    assert room.give("/pair ABCDEFGH owner", channel="cli", owner=False) == told("no such code", "en")
    assert room.give("/pair ABCDEFGH", owner=False) == told("owner only", "en", name="pair")
    assert room.broken("/pair ABCDEFGH") == told("no such code", "en")
