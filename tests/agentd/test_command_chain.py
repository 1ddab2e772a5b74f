"""Commands through the real chain: from a chat's queue to its answer, beside turns, and over kills."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.world import World, world

CHAT = "telegram-42"
WAIT = {"when": "wait", "calls": [call("exec", command="touch begun; while [ ! -e go ]; do sleep 0.05; done")], "times": 1}


def tell(w: World, id: str, text: str, *, owner: bool = True, queue: str = "telegram", **more: Any) -> str:
    """Leave a message of a chat's in its queue, and ring."""
    found = Queue(w.home.inbound(queue))
    found.prepare()
    found.put(id, to_dict(Inbound(id=id, at=time.time(), channel=queue, chat="42", text=text, sender=Sender("7", "Ann", owner=owner), **more)))
    w.ring()
    return id


def told(home: Home) -> dict[str, str]:
    """What waits to be sent to the chat, by id."""
    return {body["id"]: body["text"] for path in (home.outbound("telegram") / "new").glob("*.json") for body in [json.loads(path.read_text())]}


def answer(w: World, id: str) -> str:
    return str(w.until(lambda: told(w.home).get(f"{id}.0.0")))


def finished(w: World, id: str) -> bool:
    return (w.home.inbound("telegram") / "done" / f"{id}.json").exists()


def begin(w: World) -> None:
    """A turn that waits for `go`."""
    tell(w, "t-words", "wait for it")
    w.until((w.home.session(CHAT) / "work" / "begun").exists)


def over(w: World, turns: int = 1) -> bool:
    """Whether so many turns ended, and none is open."""
    return len(w.ends(CHAT)) == turns and not w.journal(CHAT)


def go(w: World) -> None:
    (w.home.session(CHAT) / "work" / "go").touch()


def test_a_chat_is_answered_and_the_model_never_sees_it(home: Home) -> None:
    with world(home, {"default": {"reply": "fine"}}) as w:
        w.start()
        assert answer(w, tell(w, "t-1", "/status")).startswith(f"Session: {CHAT}\n")
        (body,) = [json.loads(path.read_text()) for path in (home.outbound("telegram") / "new").glob("*.json")]
        assert (body["origin"], body["chat"], body["session"]) == ("notice", "42", CHAT)
        assert answer(w, tell(w, "t-2", "<@bot> ／status@bot", is_group=True, mentioned=True))
        assert "Did you mean /config?" in answer(w, tell(w, "t-3", "/confg x"))
        assert w.fake.seen()["requests"] == 0
        assert w.history(CHAT) == []
        tell(w, "t-4", "/etc/hosts is odd")
        w.until(lambda: len(w.ends(CHAT)) == 1)
        assert w.fake.seen()["requests"] == 1


def test_a_command_acts_beside_the_turn_that_runs(home: Home) -> None:
    with world(home, {"rules": [WAIT], "default": {"reply": "done"}}) as w:
        w.start()
        begin(w)
        assert ": running exec\n" in answer(w, tell(w, "t-1", "/status"))
        assert "0.3" in answer(w, tell(w, "t-2", "/config temperature 0.3"))
        assert answer(w, tell(w, "t-3", "/retry")).startswith("Something is running")
        assert w.journal(CHAT)
        go(w)
        w.until(lambda: w.ends(CHAT))
        assert [m["id"] for m in w.ends(CHAT)[0]["messages"]] == ["t-words"]
        assert "/" not in "".join(m["content"] for m in w.history(CHAT) if m["role"] == "user")
        assert w.fake.seen()["bodies"][-1]["temperature"] == 0.3  # from the next request on


def test_stop_is_told_by_the_turn_alone(home: Home) -> None:
    with world(home, {"rules": [WAIT], "default": {"reply": "done"}}) as w:
        w.start()
        begin(w)
        tell(w, "t-stop", "/stop")
        w.until(lambda: over(w) and finished(w, "t-stop"))
        assert w.ends(CHAT)[0]["outcome"] == "stopped"
        w.until(lambda: list(told(home).values()) == ["Stopped."])
        assert answer(w, tell(w, "t-again", "/stop")) == "Nothing is running."


def test_words_and_the_stop_behind_them_come_at_once(home: Home) -> None:
    with world(home, {"default": {"endless": True}}) as w:
        w.put("go on for ever", CHAT, id="cli-1")
        w.put("/stop", CHAT, id="cli-2")
        w.start()
        assert w.wait("cli-1", CHAT).outcome == "stopped"
        heard = w.wait("cli-2", CHAT)
        assert (heard.outcome, heard.text) == ("command", "")


def test_all_that_was_said_before_a_stop_is_stopped(home: Home) -> None:
    with world(home, {"default": {"endless": True}}) as w:
        words = [w.put(f"and {n}", CHAT, id=f"cli-{n}") for n in range(5)]
        w.put("/stop", CHAT, id="cli-9")
        w.start()
        assert {w.wait(id, CHAT).outcome for id in words} == {"stopped"}
        assert w.wait("cli-9", CHAT).text == ""
        assert w.journal(CHAT) == b""


def test_a_stranger_may_ask_and_stop_and_change_nothing(home: Home) -> None:
    with world(home, {"rules": [WAIT], "default": {"reply": "done"}}) as w:
        w.start()
        begin(w)
        assert "Only the owner" in answer(w, tell(w, "t-1", "/config sandbox local", owner=False, is_group=True))
        assert answer(w, tell(w, "t-2", "/status", owner=False)).startswith("Session: ")
        tell(w, "t-3", "/stop", owner=False)
        w.until(lambda: w.ends(CHAT))
        assert w.ask("session.show", session=CHAT)["overrides"] == {}


@pytest.mark.parametrize("queue", ["cron", "agentd"])
def test_what_no_person_wrote_is_no_command(home: Home, queue: str) -> None:
    with world(home, {"default": {"reply": "words"}}) as w:
        w.start()
        tell(w, "j-1", "/new", queue=queue, session="jobs", job="j" if queue == "cron" else "")
        w.until(lambda: w.ends("jobs"))
        assert w.history("jobs")[0]["content"].endswith("/new")


def test_words_to_nobody_are_no_command(home: Home) -> None:
    with world(home, {"default": {"reply": "words"}}) as w:
        w.start()
        tell(w, "t-1", "/status", is_group=True, wakes=False)
        w.until(lambda: finished(w, "t-1"))
        assert told(home) == {}


def test_a_chat_goes_to_another_session_and_back(home: Home) -> None:
    with world(home, {"default": {"reply": "here"}}) as w:
        w.start()
        answer(w, tell(w, "t-1", "/session work"))
        tell(w, "t-2", "are you there?")
        w.until(lambda: w.ends("work"))
        assert answer(w, tell(w, "t-3", "/session")).startswith("This chat is in the session work.")
        answer(w, tell(w, "t-4", "/session -"))
        tell(w, "t-5", "and here?")
        w.until(lambda: w.ends(CHAT))


def test_the_last_words_are_answered_after_all(home: Home) -> None:
    with world(home, {"rules": [{"times": 1, "status": 500}], "default": {"reply": "four"}}) as w:
        w.start()
        tell(w, "t-1", "what is 2+2?", message="m1")
        w.until(lambda: over(w))
        assert answer(w, tell(w, "t-2", "/retry", message="m2")) == "Once more: what is 2+2?"
        assert answer(w, "t-2.retry") == "four"
        assert [m["text"] for end in w.ends(CHAT) for m in end["messages"]] == ["what is 2+2?"] * 2


def test_a_session_that_cannot_be_used_is_mended_by_its_owner(home: Home) -> None:
    with world(home, {"default": {"reply": "back"}}) as w:
        folder = home.session(CHAT)
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"version": 1, "temperature": 99}')
        w.start()
        assert answer(w, tell(w, "t-1", "/status")).startswith("This session cannot be used")
        assert "/config temperature -" in answer(w, tell(w, "t-2", "/config"))
        assert answer(w, tell(w, "t-3", "/help")).startswith("/help")
        assert not any(str(home.root) in text for text in told(home).values())
        assert answer(w, tell(w, "t-4", "/config temperature -")) == "temperature: 0.7"
        tell(w, "t-5", "hello")
        w.until(lambda: w.ends(CHAT))


def again(w: World, id: str) -> None:
    """Kill agentd as if that had been between the act and the message's end, and start it."""
    w.until(lambda: finished(w, id))
    w.kill("agentd")
    spool = w.home.inbound("telegram")
    os.rename(spool / "done" / f"{id}.json", spool / "cur" / f"{id}.json")
    w.start("agentd")
    w.until(lambda: finished(w, id))


def standing(w: World) -> dict[str, Any]:
    shown = w.ask("session.show", session=CHAT)
    return {"turns": len(w.ends(CHAT)), **{key: shown[key] for key in ("settings", "overrides", "messages")}}


@pytest.mark.parametrize(
    "text", ["/new", "/config temperature 0.3", "/config temperature -", "/model custom/other", "/session work", "/compact", "/retry"]
)
def test_killed_between_the_act_and_the_messages_end(home: Home, text: str) -> None:
    with world(home, {"default": {"reply": "fine"}}) as w:
        w.start()
        tell(w, "t-words", "hello")
        w.until(lambda: over(w))
        first = answer(w, tell(w, "t-cmd", text))
        w.until(lambda: over(w, 2 if text == "/retry" else 1))
        before = standing(w)
        again(w, "t-cmd")
        assert answer(w, "t-cmd") == first
        assert standing(w) == before


def test_killed_after_a_stop(home: Home) -> None:
    with world(home, {"rules": [WAIT], "default": {"reply": "done"}}) as w:
        w.start()
        begin(w)
        tell(w, "t-stop", "/stop")
        w.until(lambda: over(w))
        again(w, "t-stop")
        assert list(told(home).values()) == ["Stopped."]
        assert len(w.ends(CHAT)) == 1


def test_a_compaction_holds_up_nobody(home: Home) -> None:
    long = "this is what there is to be said of it, and " * 20
    with world(home, {"default": {"reply": long}}) as w:
        w.start()
        for n in range(4):
            w.say(f"number {n}", CHAT)
        w.fake.play({"rules": [{"when": "replaced by a summary", "delay_s": 4, "reply": "Much was said."}], "default": {"reply": "here"}})
        tell(w, "t-1", "/compact")
        w.until(lambda: w.fake.seen()["open"])
        assert answer(w, tell(w, "t-2", "/compact")) == "A summary is being made already."
        assert "making a summary" in answer(w, tell(w, "t-3", "/status"))
        assert w.say("are you there?", CHAT).text == "here"
        assert "t-1.0.0" not in told(home)
        assert answer(w, "t-1").startswith("Summarised: ")
