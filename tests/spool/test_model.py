"""Any sequence of steps, crashes and movements of the clock, against a model of a queue that fits on a page."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bubbles.ids import safe
from bubbles.spool import STATES, Queue
from tests.spool.disks import Dying, Killed

NOW = 1_764_500_400.0
IDS = st.sampled_from(["a", "b", "c/d", "é", "f.why", "g" * 200, "h", "i"])
SOME_S = st.floats(0.001, 1500)  # twice that is less than the longest wait


class Spool(RuleBasedStateMachine):
    """`line`: ids in new that were never put off, in the order of `put`. `until`: earliest time of those that were."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="bubbles-spool-"))
        self.now = self.latest = NOW
        self.state: dict[str, str] = {}
        self.line: list[str] = []
        self.until: dict[str, float] = {}
        self.handled: list[str] = []

    def clock(self) -> int:
        return int(self.now * 1e9)

    def queue(self, disk: object | None = None) -> Queue:
        return Queue(self.path / "q", clock=self.clock, **({"disk": disk} if disk else {}))  # type: ignore[arg-type]

    @initialize()
    def start(self) -> None:
        self.owner = self.queue()
        self.owner.prepare()  # a directory made later has the time of the real clock, which stands a year from ours
        self.producers = [self.queue(), self.queue()]

    def teardown(self) -> None:
        self.now = max(self.now, self.latest) + 7200
        self.latest = self.now
        self.recover()
        due = self.owner.due(self.now)
        assert sorted(due) == sorted(safe(id) for id, state in self.state.items() if state == "new")
        for id in due:
            self.owner.claim(id)
            assert self.owner.finish(id)
        shutil.rmtree(self.path)

    @rule(seconds=SOME_S)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.latest = max(self.now, self.latest)

    @rule(seconds=SOME_S)
    def clock_steps_back(self, seconds: float) -> None:
        self.now = max(self.now - seconds, self.latest - 1500)

    @rule(id=IDS, by=st.integers(0, 1), wait=st.none() | SOME_S)
    def put(self, id: str, by: int, wait: float | None) -> None:
        known = id in self.state
        assert self.producers[by].put(id, {"id": id}, not_before=None if wait is None else self.now + wait, sync=False) != known
        if not known:
            self._enters(id, wait)

    def _enters(self, id: str, wait: float | None) -> None:
        self.state[id] = "new"
        if wait is None:
            self.line.append(id)
        else:
            self.until[id] = self.now + wait

    @rule(id=IDS, n=st.integers(1, 14))
    def put_is_killed(self, id: str, n: int) -> None:
        known, disk = id in self.state, Dying(n)
        with suppress(Killed):
            self.queue(disk).put(id, {"id": id}, sync=False)
        disk.release()
        if not known and self.queue().find(id):
            self._enters(id, None)

    @rule(count=st.integers(1, 4))
    def claim(self, count: int) -> None:
        for name in self.owner.due(self.now)[:count]:
            item = self.owner.claim(name)
            id = item.body["id"]
            assert item.id == safe(id)
            self._leaves(id, "cur")

    def _leaves(self, id: str, state: str) -> None:
        self.state[id] = state
        if id in self.line:
            self.line.remove(id)
        self.until.pop(id, None)

    def _one(self, *states: str) -> str | None:
        return next((id for id, state in self.state.items() if state in states), None)

    @precondition(lambda self: self._one("cur"))
    @rule(verb=st.sampled_from(["finish", "hold", "defer"]), wait=SOME_S)
    def claimed_moves_on(self, verb: str, wait: float) -> None:
        id = self._one("cur")
        assert id
        if verb == "finish":
            assert self.owner.finish(id)
            self.state[id] = "done"
            self.handled.append(id)
        elif verb == "hold":
            assert self.owner.hold(id, "why")
            self.state[id] = "held"
        else:
            assert self.owner.defer(id, self.now + wait)
            self._enters(id, wait)

    @precondition(lambda self: self._one("held"))
    @rule(verb=st.sampled_from(["release", "drop"]))
    def a_person_decides(self, verb: str) -> None:
        id = self._one("held")
        assert id
        if verb == "release":
            assert self.owner.release(id)
            self._enters(id, None)
        else:
            assert self.owner.drop(id)
            self.state[id] = "done"

    @rule()
    def recover(self) -> None:
        claimed = [id for id, state in self.state.items() if state == "cur"]
        self.owner = self.queue()
        assert sorted(self.owner.recover()) == sorted(safe(id) for id in claimed)
        for id in claimed:
            self.state[id] = "new"
            self.until[id] = self.latest  # its old place; anywhere before this

    @invariant()
    def each_is_in_one_state(self) -> None:
        on_disk = sorted((state, entry.name[:-5]) for state in STATES[1:] for entry in (self.path / "q" / state).glob("*.json"))
        assert on_disk == sorted((state, safe(id)) for id, state in self.state.items())

    @invariant()
    def the_line_is_kept(self) -> None:
        due = self.owner.due(self.now)
        assert [id for id in due if id in {safe(each) for each in self.line}] == [safe(id) for id in self.line]
        early = {id for id, until in self.until.items() if until > self.latest + 1e-5}
        assert not set(due) & {safe(id) for id in early}
        assert len(set(self.handled)) == len(self.handled)


TestSpool = Spool.TestCase
TestSpool.settings = settings(max_examples=150, stateful_step_count=40)
