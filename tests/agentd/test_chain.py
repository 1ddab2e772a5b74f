"""A turn through the real chain: a terminal, agentd, modeld, a scripted model, real tools."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from bubbles.errors import BubblesError, DataError
from bubbles.ids import safe
from bubbles.kernel import turn as rules
from bubbles.paths import Home
from tests.agentd.world import World, world

WRITE = {"when": "write", "times": 1, "calls": [{"name": "write_file", "arguments": {"path": "notes.md", "content": "one\ntwo\n"}}]}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def roles(world: World, session: str = "s") -> list[str]:
    return [message["role"] for message in world.history(session)]


def test_a_question_is_answered_and_stands_in_history(home: Home) -> None:
    with world(home, {"default": {"reply": "4"}}) as w:
        w.start()
        heard = w.say("what is 2+2?")
        assert (heard.outcome, heard.text) == ("replied", "4")
        assert heard.says() == ["4"]
        assert "".join(part["text"] for part in heard.parts if "text" in part) == "4"
        user, assistant = w.history()
        assert user["content"].endswith("what is 2+2?")
        assert assistant == {"role": "assistant", "content": "4"}
        assert w.ends()[0]["messages"][0]["text"] == "what is 2+2?"
        assert w.until(lambda: (home.turns / "s.jsonl").read_bytes() == b"")


def test_tools_act_in_the_session_and_their_results_reach_the_model(home: Home) -> None:
    script = {
        "rules": [
            WRITE,
            {"when": "notes.md", "times": 1, "calls": [call("exec", command="wc -l < notes.md; pwd")]},
            {"when": "work", "reply": "two lines"},
        ]
    }
    with world(home, script) as w:
        w.start()
        heard = w.say("please write")
        assert heard.text == "two lines"
        work = home.session("s") / "work"
        assert (work / "notes.md").read_text() == "one\ntwo\n"
        results = [m["content"] for m in w.history() if m["role"] == "tool"]
        assert "2" in results[1]
        assert str(work) in results[1]
        assert [(p["tool"]["name"], p["tool"]["state"]) for p in heard.parts if "tool" in p] == [
            ("write_file", "start"),
            ("write_file", "finish"),
            ("exec", "start"),
            ("exec", "finish"),
        ]


def test_an_unknown_tool_and_wrong_arguments_are_told_to_the_model(home: Home) -> None:
    script = {"rules": [{"when": "go", "times": 1, "calls": [call("fly"), {"name": "exec", "arguments": "{broken"}]}], "default": {"reply": "sorry"}}
    with world(home, script) as w:
        w.start()
        assert w.say("go").text == "sorry"
        unknown, broken = (m["content"] for m in w.history() if m["role"] == "tool")
        assert "fly" in unknown
        assert "JSON" in broken


def test_words_in_mid_turn_come_before_the_next_call(home: Home) -> None:
    slow, never = call("exec", command="touch begun; sleep 3; echo slow"), call("exec", command="touch never")
    script = {"rules": [{"when": "first", "times": 1, "calls": [slow, never]}, {"when": "also this", "reply": "both"}]}
    with world(home, script) as w:
        w.start()
        first = w.put("first")
        w.ring()
        work = home.session("s") / "work"
        w.until(lambda: (work / "begun").exists())
        second = w.put("also this")
        w.ring()
        assert w.wait(second).text == w.wait(first).text == "both"
        assert not (work / "never").exists()
        assert rules.SKIPPED in [m["content"] for m in w.history() if m["role"] == "tool"]
        assert len(w.ends()) == 1


def test_preempt_cancels_the_request_in_flight(home: Home) -> None:
    script = {"rules": [{"when": "second", "reply": "both"}, {"when": "first", "endless": True}]}
    with world(home, script, agents__defaults__interjection="preempt") as w:
        w.start()
        first = w.put("first")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        second = w.put("second")
        w.ring()
        assert w.wait(second).text == w.wait(first).text == "both"
        w.until(lambda: not w.fake.seen()["open"])


def test_two_who_ask_in_one_session_each_get_their_own_answer(home: Home) -> None:
    script = {"rules": [{"when": "second", "reply": "to the second"}, {"when": "first", "reply": "to the first", "delay_s": 0.7}]}
    with world(home, script) as w:
        w.start()
        first = w.put("first")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        second = w.put("second")
        w.ring()
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(w.wait, [first, second])
        assert (one.text, one.says()) == ("to the first", ["to the first"])
        assert (two.text, two.says()) == ("to the second", ["to the second"])
        w.kill("agentd")
        w.start("agentd")
        assert (w.wait(first).text, w.wait(second).text) == ("to the first", "to the second")


def test_sessions_run_side_by_side_and_one_session_in_turn(home: Home) -> None:
    with world(home, {"default": {"reply": "ok", "echo": True, "delay_s": 0.05}}) as w:
        w.start()
        with ThreadPoolExecutor(8) as pool:
            heard = list(pool.map(lambda n: w.say(f"word {n}", f"s{n % 8}"), range(40)))
        assert {h.outcome for h in heard} == {"replied"}
        said = [m["content"].splitlines()[-1] for n in range(8) for m in w.history(f"s{n}") if m["role"] == "user"]
        assert sorted(line for text in said for line in [text]) != []
        words = [e["text"] for n in range(8) for end in w.ends(f"s{n}") for e in end["messages"]]
        assert sorted(words) == sorted(f"word {n}" for n in range(40))


def test_stop_ends_the_turn_and_what_it_started(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [call("exec", command="echo $$ > pid; exec sleep 300")]}], "default": {"reply": "fine"}}
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        pid = home.session("s") / "work" / "pid"
        w.until(lambda: pid.exists() and pid.read_text().strip())
        assert w.ask("turn.stop", session="s") == {"stopped": True}
        assert w.wait(id).outcome == "stopped"
        w.until(lambda: not _alive(int(pid.read_text())))
        assert w.ask("turn.stop", session="s") == {"stopped": False}
        assert w.say("hello").text == "fine"


def test_stop_while_the_model_speaks(home: Home) -> None:
    with world(home, {"rules": [{"when": "go", "endless": True, "times": 1}], "default": {"reply": "fine"}}) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        w.ask("turn.stop", session="s")
        assert w.wait(id).outcome == "stopped"
        w.until(lambda: not w.fake.seen()["open"])
        assert w.say("hello").text == "fine"
        assert roles(w) == ["user", "user", "assistant"]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_stop_at_once_starts_nothing(home: Home) -> None:
    with world(home, {"rules": [{"when": "fine?", "reply": "fine"}], "default": {"endless": True}}) as w:
        w.start()
        for n in range(20):
            id = w.put(f"go {n}")
            w.ring()
            w.until(lambda: w.ask("turn.stop", session="s")["stopped"])
            assert w.wait(id).outcome == "stopped"
        assert w.ask("status")["open"] == 0
        w.until(lambda: not w.fake.seen()["open"])
        assert w.say("fine?").text == "fine"
        said = w.fake.seen()["bodies"][-1]["messages"][-1]["content"]
        assert all(f"go {n}" in said for n in range(20))


def test_words_that_joined_are_stopped_too(home: Home) -> None:
    with world(home, {"default": {"endless": True}}) as w:
        w.start()
        first = w.put("first")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        second = w.put("second")
        w.ring()
        w.until(lambda: b"second" in w.journal())
        w.ask("turn.stop", session="s")
        assert w.wait(first).outcome == w.wait(second).outcome == "stopped"
        assert w.ask("status")["open"] == 0


def test_a_failed_model_is_told_by_category_and_never_poses_as_an_answer(home: Home) -> None:
    with world(home, {"default": {"status": 500}}) as w:
        w.start()
        heard = w.say("hello")
        assert heard.outcome == "failed:model_down"
        assert "cannot be reached" in heard.text
        assert w.say("hello again").text == ""  # once a minute, and the terminal is freed all the same
        assert roles(w) == ["user", "user"]
        w.fake.play({"default": {"reply": "back"}})
        assert w.say("and now?").text == "back"
        (body,) = w.fake.seen()["bodies"]
        assert [m["role"] for m in body["messages"]] == ["system", "user"]
        assert all(words in body["messages"][1]["content"] for words in ("hello", "hello again", "and now?"))


@pytest.mark.parametrize(("rule", "outcome"), [({"status": 401}, "not_authorized"), ({"status": 429}, "rate_limited"), ({"status": 400}, "rejected")])
def test_each_kind_of_failure_has_its_category(home: Home, rule: dict[str, Any], outcome: str) -> None:
    with world(home, {"default": rule}, agents__defaults__language="zh") as w:
        w.start()
        heard = w.say("hello")
        assert heard.outcome == f"failed:{outcome}"
        assert any("\u4e00" <= c <= "\u9fff" for c in heard.text)


def test_the_iteration_limit_is_told(home: Home) -> None:
    with world(home, {"default": {"calls": [call("list_dir", path=".")]}}, agents__defaults__max_tool_iterations=3) as w:
        w.start()
        heard = w.say("go on for ever")
        assert heard.outcome == "limit"
        assert "3" in heard.text
        assert w.fake.seen()["requests"] == 3


def test_a_system_turn_waits_for_the_session_and_fails_in_silence(home: Home) -> None:
    script = {"rules": [{"when": "busy", "reply": "done", "delay_s": 0.5}, {"when": "tick", "status": 500}]}
    with world(home, script) as w:
        w.start()
        busy = w.put("busy")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        tick = w.put("tick", queue="cron", job="j1")
        w.ring()
        assert w.wait(busy).text == "done"
        heard = w.wait(tick)
        assert heard.outcome == "failed:model_down"
        assert heard.text == ""
        assert [end["origin"] for end in w.ends()] == ["user", "system"]
        assert list((home.outbound("cron") / "new").glob("*outcome*"))


def test_what_ended_may_be_asked_for_again(home: Home) -> None:
    with world(home, {"default": {"reply": "yes"}}) as w:
        w.start()
        id = w.put("well?")
        w.ring()
        first = w.wait(id)
        assert w.wait(id).text == first.text == "yes"
        w.kill("agentd")
        w.start("agentd")
        assert w.wait(id).text == "yes"
        assert w.fake.seen()["requests"] == 1
        with pytest.raises(DataError):
            w.wait("cli-never-heard-of")


def test_a_message_that_is_none_is_held_and_told(home: Home) -> None:
    with world(home) as w:
        w.start()
        for body in ({"id": "bad", "at": "yesterday", "text": "x"}, {"id": "new", "at": 1.0, "text": "x", "version": 99}):
            queue = home.inbound("cli")
            for state in ("tmp", "new", "cur", "done", "held"):
                (queue / state).mkdir(parents=True, exist_ok=True)
            (queue / "new" / f"{body['id']}.json").write_text(json.dumps(body) + "\n")
        w.ring()
        w.until(lambda: len(list((home.inbound("cli") / "held").glob("*.json"))) == 2)
        assert w.say("still there?").text == "ok"


@pytest.mark.parametrize("name", ["../../etc", "a/b", "nul\0nul", "new\nline", "x" * 300, "工作", "-rf", ".", "con fig"])
def test_any_name_is_a_session(home: Home, name: str) -> None:
    with world(home) as w:
        w.start()
        assert w.say("hello", name).text == "ok"
        assert [path.name for path in home.sessions.iterdir()] == [safe(name)]
        assert {p.name for p in home.root.iterdir()} <= {"config.json", "sessions", "session_homes", "turns", "spool", "run", "log", "cron", "usage"}


def test_words_that_no_encoding_can_carry(home: Home) -> None:
    with world(home, {"default": {"reply": "seen", "echo": True}}) as w:
        w.start()
        assert w.say("half \ud83d of a face").outcome == "replied"
        assert w.say("all \ud83d\ude00 of it").text.endswith("\U0001f600 of it")


def test_a_request_begins_with_the_bytes_of_the_one_before(home: Home) -> None:
    with world(home, {"rules": [WRITE], "default": {"reply": "ok"}}) as w:
        w.start()
        for words in ("hello", "please write", "and again", "last"):
            w.say(words)
        raw = [text.encode().replace(b'],"', b"") for text in w.fake.seen()["raw"]]
        bodies = w.fake.seen()["bodies"]
        for before, after in zip(bodies, bodies[1:], strict=False):
            assert after["messages"][: len(before["messages"])] == before["messages"]
            assert after["tools"] == before["tools"]
        assert len(raw) == 5


def test_an_edit_of_memory_is_told_once_and_does_not_move_the_prompt(home: Home) -> None:
    with world(home) as w:
        w.start()
        w.say("hello")
        (home.session("s") / "MEMORY.md").write_text("The cat is called Miez.")
        w.say("and now")
        w.say("and then")
        bodies = w.fake.seen()["bodies"]
        assert len({body["messages"][0]["content"] for body in bodies}) == 1
        assert ["Miez" in body["messages"][-1]["content"] for body in bodies] == [False, True, False]
        w.kill("agentd")
        w.start("agentd")
        w.say("after a restart")
        assert "Miez" in w.fake.seen()["bodies"][-1]["messages"][0]["content"]


def test_an_edit_while_the_model_thinks_is_told_and_its_own_is_not(home: Home) -> None:
    own = call("write_file", path="../MEMORY.md", content="I wrote this.")
    script = {"rules": [{"when": "slowly", "delay_s": 0.7}, {"when": "note", "times": 1, "calls": [own]}]}
    with world(home, script) as w:
        w.start()
        id = w.put("slowly")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        (home.session("s") / "MEMORY.md").write_text("The cat is called Miez.")
        w.wait(id)
        assert w.say("take a note").outcome == "replied"
        assert "Miez" in [m for m in w.history() if m["role"] == "user"][-1]["content"]
        w.say("and now")
        assert "I wrote this" not in [m for m in w.history() if m["role"] == "user"][-1]["content"]
        assert (home.session("s") / "MEMORY.md").read_text() == "I wrote this."


def test_an_edit_of_a_session_s_configuration_counts_from_the_next_turn(home: Home) -> None:
    with world(home) as w:
        w.start()
        w.say("hello")
        path = home.session("s") / "config.json"
        path.write_text('{"system_prompt": "You are a parrot."}')
        w.say("and now")
        assert "parrot" in w.fake.seen()["bodies"][-1]["messages"][0]["content"]
        path.write_text('{"system_prompt"')
        assert w.say("held?").outcome == "held"
        path.unlink()
        assert w.say("fine?").outcome == "replied"


def test_without_a_model_the_owner_is_told_what_to_do(home: Home) -> None:
    with world(home, providers__custom__base_url="", agents__defaults__model="") as w:
        w.start()
        id = w.put("hello")
        w.ring()
        body = w.ask("turn.wait", message=id)
        assert body["outcome"] == "failed:not_set_up"
        assert body["remedy"]
        assert w.fake.seen()["requests"] == 0


def test_a_window_of_messages_keeps_the_summary(home: Home) -> None:
    script = {"rules": [{"when": "ummar", "reply": "They counted."}], "default": {"reply": "a number, and here is more to be said of numbers"}}
    with world(home, script, agents__defaults__memory_window=4) as w:
        w.start()
        for n in range(6):
            w.say(f"count {n} " + "word " * 60)
        assert len(w.fake.seen()["bodies"][-1]["messages"]) == 1 + 4 + 1
        w.ask("session.compact", session="s")
        for n in range(6, 9):
            w.say(f"count {n}")
        messages = w.fake.seen()["bodies"][-1]["messages"]
        assert "They counted." in messages[1]["content"]
        assert len(messages) == 1 + 4 + 1


def test_settings_of_a_session(home: Home) -> None:
    with world(home) as w:
        w.start()
        assert w.ask("session.show", session="s")["exists"] is False
        assert not home.session("s").exists()
        w.ask("session.set", session="s", key="model", value="custom/other")
        w.say("hello")
        assert w.fake.seen()["bodies"][-1]["model"] == "other"
        shown = w.ask("session.show", session="s")
        assert shown["overrides"] == {"model": "custom/other"}
        w.ask("session.set", session="s", key="system_prompt", value="You are a parrot.")
        assert "parrot" in w.ask("session.prompt", session="s")["text"]
        with pytest.raises(Exception, match="temperature"):
            w.ask("session.set", session="s", key="temperature", value=99)
        w.ask("session.set", session="s", key="model", value=None)
        w.say("hello")
        assert w.fake.seen()["bodies"][-1]["model"] == "fake-1"


def test_a_directory_that_nobody_may_lend_is_refused(home: Home) -> None:
    with world(home) as w:
        w.start()
        for path in ("/etc", str(home.root), "relative"):
            with pytest.raises(BubblesError):
                w.ask("session.set", session="s", key="workspaces", value=[{"path": path, "mode": "rw"}])
        assert w.ask("session.show", session="s")["overrides"] == {}


def test_compact_leaves_a_summary_and_the_whole_file(home: Home) -> None:
    script = {"rules": [{"when": "ummar", "reply": "They counted."}], "default": {"reply": "yes, that is a number and here is more to say of it"}}
    with world(home, script) as w:
        w.start()
        for n in range(6):
            w.say(f"count {n} " + "word " * 60)
        done = w.ask("session.compact", session="s")
        assert done["how"] == "model"
        assert done["after_tokens"] < done["before_tokens"]
        w.say("go on")
        first = w.fake.seen()["bodies"][-1]["messages"][1]["content"]
        assert "They counted." in first
        assert sum("count" in m["content"] for m in w.history()) == 6


def test_a_context_that_is_too_long_is_compacted_and_asked_again(home: Home) -> None:
    script = {"rules": [{"when": "ummar", "reply": "Much was said."}], "default": {"reply": "ok"}}
    with world(home, script, agents__defaults__keep_tokens=400, agents__defaults__result_tokens=200) as w:
        w.start()
        for n in range(8):
            assert w.say(f"{n} " + "word " * 300).outcome == "replied"
        used = w.ask("session.show", session="s")["tokens"]
        w.fake.play({**script, "window_tokens": used - 300})
        assert w.say("and now?").outcome == "replied"
        assert w.say("still here?").outcome == "replied"
        assert sum("word" in m["content"] for m in w.history()) == 8


def test_a_model_that_is_never_satisfied_ends_the_turn_and_keeps_the_history(home: Home) -> None:
    with world(home, {"default": {"reply": "ok"}}) as w:
        w.start()
        for n in range(4):
            w.say(f"{n} " + "word " * 200)
        w.fake.play({"default": {"status": 400, "error": "context_length_exceeded"}})
        heard = w.say("and now?")
        assert heard.outcome == "failed:context_too_long"
        assert w.fake.seen()["requests"] <= 6
        w.fake.play({"default": {"reply": "ok"}})
        assert w.say("better?").outcome == "replied"
        assert sum("word" in m["content"] for m in w.history()) == 4
