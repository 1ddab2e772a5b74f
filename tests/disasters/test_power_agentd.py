"""The power goes while agentd works: nobody's words are lost, nothing that was told was untrue, no command runs twice, and it all goes on."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bubbles import ids
from bubbles.errors import BubblesError
from bubbles.kernel import context
from bubbles.kernel.events import Event, ModelAnswered, ToolStarted, UserSpoke, from_line
from bubbles.messages import Inbound, Sender, to_dict
from bubbles.paths import Home
from bubbles.sessions.history import History, settled
from bubbles.sessions.journal import Journal
from bubbles.spool import Queue
from tests.agentd.test_chain import call
from tests.agentd.world import World, world
from tests.disasters.power import Contents, Record, differences, lay
from tests.disasters.record import Entry, Recorder, entries, of_a_home
from tests.disasters.recorded import FAULTS, start
from tests.disasters.soak import SOAK

CUTS = 2000 if SOAK else 150
RELIVED = 40 if SOAK else 2
SCRIPT = {
    "rules": [
        {"when": "slowly", "reply": "slow it was", "delay_s": 0.4},
        {"when": "go", "times": 1, "reply": "let me see", "calls": [call("exec", command="echo first >> ran"), call("list_dir", path=".")]},
        {"when": "again", "times": 1, "calls": [call("exec", command="echo second >> ran")]},
    ],
    "default": {"reply": "done", "echo": True},
}


class Scene:
    """People who write to a recorded agentd, by a terminal and by a channel, and a job of cron's."""

    def __init__(self, w: World, record: Path) -> None:
        self._w = w
        self._recorder = Recorder(w.home.root, record, of_a_home)
        self._note = self._recorder.note

    def put(self, text: str, queue: str = "cli", session: str = "s", **more: Any) -> str:
        id = ids.fresh(queue)
        me = Sender("me", "Me", owner=True)
        inbound = Inbound(id=id, at=1_764_500_400.0, channel=queue, chat=session, text=text, sender=me, session=session, **more)
        spool = Queue(self._w.home.inbound(queue), disk=self._recorder)
        self._note("putting", id)
        spool.put(id, to_dict(inbound))
        self._note("promised", id, text)
        self._w.ring()
        return id

    def play(self) -> None:
        """Five turns: one with tools, one for a channel, one that somebody joins, one of cron's, one more with a tool."""
        w = self._w
        w.wait(self.put("go"))
        told = self.put("hello", "plat", "42")
        slow = self.put("slowly")
        w.until(lambda: b"slowly" in w.journal())
        joined = self.put("and this too")
        for id in (slow, joined):
            w.wait(id)
        w.wait(told)
        w.wait(self.put("tick", "cron", job="j"))
        w.wait(self.put("again"))


def recorded(home: Home, path: Path, fault: str = "") -> Record:
    """What a scene left in the record."""
    record = path / f"record-{list(FAULTS).index(fault)}"
    with world(home, SCRIPT) as w:
        w.start("modeld")
        w.running["agentd"] = start(home, record, fault)
        Scene(w, record).play()
        w.until(lambda: not (home.turns / "s.jsonl").stat().st_size)
        w.kill("agentd", signal.SIGTERM)  # not in the moment between a call and the note of it
        found = entries(record)
        made = Record(found)
        assert not differences(made.state(len(found), random.Random(0), 1.0), home.root, of_a_home)
    return made


@dataclass
class Found:
    """What lies in a home, as its files say it."""

    waiting: set[str]
    turns: dict[str, list[Event]]  # in journals
    ends: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    outbound: dict[str, str]
    broken: list[str]


def look(home: Home) -> Found:
    """Read a home with the code that agentd reads it with."""
    found = Found(set(), {}, [], [], {}, [])
    for path in sorted((home.root / "spool" / "inbound").glob("*")):
        queue = Queue(path)
        queue.recover()
        found.waiting |= set(queue.due(1e11))
        found.broken += [f"{item.id} is held: {item.why}" for item in queue.list("held")]
    for path in sorted((home.root / "spool" / "outbound").glob("*")):
        if path.name != "cron":
            found.outbound |= {item.id: item.body["text"] for state in ("new", "cur", "done") for item in Queue(path).list(state)}
    for path in sorted(home.turns.glob("*.jsonl")):
        journal = Journal(path)
        for segment in journal.read():
            found.turns[segment.header.turn] = [from_line(line) for line in segment.lines]
        journal.close()
    for path in sorted(home.sessions.glob("*")):
        history = History(path / "session.jsonl", session=path.name)
        lines = [json.loads(line) for line in history.file_lines()]
        found.ends += [line for line in lines if line.get("meta") == "turn"]
        found.messages += [line for line in lines if "role" in line]
        past = settled([json.loads(line) for line in history.lines])
        found.broken += [f"{path.name}: {fault}" for fault in context.check([*past, {"role": "user", "content": "and now?"}])]
        found.broken += [f"{history.damaged} lines of {path.name} are damaged"] if history.damaged else []
        history.close()
    return found


def complaints(home: Home, remarks: list[Entry]) -> list[str]:
    """What is wrong with a home after a power cut."""
    try:
        found = look(home)
    except (BubblesError, OSError, ValueError) as error:
        return [f"it cannot be read: {error!r}"]
    spoken = {event.id for events in found.turns.values() for event in events if isinstance(event, UserSpoke)}
    ended = [m["id"] for end in found.ends for m in end["messages"]]
    return [
        *found.broken,
        *(f"{id} is lost" for id in of(remarks, "promised") if id not in found.waiting | spoken | set(ended)),
        *(f"{id} was answered twice" for id in set(ended) if ended.count(id) > 1),
        *(f"the turn {turn} was told as over and is not in history" for turn in told(remarks) - {end["turn"] for end in found.ends}),
        *(f"{command} ran, and nothing says so" for command in ran(remarks) - started(found)),
        *(f"{id} is answered in history and for no channel" for id in replies(found) - set(found.outbound)),
    ]


def of(remarks: list[Entry], kind: str) -> list[Any]:
    return [rest[0] for first, *rest in remarks if first == kind]


def told(remarks: list[Entry]) -> set[str]:
    """The turns whose end was told at the door."""
    found = set()
    for frames in of(remarks, "told"):
        if b'"outcome":"replied"' in frames and b'"re":' in frames and (turn := re.search(rb'"turn":"([^"]+)"', frames)):
            found.add(turn[1].decode())
    return found


def ran(remarks: list[Entry]) -> set[str]:
    return {match[0] for argv in of(remarks, "ran") if (match := re.search(r"echo \w+ >> ran", argv))}


def started(found: Found) -> set[str]:
    """The commands that are known to have begun."""
    commands = set()
    for events in found.turns.values():
        arguments = {c.id: c.arguments for event in events if isinstance(event, ModelAnswered) for c in event.calls}
        commands |= {json.loads(arguments[event.call]).get("command", "") for event in events if isinstance(event, ToolStarted)}
    for message in found.messages:
        commands |= {json.loads(c["function"]["arguments"]).get("command", "") for c in message.get("tool_calls", ())}
    return commands


def replies(found: Found) -> set[str]:
    """The ids of what the history says was said to a channel, and no journal any more will have put there."""
    ended = [end for end in found.ends if end["turn"] not in found.turns]
    ends = [end for end in ended if end["outcome"] == "replied" and any(m["channel"] == "plat" for m in end["messages"])]
    return {f"{end['turn']}.0.0" for end in ends}


def sayings(found: Found) -> set[str]:
    """What the sessions know that they said, or are about to say."""
    answered = {event.text for events in found.turns.values() for event in events if isinstance(event, ModelAnswered)}
    return answered | {text for end in found.ends for text in end["says"]}


def fresh(home: Home, state: Contents) -> None:
    """The home as the power cut left it; its configuration was there long before."""
    for name in ("spool", "turns", "sessions"):
        shutil.rmtree(home.root / name, ignore_errors=True)
    lay(state, home.root)
    home.prepare()


Judge = Callable[[Home, list[Entry]], list[str]]


def judged(record: Record, home: Home, seed: int, cuts: int, until: str = "", judge: Judge = complaints) -> list[str]:
    """All that is wrong with so many states, or with those up to the first about which `until` is said."""
    found: list[str] = []
    for cut, state in record.states(random.Random(seed), cuts, 3):
        fresh(home, state)
        found += judge(home, record.until(cut))
        if until and any(until in each for each in found):
            break
    return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    path = tmp_path_factory.mktemp("scene")
    with pytest.MonkeyPatch.context() as patch:
        (path / "run").mkdir(mode=0o700)
        patch.setenv("XDG_RUNTIME_DIR", str(path / "run"))
        patch.setenv("BUBBLES_HOME", str(path / "home"))
        home = Home.find()
        home.prepare()
        yield recorded(home, path)


def test_whatever_a_power_cut_leaves_nothing_is_lost_and_nothing_told_was_untrue(scene: Record, quick: Path) -> None:
    assert judged(scene, Home(quick), 1, CUTS) == []


def strays(home: Home, remarks: list[Entry]) -> list[str]:
    """What a channel will show and the session will not know that it said: the model is asked again, and may say something else."""
    found = look(home)
    return [f"a channel may show {id}, of which nothing else knows" for id, text in found.outbound.items() if text not in sayings(found)]


def test_what_a_channel_may_show_the_session_knows(scene: Record, quick: Path) -> None:
    assert judged(scene, Home(quick), 1, CUTS, judge=strays) == []


def test_the_scene_has_everything_in_it(scene: Record, home: Home) -> None:
    fresh(home, scene.state(len(scene.entries), random.Random(0), 1.0))
    found = look(home)
    assert len(found.ends) == len(told(scene.until(10**9))) == 5
    assert len([m for end in found.ends for m in end["messages"]]) == len(of(scene.until(10**9), "promised")) == 6
    assert ran(scene.until(10**9)) == {"echo first >> ran", "echo second >> ran"}
    assert len(replies(found)) == 1


def test_agentd_goes_on_from_what_a_power_cut_left(scene: Record, home: Home) -> None:
    """Some of those states lived through to the end: each word is answered once, and what had begun is not begun again."""
    with world(home, SCRIPT) as w:
        w.start("modeld")
        for cut, state in scene.states(random.Random(7), RELIVED, 3):
            fresh(home, state)
            w.fake.play(SCRIPT)
            remarks = scene.until(cut)
            w.start("agentd")
            w.until(lambda: not w.ask("status")["open"] and not look_quietly(home))
            w.kill("agentd")
            found = look(home)
            answered = [m["id"] for end in found.ends for m in end["messages"]]
            assert set(of(remarks, "promised")) <= set(answered) <= set(of(remarks, "putting"))
            assert len(set(answered)) == len(answered)
            again = home.session("s") / "work" / "ran"
            begun = ran(remarks)
            assert not any(command.split()[1] in again.read_text().split() for command in begun if again.exists())
            assert not complaints(home, remarks)


def look_quietly(home: Home) -> set[str]:
    """What waits in the inbound queues, looked at beside their owner. What was never written whole waits for whoever puts it again."""
    waiting: set[str] = set()
    for state in ("new", "cur"):
        for path in (home.root / "spool" / "inbound").glob(f"*/{state}/*.json"):
            with contextlib.suppress(FileNotFoundError):  # it has moved on
                waiting |= {path.stem} if path.read_bytes().endswith(b"}\n") else set()
    return waiting


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("finish before the journal is synced", "is lost"),
        ("close without a sync", "told as over and is not in history"),
        ("a reply that is not synced", "for no channel"),
        ("a tool before its start is synced", "ran, and nothing says so"),
    ],
)
def test_each_sync_that_is_left_out_is_found(home: Home, tmp_path: Path, quick: Path, fault: str, complaint: str) -> None:
    record = recorded(home, tmp_path, fault)
    assert any(complaint in each for each in judged(record, Home(quick), 2, 400, until=complaint)), fault
