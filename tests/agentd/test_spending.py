"""What models cost, through the real daemons: booked once whoever is killed, told by /usage, and stopped by a budget in the middle of a turn."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bubbles import config
from bubbles.agentd.agent import Agent
from bubbles.agentd.commands import Commands
from bubbles.agentd.spending import Entry, Pages
from bubbles.agentd.texts import told
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.test_commands import Room
from tests.agentd.world import World, world
from tests.programs.conftest import a_place


def used(tokens: int, output: int = 10) -> dict[str, Any]:
    return {"prompt_tokens": tokens - output, "completion_tokens": output, "total_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 3}}


def booked(home: Home) -> list[Entry]:
    return list(Pages(home).entries())


def job(w: World, id: str, text: str = "look") -> str:
    """What cron says at a time."""
    queue = Queue(w.home.inbound("cron"))
    queue.prepare()
    said = Inbound(id, time.time(), "cron", "j1", text, sender=Sender("cron", "cron", owner=True), session="jobs", origin="system", job="j1")
    queue.put(id, to_dict(said))
    w.ring()
    return id


def test_each_request_of_a_turn_is_booked_with_what_the_provider_counted(home: Home) -> None:
    script = {"rules": [{"when": "go", "calls": [call("list_dir")], "usage": used(1000)}], "default": {"reply": "done", "usage": used(2000)}}
    with world(home, script) as w:
        w.start()
        assert w.say("go").text == "done"
        job(w, "cron-j1-1", "hello")
        w.until(lambda: len(booked(home)) == 3)
        first, second, third = booked(home)
        assert (first.session, first.input, first.output, first.cached) == ("s", 990, 10, 3)
        assert [each.id for each in (first, second)] == [f"{first.turn}.0", f"{first.turn}.1"]
        assert (second.input, second.origin, second.provider, second.model) == (1990, "user", "custom", "fake-1")
        assert (third.origin, third.job, third.session) == ("cron", "j1", "jobs")
        assert sum(each.input for each in (first, second)) == w.ends()[-1]["usage"]["input"]


def test_what_has_a_price_is_booked_with_its_cost_and_a_budget_of_money_stops(home: Home) -> None:
    prices = {"fake-1": {"prices": {"input": 2.0, "output": 10.0, "cached": 0.5}}}
    with world(home, {"default": {"reply": "done", "usage": used(1000)}}, providers__custom__models=prices, agents__limits__cost_per_day=0.004) as w:
        w.start()
        for _ in range(2):
            assert w.say("hello").text == "done"
        first, _ = booked(home)
        assert first.cost_micros == 2076  # 987 at 2, 3 at a half, 10 at 10
        refused = w.say("once more")
        assert refused.outcome == "failed:over_budget"
        assert "$0.0042 of $0.0040" in refused.text
        assert w.fake.seen()["requests"] == 2


def test_killed_again_and_again_each_request_is_booked_once(home: Home) -> None:
    slow = call("exec", command="sleep 0.4")
    script = {"rules": [{"when": "go", "calls": [slow], "usage": used(100)}], "default": {"reply": "ok", "usage": used(70)}}
    with world(home, script) as w:
        w.start()
        for n in range(2):
            before = w.fake.seen()["requests"]
            id = w.put(f"go {n}")
            w.ring()
            w.until(lambda before=before: w.fake.seen()["requests"] > before)
            w.kill("agentd")
            w.start("agentd")
            w.wait(id)
        found = [each.id for each in booked(home)]
        assert len(found) == len(set(found))
        assert len(found) == w.fake.seen()["requests"]


def test_killed_between_the_answer_and_its_entry_it_is_booked_at_the_next_start(home: Home) -> None:
    slow = call("exec", command="sleep 5")
    script = {"rules": [{"when": "go", "calls": [slow], "usage": used(100)}], "default": {"reply": "ok", "usage": used(70)}}
    with world(home, script) as w:
        w.start()
        id = w.put("go")
        w.ring()
        w.until(lambda: booked(home))
        w.kill("agentd")
        [path] = home.usage.iterdir()
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + b'{"id":"cli')  # as if the kill had come a moment sooner
        w.start("agentd")
        w.wait(id)
        assert [each.input + each.output for each in booked(home)] == [100, 70]


def test_a_budget_stops_in_the_middle_of_a_turn_and_says_so(home: Home) -> None:
    script = {"default": {"calls": [call("list_dir")], "usage": used(600)}}
    with world(home, script, agents__limits__tokens_per_day=1000, agents__defaults__timezone="Asia/Shanghai") as w:
        w.start()
        heard = w.say("go")
        assert heard.outcome == "failed:over_budget"
        assert "1,200 of 1,000 tokens" in heard.text
        assert "00:00 (Asia/Shanghai)" in heard.text
        assert w.fake.seen()["requests"] == 2
        end = w.ends()[-1]
        assert (end["outcome"], end["notice"]) == ("failed:over_budget", heard.text)
        again = w.say("and now?", "other")
        assert again.outcome == "failed:over_budget"
        assert w.fake.seen()["requests"] == 2, "nobody was asked"
        assert all(message["role"] != "assistant" or message.get("tool_calls") for message in w.history())
        w.kill("agentd", signal.SIGTERM)
        w.configure(agents__limits__tokens_per_day=10_000)
        w.fake.play({"default": {"reply": "on we go"}})
        w.start("agentd")
        assert w.say("/retry", "other").outcome == "command"
        w.until(lambda: [end for end in w.ends("other") if end["outcome"] == "replied"])


def test_what_nobody_began_stops_silently_and_the_owner_is_told(home: Home) -> None:
    limits = {"agents__limits__system_tokens_per_day": 50, "gateway__alerts": "telegram:42"}
    out = Queue(home.outbound("telegram"))
    out.prepare()
    with world(home, {"default": {"reply": "seen", "usage": used(60)}}, **limits) as w:
        w.start()
        for n in range(3):
            w.wait(job(w, f"cron-j1-{n}"), "jobs")
        assert w.fake.seen()["requests"] == 1
        outcomes = [end["outcome"] for end in w.ends("jobs")]
        assert outcomes == ["replied", "failed:over_budget", "failed:over_budget"]
        assert all("notice" not in end for end in w.ends("jobs"))
        assert w.say("hello").text == "seen", "what nobody began takes nothing from a person"
        w.kill("agentd", signal.SIGTERM)
        w.start("agentd")  # which looks at once whether there is anything to tell
        [item] = w.until(lambda: list(out.list("new")))
        assert "budget" in item.body["text"]
        assert "j1" not in item.body["text"]


def test_what_was_stopped_and_a_summary_are_booked_too(home: Home) -> None:
    script = {
        "rules": [
            {"when": "slow", "reply": "never", "delay_s": 60},
            {"when": "replaced by a summary", "reply": "They were told three things, at length.", "usage": used(33)},
        ],
        "default": {"reply": "words " * 400, "usage": used(50)},
    }
    with world(home, script) as w:
        w.start()
        for n in range(3):
            w.say(f"tell me {n}")
        assert w.say("/compact").outcome == "command"
        id = w.put("slow")
        w.ring()
        w.until(lambda: w.fake.seen()["open"])
        w.say("/stop")
        assert w.wait(id).outcome == "stopped"
        assert [(each.kind, each.lost) for each in booked(home)] == [*[("answer", "")] * 3, ("summary", ""), ("answer", "stopped")]
        assert (booked(home)[3].session, booked(home)[3].input) == ("s", 23)


# -- /usage ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with a_place(tmp_path_factory.mktemp("place")) as place, asyncio.Runner() as runner:
        config.save(place.home, {"agents.limits.cost_per_day": 3.0})
        owners = config.load(place.home, "agents", "channels", "gateway", "tools")

        async def made() -> tuple[Agent, Commands]:
            agent = Agent(place.home, owners)
            await agent.open()
            return agent, Commands(agent)

        agent, commands = runner.run(made())
        yield Room(place, agent, commands, runner, "one")
        agent.close()
        runner.run(asyncio.sleep(0))


def test_usage_tells_of_today_this_session_and_this_month_by_model_and_what_is_in_no_sum(house: Room) -> None:
    assert "Today: nothing" in house.give("/usage")
    now = time.time()

    async def spend() -> None:
        books = house.agent.books
        spent = [("one", "big", 1500, 12_000), ("one", "small", 20, None), ("two", "big", 500, 3_000_000)]
        for n, (session, model, tokens, cost) in enumerate(spent):
            books.book(Entry(f"a{n}.0", now, session, model=model, provider="p", input=tokens, cost_micros=cost))
        books.book(Entry("b.0", now, "two", origin="cron", job="j1", model="big", provider="p", input=5, cost_micros=1))
        books.book(Entry("c.0", now, "two", lost="stopped"))
        await asyncio.sleep(0)

    house.run(spend())
    lines = house.give("/usage").splitlines()
    assert "Today: 2,025 tokens in 5 requests, $3.01" in lines
    assert "  of it begun by nobody: 5 tokens in 1 request, $0.000001" in lines
    assert "This session: 1,520 tokens in 2 requests, $0.0120" in lines
    assert "This month: 2,025 tokens in 5 requests, $3.01" in lines
    assert "  big (p): 2,005 tokens in 3 requests, $3.01" in lines
    assert "  small (p): 20 tokens in 1 request" in lines
    assert any(line.startswith("In no cost") and "20 tokens in 1 request" in line for line in lines)
    assert any(line.startswith("In no count") and "1 request" in line for line in lines)
    assert any(line.startswith("Budget of today: $3.01 of $3.00; used up until 00:00") for line in lines)
    house.give("/config language zh")
    assert "今天：5 次请求，2,025 个 token，费用 $3.01" in house.give("/usage").splitlines()
    house.give("/config language -")


def test_usage_is_the_owners_alone(house: Room) -> None:
    assert house.give("/usage", owner=False) == told("owner only", "en", name="usage")
