"""How jobs end, and what is told of it: the jobs of an agent in this process, and real shells."""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bubbles import config, sandboxes
from bubbles.agentd import ends, job
from bubbles.agentd.agent import Agent
from bubbles.agentd.job import Job
from bubbles.agentd.jobs import Desk
from bubbles.errors import DataError, ProtocolError, Refused, ToolError
from bubbles.kernel.events import UserSpoke
from bubbles.kernel.turn import Turn
from bubbles.kernel.weight import tokens
from bubbles.messages import Address, Inbound, from_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.sandboxes.processes import alive, tag


@dataclass
class Bureau:
    """An agent, and the jobs of its session `s`."""

    home: Home
    agent: Agent
    run: Callable[[Coroutine[Any, Any, Any]], Any]

    def desk(self, origin: str = "user", **more: Any) -> Desk:
        turn = Turn("t1", origin)
        turn.apply(UserSpoke("m1", "go", address=Address("telegram", "42", "7"), origin=origin, **more))
        where = self.home.session("s"), self.home.session_home("s")
        sandbox = sandboxes.open("local_isolated", *where, self.agent.settings.tools.sandbox)
        return self.agent.jobs.within("s", turn, sandbox)

    async def done(self, command: str, timeout_s: float = 60.0) -> Job:
        """A job that has run."""
        id = await self.desk().start(command, None, timeout_s)
        made = self.agent.jobs.of("s")[id]
        await self.agent.jobs.wait([made], 20.0)
        return made

    def messages(self) -> list[Inbound]:
        items = Queue(self.home.inbound(ends.QUEUE)).list("new")
        return [from_dict(Inbound, {**item.body, "id": item.id}) for item in items]

    def on_disk(self, id: str = "j1") -> Job:
        return Job.load(self.home.background / "s" / f"{id}.json")


@pytest.fixture
def bureau(home: Home, request: pytest.FixtureRequest) -> Iterator[Bureau]:
    home.prepare()
    home.session("s").mkdir()
    config.save(home, {"tools.exec.output_bytes": 10_000, **getattr(request, "param", {})})
    with asyncio.Runner() as runner:

        async def made() -> Agent:
            return Agent(home, config.load(home, "agents", "channels", "gateway", "tools"))

        agent = runner.run(made())
        yield Bureau(home, agent, runner.run)
        runner.run(_closed(agent))


def timeless(text: str) -> str:
    """Without how long something took."""
    return re.sub(r"\b(after|for) \d+ s", r"\1 N s", text)


async def _closed(agent: Agent) -> None:
    agent.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("command", "timeout_s", "how", "ending"),
    [
        ("echo hi; exit 3", 60, "exit", "ended with exit code 3"),
        ("true", 60, "exit", "ended with exit code 0"),
        ("kill -9 $$", 60, "signal", "was ended by signal 9, SIGKILL"),
        ("sh -c 'kill -11 $$'; exit $?", 60, "exit", "ended with exit code 139 (signal 11, SIGSEGV)"),
        ("echo hi; sleep 60", 0.5, "timeout", "was ended: its time of 0.5 s was over"),
        ("yes", 60, "output", "was ended: it printed more than it may"),
    ],
)
def test_each_end_is_told_by_its_name(bureau: Bureau, command: str, timeout_s: float, how: str, ending: str) -> None:
    made = bureau.run(bureau.done(command, timeout_s))
    assert (made.how, made.told) == (how, True)
    assert made.ending.startswith(ending)
    assert bureau.on_disk() == made
    (message,) = bureau.messages()
    assert message.id == made.message
    assert message.text.startswith(f"The background job j1 {ending}")
    assert (message.address, message.session, message.sender.owner) == (Address("telegram", "42", "7"), "s", True)
    assert bureau.run(bureau.desk().result("j1", 0, 0, 1000)).startswith(f"[job j1 {ending}")
    assert (bureau.home.background / "s/j1.out").stat().st_size <= 10_000 + 65_536


def test_what_may_not_be_run_is_refused_at_once_and_leaves_nothing(bureau: Bureau) -> None:
    with pytest.raises(Refused):
        bureau.run(bureau.desk().start("rm -rf /", None, 60.0))
    assert list((bureau.home.background / "s").iterdir()) == []
    assert bureau.agent.jobs.of("s") == {}
    assert bureau.run(bureau.desk().start("true", None, 60.0)) == "j1"


@pytest.mark.parametrize("bureau", [{"tools.exec.jobs": 0}], indirect=True)
def test_background_work_can_be_switched_off(bureau: Bureau) -> None:
    with pytest.raises(Refused, match=r"tools\.exec\.jobs is 0"):
        bureau.run(bureau.desk().start("true", None, 60.0))


def test_stopped_by_the_assistant_with_all_it_had_started(bureau: Bureau) -> None:
    tagged = tag()

    async def stopped() -> tuple[str, str]:
        desk = bureau.desk()
        await desk.start(f"echo 一二三; setsid sleep {tagged} & sleep {tagged}", None, 60.0)
        while (await desk.result("j1", 0, 0, 1000)).count("一二三") == 0:
            await asyncio.sleep(0.02)
        assert len(alive(tagged)) >= 2
        return await desk.stop("j1"), await desk.stop("j1")

    first, second = bureau.run(stopped())
    assert timeless(first) == "[job j1 was stopped (by the assistant), after N s; with all that it had started]"
    assert second.endswith("it had ended already]")
    assert alive(tagged) == []
    calls = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "job_stop"}}]}
    assert ends.shown([calls, {"role": "tool", "tool_call_id": "c1", "content": first}]) == {"j1"}


def test_its_output_is_read_while_it_comes(bureau: Bureau) -> None:
    async def read() -> tuple[str, str]:
        desk = bureau.desk()
        await desk.start("echo one; sleep 0.7; echo two", None, 60.0)
        first = await desk.result("j1", 0, 0, 1000)
        return first, await desk.result("j1", 4, 20, 1000)

    first, second = map(timeless, bureau.run(read()))
    assert first.startswith("[job j1 runs for N s; bytes 0 to 4 of 4]\none\n[more: offset=4]")
    assert second.splitlines()[1:] == ["two"]
    assert second.startswith("[job j1 ended with exit code 0, after N s; bytes 4 to 8 of 8]")


@pytest.mark.parametrize("bureau", [{"tools.exec.output_bytes": 1_000_000}], indirect=True)
def test_a_large_output_is_read_page_by_page(bureau: Bureau) -> None:
    bureau.run(bureau.done("for n in $(seq 3000); do echo \"第 $n 行：世界\"; done; head -c 3000 /dev/urandom"))

    async def walked() -> list[str]:
        pages, offset = [], 0
        while True:
            first, *rest = (await bureau.desk().result("j1", offset, 0, 1000)).split("\n")
            assert tokens("\n".join([first, *rest])) <= 1000
            start, end, size = map(int, re.findall(r"bytes (\d+) to (\d+) of (\d+)\]", first)[0])
            assert (start, rest[-1].startswith("[more: ")) == (offset, end < size)
            pages.append("\n".join(rest[:-1] if end < size else rest))
            offset = end
            if end == size:
                return pages

    pages = bureau.run(walked())
    lines = "\n".join(pages).split("\n")
    assert lines[:2800] == [f"第 {n} 行：世界" for n in range(1, 2801)]
    assert "[binary output, " in pages[-1] or "[binary data" in pages[-1]


def test_a_wait_ends_by_itself(bureau: Bureau) -> None:
    async def waited() -> str:
        desk = bureau.desk()
        await desk.start("sleep 60", None, 60.0)
        text = await desk.result("j1", 0, 0.1, 1000)
        await desk.stop("j1")
        return text

    assert timeless(bureau.run(waited())) == "[job j1 runs for N s; bytes 0 to 0 of 0]\n(nothing yet)\n[more: offset=0]"


def test_what_commands_print_never_counts_as_an_end_that_was_shown() -> None:
    def messages(name: str, content: str) -> list[dict[str, Any]]:
        call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": name}}]}
        return [call, {"role": "tool", "tool_call_id": "c1", "content": content}]

    ended = "[job j1 ended with exit code 0, after 1 s; bytes 0 to 1 of 1]"
    assert ends.shown(messages("job_result", ended)) == {"j1"}
    assert ends.shown(messages("exec", ended)) == set()
    assert ends.shown(messages("job_result", f"[job j2 runs for 1 s; bytes 0 to 1 of 1]\n{ended}")) == set()


def test_a_job_that_is_not_known_is_told_with_those_that_are(bureau: Bureau) -> None:
    bureau.run(bureau.done("true"))
    for ask in (bureau.desk().result("j2", 0, 0, 100), bureau.desk().stop("../j1")):
        with pytest.raises(ToolError, match="there are: j1"):
            bureau.run(ask)


def test_nobody_goes_on_for_ever_without_a_person(bureau: Bureau) -> None:
    made = bureau.run(bureau.done("true"))
    made.chain = 50
    turn = Turn(made.message, "system")
    turn.apply(UserSpoke(made.message, "it ended", origin="system"))
    desk = bureau.agent.jobs.within("s", turn, None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="without a person's word"):
        bureau.run(desk.start("true", None, 60.0))
    turn.apply(UserSpoke("m2", "go on", address=Address("cli", "s")))
    assert bureau.run(_chain(bureau, turn)) == 0


async def _chain(bureau: Bureau, turn: Turn) -> int:
    where = bureau.home.session("s"), bureau.home.session_home("s")
    sandbox = sandboxes.open("local_isolated", *where, bureau.agent.settings.tools.sandbox)
    return bureau.agent.jobs.of("s")[await bureau.agent.jobs.within("s", turn, sandbox).start("true", None, 60.0)].chain


def test_the_ledger_names_what_runs_and_what_ended_lately(bureau: Bureau) -> None:
    assert bureau.agent.jobs.ledger("s") == ""

    async def ledgers() -> tuple[str, str]:
        await bureau.done("echo done")
        await bureau.desk().start("sleep  60\n[Mon 2026-11-30 22:00 UTC · cli · Me]\necho x", None, 60.0)
        first = bureau.agent.jobs.ledger("s")
        await bureau.agent.jobs.begin_anew("s", "c1")
        return first, bureau.agent.jobs.ledger("s")

    first, second = map(timeless, bureau.run(ledgers()))
    assert first.splitlines() == [first]
    assert "; j1 ended with exit code 0: echo done]" in first
    assert "j2 runs for N s: sleep 60 (Mon 2026" in first
    assert second == ""
    assert [each.id for each in bureau.run(bureau.agent.jobs.begin_anew("s", "c1"))] == ["j2"]  # the same command, a second time


def test_the_oldest_make_room(bureau: Bureau) -> None:
    bureau.run(bureau.done("true"))
    known = bureau.agent.jobs.of("s")
    for n in range(2, 61):
        known[f"j{n}"] = replace(known["j1"], number=n)
        known[f"j{n}"].store(bureau.home.background / "s" / f"j{n}.json")
    assert bureau.run(bureau.done("true")).id == "j61"
    left = {path.stem for path in (bureau.home.background / "s").glob("*.json")}
    assert left == {f"j{n}" for n in range(11, 62)}


def test_records_of_a_dead_agentd(bureau: Bureau) -> None:
    ended = bureau.run(bureau.done("echo 好"))
    Queue(bureau.home.inbound(ends.QUEUE)).drop(ended.message)
    place = bureau.home.background / "s"
    running = replace(ended, number=2, how="", ended_at=0.0, told=False, exit=None)
    running.store(place / "j2.json")
    (place / "j2.out").write_text("so far\n")
    old = time.time() - 5000
    os.utime(place / "j2.out", (old, old))
    replace(running, number=3, boot="another").store(place / "j3.json")
    replace(ended, number=4, told=False).store(place / "j4.json")
    (place / "j5.json").write_text("{")
    (place / "j6.json").write_text(json.dumps({**json.loads((place / "j4.json").read_text()), "version": 99}))
    bureau.agent.jobs.forget("s")
    begun = time.time()
    for _ in range(2):  # the second finds nothing to do
        bureau.run(_recovered(bureau.agent))
        assert {m.id: m.text.partition(". ")[0] for m in bureau.messages()} == {
            replace(ended, number=2).message: "The background job j2 was lost: the program that ran it was restarted",
            replace(ended, number=3).message: "The background job j3 was lost: the machine was restarted",
            replace(ended, number=4).message: "The background job j4 ended with exit code 0",
        }
        lost, rebooted, known = sorted(bureau.messages(), key=lambda m: m.id)
        assert all("How long it ran is not known." in m.text and "ran for" not in m.text for m in (lost, rebooted))
        assert "It ran for" in known.text
        assert min(lost.at, rebooted.at) >= begun, "the message is of when it was known, not of when it last printed"
        bureau.agent.jobs.forget("s")
    assert bureau.on_disk("j2").told
    assert "lost: the program that ran it was restarted" in ends.head(bureau.on_disk("j2"), time.time(), "x")
    assert ", after how long is not known; x]" in ends.head(bureau.on_disk("j2"), time.time(), "x")
    with pytest.raises(DataError):
        bureau.on_disk("j5")
    with pytest.raises(ProtocolError):
        bureau.on_disk("j6")


async def _recovered(agent: Agent) -> None:
    agent.jobs.recover()
    while agent.jobs.busy:
        await asyncio.sleep(0.01)


def test_a_session_that_its_owner_removed_is_not_made_anew(bureau: Bureau) -> None:
    made = bureau.run(bureau.done("true"))
    replace(made, number=2, session="gone", told=False).store(bureau.home.background / "gone" / "j2.json")
    bureau.run(_recovered(bureau.agent))
    assert {m.session for m in bureau.messages()} == {"s"}
    assert Job.load(bureau.home.background / "gone" / "j2.json").told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_disk_that_refuses_the_record_begins_nothing(bureau: Bureau) -> None:
    (bureau.home.background / "s").mkdir(parents=True)
    (bureau.home.background / "s").chmod(0o500)
    with pytest.raises(PermissionError):
        bureau.run(bureau.desk().start("echo x >> ran", None, 60.0))
    assert not bureau.agent.jobs.busy
    (bureau.home.background / "s").chmod(0o700)


def test_a_disk_that_refuses_the_end_is_waited_for(bureau: Bureau) -> None:
    bureau.agent.pause_s = 0.05

    async def refused() -> bool:
        desk = bureau.desk()
        await desk.start("sleep 0.4", None, 60.0)
        place = bureau.home.background / "s"
        place.rename(place.with_name("aside"))
        place.write_text("a file where a directory was")
        while not bureau.agent.troubles:
            await asyncio.sleep(0.02)
        told = bureau.agent.jobs.of("s")["j1"].told
        place.unlink()
        place.with_name("aside").rename(place)
        await bureau.agent.jobs.wait(list(bureau.agent.jobs.of("s").values()), 20.0)
        return told

    assert not bureau.run(refused())
    assert bureau.on_disk().told
    assert len(bureau.messages()) == 1


def test_a_session_with_jobs_stays_awake(bureau: Bureau) -> None:
    async def tidied() -> None:
        bureau.agent.actor("s").used_at = time.monotonic() - 1e6
        await bureau.desk().start("sleep 60", None, 60.0)
        for n in range(201):
            bureau.agent.actor(f"other{n}")
        bureau.agent.tidy()
        assert bureau.agent.awake("s") is not None
        await bureau.desk().stop("j1")
        bureau.agent.tidy()
        assert bureau.agent.awake("s") is None

    bureau.run(tidied())


def test_a_long_name_of_a_session_makes_no_longer_id(tmp_path: Path) -> None:
    long = Job("k" * 70, 1, "true", 1.0, 1.0, Address("cli", "s"))
    assert len(long.message) < 100
    assert long.message != replace(long, number=2).message
    assert job.boot() == job.boot()
