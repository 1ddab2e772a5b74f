"""`bubbles agent`: one-shot and interactive, as real processes against a scripted model."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bubbles.bus import is_running
from bubbles.errors import BubblesError
from bubbles.ids import safe
from bubbles.programs.terminal.conversation import Conversation, kept, present
from tests.programs.conftest import Place, a_place, configure, until
from tests.programs.run import BIN, bubbles

LIST = {"name": "list_dir", "arguments": {"path": "."}}


def exec_(command: str) -> dict[str, object]:
    return {"name": "exec", "arguments": {"command": command}}


def begun(place: Place, *argv: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    """`bubbles ARGV...`, running."""
    env = {**os.environ, **place.env}
    pipe = subprocess.PIPE
    return subprocess.Popen([BIN / "bubbles", *argv], env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


# -- one question ----------------------------------------------------------------------------------


def test_the_reply_is_all_of_standard_output(place: Place) -> None:
    place.model.play({"default": {"reply": "Forty-two.\n\n**Really.**"}})
    done = place.run("agent", "-m", "what is the answer?", "-s", "one")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Forty-two.\n\n**Really.**\n", "")
    assert [m["text"] for m in place.history("one")] == ["what is the answer?", "Forty-two.\n\n**Really.**"]


@pytest.mark.parametrize("argv", [("agent", "-m", "-"), ("agent",), ("ask",)])
def test_words_may_come_on_standard_input(place: Place, argv: tuple[str, ...]) -> None:
    place.model.play({"default": {"reply": "ok"}})
    session = f"stdin-{len(argv)}-{argv[0]}"
    assert place.run(*argv, "-s", session, stdin="first line\nsecond line\n").stdout == "ok\n"
    assert place.history(session)[0]["text"] == "first line\nsecond line"


def test_bytes_that_are_no_text_do_not_matter(place: Place) -> None:
    place.model.play({"default": {"reply": "ok"}})
    assert place.run("agent", "-s", "bytes", stdin=b"caf\xe9 \x00 \xed\xa0\xbd end").returncode == 0
    assert "end" in place.history("bytes")[0]["text"]


def test_what_is_said_beside_tool_calls_is_not_the_reply(place: Place) -> None:
    place.model.play({"rules": [{"when": "look", "times": 1, "reply": "Looking.", "calls": [LIST]}], "default": {"reply": "Nothing there."}})
    done = place.run("agent", "-m", "look", "-s", "tools")
    assert (done.returncode, done.stdout) == (0, "Nothing there.\n")


def test_no_answer_is_1_with_a_notice(place: Place) -> None:
    place.model.play({"default": {"status": 500}})
    done = place.run("agent", "-m", "hello", "-s", "failing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "bubbles: No answer: the model cannot be reached.\n"
    again = place.run("agent", "-m", "hello", "-s", "failing")  # the notice is throttled, the end of waiting is not
    assert (again.returncode, again.stdout, again.stderr) == (1, "", "bubbles: no answer (model down)\n")


@pytest.mark.parametrize("providers", [{}, {"custom": {}}])
def test_without_a_model_it_says_how_to_set_one_up(own_place: Place, providers: dict[str, object]) -> None:
    own_place.home.config.write_text(json.dumps({"version": 1, "providers": providers}))
    for argv in (("agent", "-m", "hi"), ("ask", "hi"), ("ask", "hi")):
        done = own_place.run(*argv)
        assert (done.returncode, done.stdout) == (78, "")
        assert re.fullmatch(r"bubbles: .+\n  try: .*bubbles \w+.*\n", done.stderr), done.stderr
    with own_place.terminal() as terminal:
        terminal.expect("session main")
        terminal.type("hi")
        terminal.expect("try: ")
        terminal.type("exit")
        assert terminal.end() == 0


def test_nothing_to_say_is_a_wrong_call(place: Place) -> None:
    assert place.run("agent", "-m", " \n ", "-s", "empty").returncode == 64
    assert place.run("ask", "-s", "empty").returncode == 64


@pytest.mark.parametrize(
    "argv", [("agent", "-s", "", "-m", "hi"), ("ask", "-s", "", "hi"), ("history", ""), ("cron", "add", "--every", "1d", "-s", "", "hi")]
)
def test_no_text_names_no_session(tmp_path: Path, argv: tuple[str, ...]) -> None:
    done = bubbles(*argv, BUBBLES_HOME=str(tmp_path / "home"))
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr.startswith("bubbles: a session has a name\n  try: bubbles ")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("session", ["a/b", "../up", "new\nline", "x" * 300, "会话", "-dash", "..", "with space"])
def test_any_text_names_a_session(place: Place, session: str) -> None:
    place.model.play({"default": {"reply": "here"}})
    assert place.run("agent", "-m", "hi", "-s", session).stdout == "here\n"
    assert (place.home.session(safe(session)) / "session.jsonl").exists()
    assert place.run("history", "--", session).stdout.count("\n") == 2


def test_a_reply_carries_no_escapes_to_a_terminal_or_a_file(place: Place) -> None:
    place.model.play({"default": {"reply": "safe\x1b]0;title\x07 \x1b[31mred\x1b[0m\x9b2J end"}})
    assert place.run("ask", "hi", "-s", "escapes").stdout == "safe red end\n"


def test_the_short_path_loads_nothing_heavy(place: Place) -> None:
    place.model.play({"default": {"reply": "ok"}})
    run = "front.run(['agent', '-m', 'hi', '-s', 'short'])"
    code = f"import sys; from bubbles.programs import front; {run}; print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, env={**os.environ, **place.env}, timeout=60)
    assert done.stdout == "ok\n"
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert not loaded & {"asyncio", "pydantic", "rich", "prompt_toolkit", "zmq", "aiohttp"}


def test_a_broken_configuration_is_told_and_the_question_is_not_kept(own_place: Place) -> None:
    own_place.home.config.write_text("{ broken")
    done = own_place.run("agent", "-m", "hi")
    assert (done.returncode, done.stdout) == (78, "")
    assert "config.json" in done.stderr
    assert "  try: " in done.stderr
    assert own_place.run("queue", "list").stdout == ""
    assert own_place.home.config.read_text() == "{ broken"


def test_daemons_that_die_in_mid_question_are_started_again(own_place: Place) -> None:
    own_place.model.play({"rules": [{"times": 1, "delay_s": 3, "reply": "lost"}], "default": {"reply": "the answer"}})
    asking = subprocess.Popen(
        [BIN / "bubbles", "agent", "-m", "hi", "-s", "died"],
        env={**os.environ, **own_place.env},
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    until(lambda: own_place.model.seen()["requests"] == 1)
    own_place.kill("agentd")
    own_place.kill("modeld")
    assert asking.communicate(timeout=60)[0] == "the answer\n"
    assert [m["role"] for m in own_place.history("died")] == ["user", "assistant"]


def test_daemons_that_are_here_for_good_take_over_in_mid_question(own_place: Place) -> None:
    own_place.model.play({"rules": [{"times": 1, "delay_s": 60, "reply": "lost"}], "default": {"reply": "the answer"}})
    asking = begun(own_place, "agent", "-m", "hi", "-s", "over")
    until(lambda: own_place.model.seen()["requests"] == 1)
    lasting = {}
    try:
        for name in ("agentd", "modeld"):  # the model's answer is had from the second: by then the first has taken over, however slow the machine
            lasting[name] = begun(own_place, name)
            until(lambda name=name: is_running(own_place.home, name) == lasting[name].pid)
        assert asking.communicate(timeout=60)[0] == "the answer\n"
        assert {name: is_running(own_place.home, name) for name in lasting} == {name: each.pid for name, each in lasting.items()}
    finally:
        for each in lasting.values():
            each.terminate()
            each.communicate(timeout=30)
    assert [m["role"] for m in own_place.history("over")] == ["user", "assistant"]


def test_ctrl_c_stops_the_turn_that_it_was_waiting_for(place: Place) -> None:
    place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    asking = begun(place, "agent", "-m", "hi", "-s", "interrupted")
    until(lambda: place.model.seen()["requests"] == 1)
    asking.send_signal(signal.SIGINT)
    assert asking.communicate(timeout=20) == ("", "")
    assert asking.returncode == 130
    until(lambda: place.ask("status")["open"] == 0)


@pytest.mark.parametrize("name", ["modeld", "cron"])
def test_a_daemon_behind_agentd_that_dies_in_mid_question_is_started_again(own_place: Place, name: str) -> None:
    own_place.model.play({"rules": [{"times": 1, "delay_s": 6, "reply": "the answer"}], "default": {"reply": "the answer"}})
    asking = begun(own_place, "ask", "-s", "behind", "hi")
    until(lambda: own_place.model.seen()["requests"] == 1)
    own_place.kill(name)
    until(lambda: is_running(own_place.home, name) is not None, timeout_s=10)
    assert asking.communicate(timeout=30) == ("the answer\n", "")


def test_what_keeps_a_daemon_down_is_told_once(own_place: Place) -> None:
    own_place.home.config.write_text("{ broken")
    told: list[BubblesError] = []
    looks = itertools.count()
    last = 0

    def wanted() -> bool:
        nonlocal last
        last = next(looks)
        return True

    with kept(own_place.home, told.append, wanted):
        until(lambda: told)
        enough = last + 4  # after three it tries again
        until(lambda: last >= enough)
    assert [error.exit for error in told] == [78]


def test_ctrl_c_while_agentd_is_down_stops_the_turn_that_it_would_take_up(own_place: Place) -> None:
    own_place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    asking = begun(own_place, "ask", "-s", "down", "hi")
    until(lambda: own_place.model.seen()["requests"] == 1)
    own_place.kill("agentd")
    asking.send_signal(signal.SIGINT)
    assert asking.communicate(timeout=30) == ("", "")
    assert asking.returncode == 130
    until(lambda: own_place.ask("status")["open"] == 0)
    assert own_place.history("down")[0]["text"] == "hi"


def test_a_message_that_has_not_begun_is_stopped_as_it_begins(own_place: Place) -> None:
    own_place.model.play({"default": {"delay_s": 3, "reply": "too late"}})
    with present(own_place.home):
        talk = Conversation(own_place.home, "early")
        assert talk.stop(talk.put("hi"))  # nobody has rung for it
        assert not talk.stop("")


def test_two_homes_at_once_never_meet(place: Place, tmp_path: Path) -> None:
    with a_place(tmp_path) as other:
        place.model.play({"default": {"reply": "from the first"}})
        other.model.play({"default": {"reply": "from the second"}})
        assert other.run("agent", "-m", "hi", "-s", "both").stdout == "from the second\n"
        assert place.run("agent", "-m", "hi", "-s", "both").stdout == "from the first\n"
        assert is_running(other.home, "agentd") != is_running(place.home, "agentd")


def test_here_lends_the_directory_for_as_long_as_it_runs(place: Place, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("the word is swordfish")
    read = {"name": "read_file", "arguments": {"path": str(tmp_path / "notes.txt")}}
    place.model.play({"rules": [{"when": "read", "times": 1, "calls": [read]}], "default": {"echo": True, "reply": "It says:"}})
    asking = begun(place, "agent", "-m", "read it", "-s", "here", "--here", cwd=tmp_path)
    assert "swordfish" in asking.communicate(timeout=60)[0]
    shown = place.ask("session.show", session="here")
    assert (shown["overrides"], shown["lent"]) == ({}, [])
    place.model.play({"rules": [{"when": "read", "times": 1, "calls": [read]}], "default": {"echo": True, "reply": "It says:"}})
    assert "swordfish" not in place.run("agent", "-m", "read it", "-s", "here").stdout


def write_(path: Path) -> dict[str, object]:
    return {"name": "write_file", "arguments": {"path": str(path), "content": "written"}}


def test_here_stands_in_no_settings_and_ends_with_its_terminal(place: Place, tmp_path: Path) -> None:
    place.model.play({"default": {"reply": "ok"}})
    place.run("agent", "-m", "hi", "-s", "healing")
    own = [{"path": str(tmp_path), "mode": "ro"}]
    place.ask("session.set", session="healing", key="workspaces", value=own)
    settings = (place.home.session("healing") / "config.json").read_bytes()
    with place.terminal("-s", "healing", "--here", cwd=tmp_path) as terminal:
        terminal.expect("session healing")
        terminal.type("/config workspaces")
        terminal.expect("while a terminal with --here is open")
        place.model.play({"rules": [{"when": "write", "times": 1, "calls": [write_(tmp_path / "one")]}], "default": {"reply": "ok"}})
        place.run("agent", "-m", "write one", "-s", "healing")
        assert (tmp_path / "one").read_text() == "written"
        assert f"[Lent to you for now: {tmp_path} (rw)]" in str(place.model.seen()["bodies"][-1])
        assert (place.home.session("healing") / "config.json").read_bytes() == settings
        terminal.process.kill()
        terminal.process.wait()
    shown = place.ask("session.show", session="healing")
    assert (shown["settings"]["workspaces"], shown["lent"]) == (own, [])
    place.model.play({"rules": [{"when": "write", "times": 1, "calls": [write_(tmp_path / "two")]}], "default": {"reply": "ok"}})
    place.run("agent", "-m", "write two", "-s", "healing")
    assert not (tmp_path / "two").exists()


def test_here_outlives_agentd_and_the_terminal_beside_it(place: Place, tmp_path: Path) -> None:
    with place.terminal("-s", "beside", "--here", cwd=tmp_path) as stays:
        stays.expect("session beside")
        place.model.play({"default": {"reply": "ok"}})
        assert begun(place, "agent", "-m", "hi", "-s", "beside", "--here", cwd=tmp_path).wait(60) == 0
        place.kill("agentd")
        place.model.play({"rules": [{"when": "write", "times": 1, "calls": [write_(tmp_path / "one")]}], "default": {"reply": "ok"}})
        place.run("agent", "-m", "write one", "-s", "beside")
        assert (tmp_path / "one").read_text() == "written"


def test_a_workspace_is_granted_and_taken_back_by_a_command(place: Place, tmp_path: Path) -> None:
    with place.terminal("-s", "granting") as terminal:
        terminal.expect("session granting")
        terminal.type(f"/config workspace add {tmp_path} rw")
        terminal.expect("(this session)")
        assert place.ask("session.show", session="granting")["overrides"] == {"workspaces": [{"path": str(tmp_path), "mode": "rw"}]}
        terminal.type("/config workspace add /etc")
        terminal.expect("it belongs to the system")
        terminal.type(f"/config workspace remove {tmp_path}")
        until(lambda: place.ask("session.show", session="granting")["overrides"] == {"workspaces": []})
        terminal.type("exit")
        assert terminal.end() == 0


def test_here_refuses_the_whole_home(place: Place) -> None:
    asking = begun(place, "agent", "-m", "hi", "-s", "root", "--here", cwd=Path("/"))
    assert "/ cannot be a workspace" in asking.communicate(timeout=60)[1]
    assert asking.returncode == 78


def test_logs_show_each_call_with_its_arguments_and_result(place: Place) -> None:
    place.model.play({"rules": [{"when": "run", "times": 1, "calls": [exec_("echo over && echo there")]}], "default": {"reply": "done"}})
    done = place.run("agent", "-m", "run it", "-s", "logs", "--logs")
    assert done.stdout == "done\n"
    assert re.search(r"^[\d:.]{12} tool\.start exec\n  │ command: echo over && echo there\n", done.stderr, re.MULTILINE)
    assert re.search(r"^[\d:.]{12} tool\.finish exec ok \(\d+ ms\)\n  │ over\n  │ there\n", done.stderr, re.MULTILINE)
    assert re.search(r"^[\d:.]{12} turn\.close replied$", done.stderr, re.MULTILINE)
    assert "You are Bubbles" not in done.stderr


def test_debug_shows_the_system_prompt_that_the_model_received(place: Place) -> None:
    place.model.play({"default": {"reply": "done"}})
    done = place.run("agent", "-m", "hi", "-s", "debug", "--debug")
    received = place.model.seen()["bodies"][-1]["messages"][0]["content"]
    assert received.strip() in done.stderr


# -- interactive -----------------------------------------------------------------------------------


def test_a_conversation(place: Place) -> None:
    place.model.play({"rules": [{"when": "weather", "reply": "Sunny, **22** degrees."}], "default": {"reply": "Hello."}})
    with place.terminal("-s", "talk") as terminal:
        terminal.expect("session talk · 0 messages")
        terminal.type("hi there")
        terminal.expect("› hi there")
        terminal.expect("Hello.")
        terminal.type("how is the weather?")
        terminal.expect("Sunny, 22 degrees.")
        assert "\x1b[1m22" in terminal.raw
        terminal.type("quit")
        assert terminal.end() == 0
        assert terminal.modes_now() == terminal.modes
    assert [m["text"] for m in place.history("talk") if m["role"] == "user"] == ["hi there", "how is the weather?"]


def test_text_is_shown_as_it_comes(place: Place) -> None:
    place.model.play({"default": {"reply": "alpha beta gamma delta epsilon zeta", "chunks": 6, "pause_s": 0.5}})
    with place.terminal("-s", "streaming") as terminal:
        terminal.expect("session streaming")
        terminal.type("go")
        terminal.expect("alpha")
        assert place.ask("status")["open"] == 1
        terminal.expect("zeta")


def test_tool_hints_and_failures_are_shown(place: Place) -> None:
    missing = {"name": "read_file", "arguments": {"path": "missing.txt"}}
    place.model.play({"rules": [{"when": "look", "times": 1, "reply": "One moment.", "calls": [missing]}], "default": {"reply": "It is gone."}})
    with place.terminal("-s", "hints") as terminal:
        terminal.expect("session hints")
        terminal.type("look")
        terminal.expect("One moment.")
        terminal.expect('· read_file("missing.txt")')
        terminal.expect('✗ read_file("missing.txt")')
        terminal.expect("It is gone.")


def test_ctrl_c_stops_the_turn_and_not_the_program(place: Place) -> None:
    place.model.play({"rules": [{"when": "sleep", "times": 1, "calls": [exec_("sleep 60")]}], "default": {"reply": "still here"}})
    with place.terminal("-s", "stop") as terminal:
        terminal.expect("session stop")
        terminal.type("sleep")
        terminal.expect("· exec")
        terminal.press("c")
        terminal.expect("Stopped.")
        terminal.press("c")
        terminal.expect("Ctrl-D or exit leaves")
        terminal.type("words that are thrown away", enter=False)
        terminal.press("c")
        terminal.type("hello?")
        terminal.expect("still here")
        terminal.press("d")
        assert terminal.end() == 0
    assert [m["text"] for m in place.history("stop") if m["role"] == "user"] == ["sleep", "hello?"]


def test_many_ctrl_c_stop_once(place: Place) -> None:
    place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    with place.terminal("-s", "many") as terminal:
        terminal.expect("session many")
        terminal.type("go on")
        until(lambda: place.model.seen()["requests"] == 1)
        for _ in range(5):
            terminal.press("c")
        assert "Nothing is running" not in terminal.expect("Stopped.")
        place.model.play({"default": {"reply": "still here"}})
        terminal.type("hello?")
        assert "Nothing is running" not in terminal.expect("still here")


def test_ctrl_c_in_the_terminal_while_agentd_is_down(own_place: Place) -> None:
    own_place.model.play({"default": {"delay_s": 30, "reply": "too late"}})
    with own_place.terminal("-s", "down") as terminal:
        terminal.expect("session down")
        terminal.type("go on")
        until(lambda: own_place.model.seen()["requests"] == 1)
        own_place.kill("agentd")
        terminal.press("c")
        terminal.expect("Stopped.")


def test_modeld_that_dies_in_mid_conversation_is_started_again(own_place: Place) -> None:
    own_place.model.play({"rules": [{"times": 1, "delay_s": 20, "reply": "lost"}], "default": {"reply": "recovered"}})
    with own_place.terminal("-s", "x") as terminal:
        terminal.expect("session x")
        terminal.type("one")
        until(lambda: own_place.model.seen()["requests"] == 1)
        own_place.kill("modeld")
        terminal.expect("recovered")


def test_ctrl_z_suspends(place: Place) -> None:
    place.model.play({"default": {"reply": "back"}})
    with place.terminal("-s", "suspended", group=True) as terminal:
        terminal.expect("session suspended")
        until(lambda: terminal.modes_now() != terminal.modes)
        terminal.press("z")
        until(lambda: _state(terminal.process.pid) == "T")
        assert terminal.modes_now()[3] == terminal.modes[3]  # it echoes, and gives whole lines
        terminal.process.send_signal(signal.SIGCONT)
        until(lambda: terminal.modes_now() != terminal.modes)
        terminal.type("hello")
        terminal.expect("back")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_words_typed_while_a_turn_runs_join_it(place: Place) -> None:
    place.model.play({"rules": [{"when": "start", "times": 1, "calls": [exec_("sleep 1.5")]}], "default": {"reply": "both are done"}})
    with place.terminal("-s", "join") as terminal:
        terminal.expect("session join")
        terminal.type("start")
        terminal.expect("· exec")
        terminal.type("and the other one")
        terminal.expect("both are done")
        terminal.type("exit")
        terminal.end()
        assert terminal.text.count("both are done") == 1
    turns = {m["turn"] for m in place.history("join")}
    assert len(turns) == 1


def test_a_paste_of_several_lines_is_one_message(place: Place) -> None:
    place.model.play({"default": {"reply": "read"}})
    with place.terminal("-s", "paste") as terminal:
        terminal.expect("session paste")
        terminal.type("\x1b[200~def f():\n    return 1\n\x1b[201~")
        terminal.expect("read")
    assert place.history("paste")[0]["text"] == "def f():\n    return 1"


def test_what_was_typed_is_kept_for_the_next_time_and_for_nobody_else(place: Place) -> None:
    place.model.play({"default": {"reply": "noted"}})
    with place.terminal("-s", "recall") as terminal:
        terminal.expect("session recall")
        terminal.type("a remarkable sentence")
        terminal.expect("noted")
        terminal.type("exit")
        terminal.end()
    typed = place.home.root / "channels" / "cli" / "typed"
    assert typed.stat().st_mode & 0o077 == 0
    with place.terminal("-s", "recall") as terminal:
        terminal.expect("session recall")
        terminal.type("\x1b[A\x1b[A", enter=False)
        terminal.expect("a remarkable sentence")
        terminal.type("")
        terminal.expect("noted")


def test_what_was_said_while_away_is_shown_once(place: Place) -> None:
    place.model.play({"default": {"reply": "you came back"}})
    with place.terminal("-s", "away") as terminal:
        terminal.expect("session away")
        place.model.play({"default": {"reply": "the late reply", "delay_s": 1}})
        terminal.type("a long task")
        until(lambda: place.ask("status")["open"] == 1)
        terminal.press("d")
        terminal.expect("the turn goes on")
        assert terminal.end() == 0
    until(lambda: place.ask("status")["open"] == 0)
    with place.terminal("-s", "away") as terminal:
        terminal.expect("while you were away:")
        terminal.expect("› a long task")
        terminal.expect("the late reply")
        terminal.type("exit")
        terminal.end()
    with place.terminal("-s", "away") as terminal:
        terminal.expect("session away · 2 messages")
        terminal.type("exit")
        terminal.end()
        assert "the late reply" not in terminal.text


def test_words_typed_while_a_summary_is_made_are_answered(place: Place) -> None:
    long = "this is what there is to be said of it, and " * 20
    place.model.play({"rules": [{"when": "replaced by a summary", "delay_s": 3, "reply": "Much was said."}], "default": {"reply": long}})
    with place.terminal("-s", "sum") as terminal:
        terminal.expect("session sum")
        for n in range(4):
            terminal.type(f"number {n}")
            until(lambda n=n: len(place.history("sum")) == 2 * n + 2)
        place.model.play({"rules": [{"when": "replaced by a summary", "delay_s": 3, "reply": "Much was said."}], "default": {"reply": "here"}})
        terminal.type("/compact")
        terminal.type("are you there?")
        terminal.expect("here")
        terminal.expect("tokens before")
        terminal.type("exit")
        terminal.end()


def test_what_was_entered_is_sent_though_the_terminal_leaves_at_once(place: Place) -> None:
    place.model.play({"default": {"reply": "ok"}})
    with place.terminal("-s", "leave") as terminal:
        terminal.expect("session leave")
        for word in ("one", "two", "three"):
            terminal.type(word)
        terminal.press("d")
        terminal.end()
    until(lambda: all(word in str(place.history("leave")) for word in ("one", "two", "three")))


def test_a_turn_that_still_runs_is_taken_up_again(place: Place) -> None:
    place.model.play({"default": {"reply": "it took a while", "delay_s": 4}})
    with place.terminal("-s", "again") as terminal:
        terminal.expect("session again")
        terminal.type("take your time")
        until(lambda: place.ask("status")["open"] == 1)
        terminal.press("d")
        terminal.end()
    with place.terminal("-s", "again") as terminal:
        terminal.expect("Ctrl-C stops")
        terminal.expect("it took a while")


def test_sessions_settings_and_the_prompt(place: Place) -> None:
    place.model.play({"default": {"reply": "ok"}})
    with place.terminal("-s", "first") as terminal:
        terminal.expect("session first")
        terminal.type("/session")
        terminal.expect("This chat is in the session first")
        terminal.type("/session second")
        terminal.expect("session second · 0 messages")
        terminal.type("/config temperature 0.25")
        terminal.expect("0.25   (this session)")
        terminal.type("/config temperature hot")
        terminal.expect("It is a number from 0 to 2")
        terminal.type("/config nonsense 1")
        terminal.expect("There is no setting nonsense")
        terminal.type("hello")
        terminal.expect("ok")
        terminal.type("/config temperature -")
        terminal.expect("0.7")
        terminal.type("/prompt")
        terminal.expect("You are Bubbles")
        terminal.expect("Tools: read_file")
        terminal.type("/compact")
        terminal.expect("nothing to summarise")
        terminal.type("/help")
        terminal.expect("/session [NAME]")
        terminal.expect("Ctrl-C stops the turn")
        terminal.type("/stpo")
        terminal.expect("Did you mean /stop?")
        terminal.type("/stop")
        terminal.expect("Nothing is running")
        terminal.type("/session -")
        terminal.expect("session first ·")
    assert [m["session"] for m in place.history("second")] == ["second", "second"]
    assert place.model.seen()["bodies"][-1]["temperature"] == 0.25


def test_commands_are_answered_beside_the_turn_that_runs(place: Place) -> None:
    place.model.play({"rules": [{"when": "sleep", "times": 1, "calls": [exec_("sleep 60")]}], "default": {"reply": "still here"}})
    with place.terminal("-s", "beside-it") as terminal:
        terminal.expect("session beside-it")
        terminal.type("sleep")
        terminal.expect("· exec")
        terminal.type("/status")
        terminal.expect("running exec")
        terminal.type("/stop")
        assert "Nothing is running" not in terminal.expect("Stopped.")
        terminal.type("hello?")
        terminal.expect("still here")
    assert [m["text"] for m in place.history("beside-it") if m["role"] == "user"] == ["sleep", "hello?"]


def test_retry_in_the_terminal_shows_the_answer(place: Place) -> None:
    place.model.play({"rules": [{"times": 1, "status": 500}], "default": {"reply": "four"}})
    with place.terminal("-s", "retry") as terminal:
        terminal.expect("session retry")
        terminal.type("what is 2+2?")
        terminal.expect("the model cannot be reached")
        terminal.type("/retry")
        terminal.expect("Once more: what is 2+2?")
        terminal.expect("four")


@pytest.mark.parametrize("argv", [("ask",), ("agent", "-m")])
def test_a_command_is_answered_to_a_script(place: Place, argv: tuple[str, ...]) -> None:
    place.model.play({"rules": [{"when": "sum", "times": 1, "status": 500}], "default": {"reply": "four"}})
    session = f"script-{argv[0]}"
    done = place.run(*argv, "/status", "-s", session)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Session: {session}\n" in done.stdout
    assert place.run(*argv, "/session other", "-s", session).stdout.startswith("Type /session NAME in bubbles agent")
    assert place.run(*argv, "/stop", "-s", session).stdout == "Nothing is running.\n"
    assert place.run(*argv, "a sum", "-s", session).returncode == 1
    again = place.run(*argv, "/retry", "-s", session)
    assert (again.returncode, again.stdout) == (0, "Once more: a sum\nfour\n")
    assert place.run(*argv, "/etc/hosts is odd", "-s", session).stdout == "four\n"


def test_a_relative_workspace_is_meant_where_it_is_typed(place: Place, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    asking = begun(place, "ask", "-s", "relative", "/config workspace add site rw", cwd=tmp_path)
    assert asking.communicate(timeout=60)[0] == f"workspaces: {tmp_path}/site (rw)   (this session)\n"
    assert asking.returncode == 0


def test_tab_completes_commands_settings_and_values(place: Place) -> None:
    with place.terminal("-s", "tabs") as terminal:
        terminal.expect("session tabs")
        for typed, completed in (("/conf", "ig"), (" sand", "box"), (" local_", "isolated")):
            terminal.type(f"{typed}\t", enter=False)
            terminal.expect(completed)
        terminal.type("")
        terminal.expect("sandbox: local_isolated   (this session)")


def test_a_daemon_that_dies_is_started_again_in_mid_conversation(own_place: Place) -> None:
    own_place.model.play({"default": {"reply": "hello"}})
    with own_place.terminal("-s", "x") as terminal:
        terminal.expect("session x")
        terminal.type("one")
        terminal.expect("hello")
        own_place.model.play({"rules": [{"times": 1, "delay_s": 20, "reply": "lost"}], "default": {"reply": "recovered"}})
        terminal.type("two")
        until(lambda: own_place.model.seen()["requests"] == 1)
        own_place.kill("agentd")
        own_place.kill("modeld")
        terminal.expect("recovered", timeout_s=60)


def test_a_failure_is_told_and_the_line_is_free_again(place: Place) -> None:
    place.model.play({"rules": [{"when": "break", "status": 401, "times": 2}], "default": {"reply": "fine"}})
    with place.terminal("-s", "failure") as terminal:
        terminal.expect("session failure")
        terminal.type("break")
        terminal.expect("did not accept the key")
        terminal.type("break again")
        terminal.expect("no answer (not authorized)")
        terminal.type("and now?")
        terminal.expect("fine")


def test_sigterm_gives_the_terminal_back(place: Place) -> None:
    with place.terminal("-s", "term") as terminal:
        terminal.expect("session term")
        until(lambda: terminal.modes_now() != terminal.modes)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.end() == 0
        assert terminal.modes_now() == terminal.modes


def test_the_interactive_terminal_needs_a_terminal_to_write_to(place: Place) -> None:
    with place.terminal("-s", "pipe") as terminal:
        done = subprocess.run(
            [BIN / "bubbles", "agent"], stdin=terminal._slave, capture_output=True, text=True, env={**os.environ, **place.env}, timeout=60
        )
    assert done.returncode == 64
    assert "bubbles agent -m TEXT" in done.stderr


def test_started_daemons_end_when_nobody_is_left(own_place: Place) -> None:
    """With the real 30 s this would be a long test: agentd is started here, with 1 s, before the terminal comes."""
    from bubbles import starter

    own_place.model.play({"default": {"reply": "hi"}})
    starter.ensure(own_place.home, ["agentd", "modeld", "cron"], until_idle=1)
    with own_place.terminal("-s", "x") as terminal:
        terminal.expect("session x")
        time.sleep(2.5)
        assert is_running(own_place.home, "agentd")
        terminal.type("hello")
        terminal.expect("hi")
        terminal.type("exit")
        terminal.end()
    until(lambda: not any(is_running(own_place.home, name) for name in ("agentd", "modeld", "cron")))


def test_settings_of_the_installation_are_read(own_place: Place) -> None:
    configure(own_place.home, own_place.model.url, model="another", max_tool_iterations=1)
    own_place.model.play({"default": {"calls": [LIST]}})
    done = own_place.run("agent", "-m", "loop")
    assert done.returncode == 1
    assert done.stderr.startswith("bubbles: I stopped after 1 step")
    assert json.loads(own_place.run("status", "--json").stdout)["model"] == "another"
