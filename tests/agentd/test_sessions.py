"""Whose words enter which session, what is overheard, what has to wait, and where replies go: real daemons, chats without a platform."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bubbles.messages import Inbound, Outbound, Sender, from_dict, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.world import World, world

_UNTIL = {"name": "exec", "arguments": {"command": "touch begun; while [ ! -e go ]; do sleep 0.05; done"}}
SLOW = {"rules": [{"when": "wait", "calls": [_UNTIL], "times": 1}]}
ECHO = {"default": {"reply": "Yes."}}


def chat(world: World, id: str, text: str, *, channel: str = "telegram", to: str = "42", sender: str = "", owner: bool = True, **more: Any) -> str:
    """Leave a platform's message in its queue."""
    queue = Queue(world.home.inbound(channel))
    queue.prepare()
    about = Sender(sender or to, sender or to, owner=owner)
    queue.put(id, to_dict(Inbound(id=id, at=time.time(), channel=channel, chat=to, text=text, message=f"p{id}", sender=about, **more)))
    return id


def sent(world: World, channel: str = "telegram") -> list[Outbound]:
    """What lies in a channel's outbound queue."""
    return [from_dict(Outbound, item.body) for item in Queue(world.home.outbound(channel)).list("new")]


def ended(world: World, session: str, *ids: str) -> bool:
    return set(ids) <= {m["id"] for end in world.ends(session) for m in end["messages"]}


def asked(world: World) -> list[str]:
    """The last message of each request that the model saw."""
    return [body["messages"][-1]["content"] for body in world.fake.seen()["bodies"]]


def test_a_person_goes_on_in_another_chat_and_is_answered_there(home: Home) -> None:
    people = {"ann": ["telegram:42", "feishu:ou_ann"]}
    with world(home, ECHO, channels__session_mode="user", channels__people=people) as there:
        there.start()
        chat(there, "m1", "one")
        there.ring()
        there.until(lambda: ended(there, "ann", "m1"))
        chat(there, "m2", "two", channel="feishu", to="oc_7", sender="ou_ann")
        there.ring()
        there.until(lambda: ended(there, "ann", "m2"))
        assert [(out.chat, out.reply_to) for out in sent(there)] == [("42", "pm1")]
        there.until(lambda: [(out.chat, out.reply_to) for out in sent(there, "feishu")] == [("oc_7", "pm2")])
        assert [m["role"] for m in there.history("ann")] == ["user", "assistant"] * 2


def test_in_one_turn_each_chat_is_answered_and_a_group_hears_no_private_words(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}, channels__session_mode="user") as there:
        there.start()
        chat(there, "m1", "wait")
        there.ring()
        there.until(lambda: (home.session("main") / "work" / "begun").exists())
        chat(there, "m2", "and from here", channel="slack", to="D1")
        chat(there, "g1", "what is up?", channel="slack", to="C1", sender="U9", owner=False, is_group=True, mentioned=True)
        there.ring()
        there.until(lambda: ended(there, "slack-C1", "g1"))
        (home.session("main") / "work" / "go").touch()
        there.until(lambda: ended(there, "main", "m1", "m2"))
        there.until(lambda: [out.chat for out in sent(there)] == ["42"])
        there.until(lambda: sorted(out.chat for out in sent(there, "slack")) == ["C1", "D1"])
        assert "and from here" not in json.dumps(there.history("slack-C1"))


def test_one_session_for_all_answers_nobody_with_what_was_said_to_others(home: Home) -> None:
    rules = [{"when": "salary", "calls": [_UNTIL], "times": 1}, {"when": "go", "reply": "Here you are."}]
    script = {"rules": rules, "default": {"reply": "It is 42."}}
    with world(home, script, channels__session_mode="global") as there:
        there.start()
        chat(there, "m1", "my salary?")
        there.ring()
        there.until(lambda: (home.session("main") / "work" / "begun").exists())
        chat(there, "g1", "@bot go", to="G", sender="Eve", owner=False, is_group=True, mentioned=True)
        chat(there, "m2", "be quick", to="42")
        there.ring()
        queue = Queue(home.inbound("telegram"))
        there.until(lambda: queue.find("m2") == "done")
        assert queue.find("g1") == "new"
        (home.session("main") / "work" / "go").touch()
        there.until(lambda: ended(there, "main", "m1", "m2", "g1"))
        there.until(lambda: len(sent(there)) == 2)
        assert [(out.chat, out.text) for out in sent(there)] == [("42", "It is 42."), ("G", "Here you are.")]


def test_whoever_writes_to_a_session_that_cannot_be_used_is_told_no_more_than_that(home: Home) -> None:
    with world(home) as there:
        there.start()
        for id in ("m1", "m2"):
            (home.session("telegram-42")).mkdir(exist_ok=True)
            (home.session("telegram-42") / "config.json").write_text("{")
            chat(there, id, "hi")
        there.ring()
        there.until(lambda: Queue(home.inbound("telegram")).find("m2") == "held")
        told = [out.text for out in sent(there)]
        assert len(told) == 1, "once a minute"
        assert "bubbles status" in told[0]
        assert str(home.root) not in told[0]
        assert "JSON" not in told[0]


def test_overheard_words_wake_nobody_and_are_shown_once_with_their_speakers(home: Home) -> None:
    with world(home, ECHO) as there:
        there.start()
        for n, who in ((1, "Ann"), (2, "Bo")):
            chat(there, f"h{n}", f"the code is {n}{n}{n}", to="G", sender=who, owner=False, is_group=True, wakes=False)
        there.ring()
        there.until(lambda: Queue(there.home.inbound("telegram")).find("h2") == "done")
        assert there.fake.seen()["bodies"] == []
        assert sent(there) == []
        there.kill("agentd")
        there.start("agentd")
        for n in (1, 2):
            chat(there, f"m{n}", "what was the code?", to="G", sender="Ann", owner=False, is_group=True, mentioned=True)
            there.ring()
            there.until(lambda n=n: ended(there, "telegram-G", f"m{n}"))
        first, second = there.fake.seen()["bodies"]
        shown = first["messages"][-1]["content"]
        assert shown.index("Ann") < shown.index("111") < shown.index("Bo") < shown.index("222") < shown.index("what was")
        assert json.dumps(second).count("111") == 1


def test_overheard_words_that_come_while_it_works_are_shown_with_the_next_that_do_not(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}) as there:
        there.start()
        chat(there, "m1", "wait", to="G", is_group=True, mentioned=True)
        there.ring()
        work = home.session("telegram-G") / "work"
        there.until(lambda: (work / "begun").exists())
        chat(there, "h1", "overheard", to="G", sender="Bo", owner=False, is_group=True, wakes=False)
        there.ring()
        there.until(lambda: Queue(there.home.inbound("telegram")).find("h1") == "done")
        chat(there, "m2", "and you?", to="G", is_group=True, mentioned=True)
        there.ring()
        there.until(lambda: Queue(there.home.inbound("telegram")).find("m2") == "done")
        (work / "go").touch()
        there.until(lambda: ended(there, "telegram-G", "m1", "m2"))
        last = there.fake.seen()["bodies"][-1]["messages"][-1]["content"]
        assert last.index("overheard") < last.index("and you?")
        assert there.ends("telegram-G")[-1]["heard"] == ["h1"]


def test_a_failure_is_silent_where_the_assistant_was_not_spoken_to(home: Home) -> None:
    with world(home, {"default": {"status": 401}}) as there:
        there.start()
        chat(there, "g1", "somebody should look", to="G", is_group=True, mentioned=False)
        there.ring()
        there.until(lambda: ended(there, "telegram-G", "g1"))
        chat(there, "g2", "bot, look", to="G", is_group=True, mentioned=True)
        there.ring()
        there.until(lambda: ended(there, "telegram-G", "g2"))
        there.until(lambda: [out.reply_to for out in sent(there)] == ["pg2"])


def test_too_long_twice_is_told_with_the_second_try(home: Home) -> None:
    with world(home, ECHO) as there:
        there.start()
        for n in range(3):
            there.fake.play({"default": {"reply": f"yes {n} " * 400}})
            there.say("tell me " * 300)
        there.fake.play({"default": {"status": 400, "body": {"error": {"code": "context_length_exceeded", "message": "too long"}}}})
        heard = there.say("and now?")
        assert heard.outcome == "failed:context_too_long"
        assert "1 retry" in heard.text


def test_stop_ends_a_summary_that_is_being_made(home: Home) -> None:
    with world(home, ECHO) as there:
        there.start()
        for n in range(4):
            there.say(f"remember {n} " * 200)
        there.fake.play({"rules": [{"when": "about to be replaced", "endless": True}], **ECHO})
        summary = there.put("/compact")
        there.ring()
        there.until(lambda: "summary" in there.say("/status").text)
        assert there.say("/stop").text == "Stopped."
        assert there.wait(summary).outcome == "command"
        assert "summary" not in there.say("/status").text
        there.fake.play(ECHO)
        assert there.say("and now?").text == "Yes."


def test_a_job_waits_in_its_queue_while_people_are_served_and_then_runs(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}) as there:
        there.start()
        first = there.put("wait")
        there.ring()
        there.until(lambda: (home.session("s") / "work" / "begun").exists())
        for n in (1, 2, 3):
            there.put(f"job {n}", queue="cron", id=f"cron-j-{n}")
        there.ring()
        joined = there.put("and this")
        there.ring()
        there.until(lambda: Queue(home.inbound("cli")).find(joined) == "done")
        there.until(lambda: [Queue(home.inbound("cron")).find(f"cron-j-{n}") for n in (1, 2, 3)] == ["new"] * 3)
        assert there.ask("status")["sessions"][0]["waiting"] == 4
        (home.session("s") / "work" / "go").touch()
        assert there.wait(first).outcome == "replied"
        there.until(lambda: ended(there, "s", *(f"cron-j-{n}" for n in (1, 2, 3))))
        assert [end["turn"] for end in there.ends("s")][1:] == [f"cron-j-{n}" for n in (1, 2, 3)]


def test_what_is_too_much_waits_in_its_queue_and_all_of_it_is_shown_in_order(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}, agents__limits__queued=5) as there:
        there.start()
        first = there.put("wait")
        there.ring()
        there.until(lambda: (home.session("s") / "work" / "begun").exists())
        more = [there.put(f"word {n:02d}.") for n in range(17)]
        there.ring()
        queue = Queue(home.inbound("cli"))
        there.until(lambda: queue.find(more[4]) == "done")
        there.until(lambda: [queue.find(id) for id in more[5:]] == ["new"] * 12)
        there.kill("agentd")
        there.start("agentd")
        (home.session("s") / "work" / "go").touch()
        assert there.wait(first).outcome == "replied"
        there.until(lambda: ended(there, "s", *more))
        said = " ".join(m["content"] for m in there.history("s") if m["role"] == "user")
        places = [said.index(f"word {n:02d}.") for n in range(17)]
        assert places == sorted(places)


def test_one_who_waits_for_room_is_told_so(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}, agents__limits__queued=1) as there:
        there.start()
        there.put("wait")
        there.ring()
        there.until(lambda: (home.session("s") / "work" / "begun").exists())
        there.put("one")
        there.ring()
        last = there.put("two")
        heard = there.wait(last, on_part=lambda part: (home.session("s") / "work" / "go").touch() if "waits" in part else None)
        assert {"waits": {"limit": "queued", "most": 1}} in heard.parts
        assert heard.outcome == "replied"


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_whichever_of_those_that_wait_is_dropped_the_others_go_on(home: Home, dropped: int) -> None:
    with world(home, {**SLOW, **ECHO}, agents__limits__queued=1) as there:
        there.start()
        there.put("wait")
        there.ring()
        there.until(lambda: (home.session("s") / "work" / "begun").exists())
        there.put("one")
        there.ring()
        waiting = [there.put(f"more {n}") for n in range(3)]
        there.ring()
        there.until(lambda: there.ask("status")["sessions"][0]["waiting"] == 4)
        queue = Queue(home.inbound("cli"))
        assert there.until(lambda: queue.drop(waiting[dropped]))
        (home.session("s") / "work" / "go").touch()
        there.until(lambda: ended(there, "s", *(id for n, id in enumerate(waiting) if n != dropped)))
        assert there.say("and now?").outcome == "replied"


def test_a_burst_at_the_limit_keeps_its_order(home: Home) -> None:
    with world(home, ECHO, agents__limits__queued=1) as there:
        there.start()
        for burst in range(6):
            ids = [there.put(f"{burst}-{n}.") for n in range(4)]
            there.ring()
            there.until(lambda ids=ids: ended(there, "s", *ids))
        said = " ".join(m["content"] for m in there.history("s") if m["role"] == "user")
        places = [said.index(f"{burst}-{n}.") for burst in range(6) for n in range(4)]
        assert places == sorted(places)


def test_a_turn_that_waits_for_a_slot_is_stopped_at_once(home: Home) -> None:
    with world(home, {"rules": [{"when": "wait", "calls": [_UNTIL], "times": 1}], **ECHO}, agents__defaults__concurrency=1) as there:
        there.start()
        there.put("wait", "busy")
        there.ring()
        there.until(lambda: (home.session("busy") / "work" / "begun").exists())
        second = there.put("hello", "other")
        there.ring()
        there.until(lambda: b"UserSpoke" in there.journal("other"))
        assert there.say("/stop", "other").outcome == "command"
        assert there.wait(second, "other").outcome == "stopped"
        assert there.ends("busy") == []
        (home.session("busy") / "work" / "go").touch()


def test_many_answers_in_one_turn_are_no_end_of_its_steps(home: Home) -> None:
    with world(home, {"default": {"reply": "Yes.", "delay_s": 0.05}}, agents__defaults__max_tool_iterations=2) as there:
        there.start()
        ids = []
        for n in range(12):
            ids.append(there.put(f"word {n}"))
            there.ring()
            time.sleep(0.04)
        there.until(lambda: ended(there, "s", *ids))
        assert {end["outcome"] for end in there.ends("s")} == {"replied"}


def test_words_of_a_group_that_are_said_again_stay_in_the_group(home: Home) -> None:
    with world(home, {"default": {"status": 401}}, channels__session_mode="user") as there:
        there.start()
        chat(there, "g1", "@bot what is new?", to="G", sender="Eve", owner=False, is_group=True, mentioned=True)
        there.ring()
        there.until(lambda: ended(there, "telegram-G", "g1"))
        there.fake.play(ECHO)
        again = there.put("/retry", "telegram-G")
        there.ring()
        assert there.wait(again, "telegram-G").outcome == "command"
        there.until(lambda: ended(there, "telegram-G", f"{again}.retry"))
        assert not home.session("main").exists()
        assert there.fake.seen()["bodies"][-1]["messages"][-1]["content"].splitlines()[0].count("telegram group") == 1


def test_a_dropped_message_holds_up_nobody(home: Home) -> None:
    with world(home, {**SLOW, **ECHO}, agents__limits__queued=1) as there:
        there.start()
        there.put("wait")
        there.ring()
        there.until(lambda: (home.session("s") / "work" / "begun").exists())
        one, two, three = (there.put(text) for text in ("one", "two", "three"))
        there.ring()
        queue = Queue(home.inbound("cli"))
        there.until(lambda: queue.find(one) == "done")
        assert there.until(lambda: queue.drop(two))
        (home.session("s") / "work" / "go").touch()
        there.until(lambda: ended(there, "s", one, three))
        assert not ended(there, "s", two)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_turn_that_a_clock_began_takes_only_so_many_steps(home: Home, limit: int) -> None:
    script = {"default": {"calls": [{"name": "list_dir", "arguments": {"path": "."}}]}}
    with world(home, script, agents__limits__system_iterations=limit) as there:
        there.start()
        there.put("look", queue="cron", id="cron-j-1")
        there.ring()
        there.until(lambda: ended(there, "s", "cron-j-1"))
        assert there.ends("s")[0]["outcome"] == "limit"
        assert len(there.fake.seen()["bodies"]) == limit
