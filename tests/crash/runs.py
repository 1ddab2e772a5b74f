"""People who go on writing while daemons die, and deaths one hop after another."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.crash.hops import HOPS
from tests.crash.judge import Evidence, Verdict
from tests.crash.town import JOB, KEYED, Town

SOAK = bool(os.environ.get("BUBBLES_TEST_SOAK"))  # many more kills: `make soak`
_REACHED_S = 20.0  # a hop that nobody has passed by then is not reached
_STALE_S = 3.0  # a message that is open for longer keeps nobody from writing: it may be lost
_WISHES = (
    "", "", "think=0.03", "rounds=1", "rounds=1", "rounds=1 slow=0.05", "rounds=2 slow=0.03", "rounds=1 calls=3 slow=0.03",
    "rounds=2 calls=2 think=0.02", "think=0.05 fail=1",
)  # fmt: skip
_EAGER = {"carried": ("", "think=0.15 fail=1"), "said": ("", "think=0.15"), "joined": ("", "think=0.15"), "outcome": (JOB, "")}  # hops seldom passed
PAUSES_S = {"agentd": (0.05, 0.6), "channel": (0.1, 1.3), "modeld": (0.1, 1.4), "cron": (0.1, 1.4), "platform": (2.0, 8.0)}  # between two deaths
_COLUMNS = (("lost", "unanswered"), ("tool twice",), ("unshown",))


def roughen(town: Town, seed: int = 7, *names: str) -> None:
    """The platforms duplicate, drop, cut and delay from now on; one that shows no key twice, more often than one that cannot tell."""
    for name in names or town.platforms:
        share = 0.2 if KEYED[name] else 0.03
        town.platforms[name].faults(duplicate_updates=0.3, drop_send=share, store_then_cut=share, delay_s=[0, 0.02], seed=seed)


@contextmanager
def traffic(
    town: Town, *, people: Sequence[str] = (), most: int = 6, jobs: float = 0.15, repeats: float = 0.1, stops: float = 0.0, seed: int = 1
) -> Iterator[None]:
    """While this lasts, people (all) write, in each other's midst, but no more than `most` messages are open. `jobs`, `repeats`, `stops`: shares."""
    chance, stop = random.Random(seed), threading.Event()
    people = people or list(town.people)

    def write() -> None:
        person = ""
        try:
            while not stop.wait(0.004):
                if sum(time.time() - word.at < _STALE_S for word in town.open()) >= most:
                    continue
                if chance.random() < stops:
                    town.stop(chance.choice(people))
                if town.eager and chance.random() < 0.5:
                    _burst(town, town.eager[0] or chance.choice(people), town.eager[1])
                    continue
                if person in ("", JOB) or chance.random() < 0.7:  # else the same again: people write in each other's midst, and in their own
                    person = JOB if chance.random() < jobs else chance.choice(people)
                town.write(person, chance.choice(_WISHES), twice=chance.random() < repeats)
        except BaseException as error:
            town.broken.append(error)

    writer = threading.Thread(target=write, name="people")
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
    if town.broken:
        raise town.broken[0]


def kill_everybody(town: Town, seed: int, is_over: Callable[[], bool]) -> None:
    """Everybody dies again and again, the platforms too, each by a thread of its own."""
    names = [*town.programs, *town.platforms]
    chances = {name: random.Random(f"{seed} {name}") for name in names}
    killers = [threading.Thread(target=_kill, args=(town, name, chances[name], is_over), name=f"killer of {name}") for name in names]
    for killer in killers:
        killer.start()
    for killer in killers:
        killer.join()


def _kill(town: Town, name: str, chance: random.Random, is_over: Callable[[], bool]) -> None:
    kind = "platform" if name in town.platforms else name.partition("-")[0]
    try:
        while not is_over() and not town.broken:
            time.sleep(chance.uniform(*PAUSES_S[kind]))
            town.kill(name)
            time.sleep(chance.choice((0.0, 0.0, 0.1)))
            if kind == "platform":
                town.platforms[name].start()
                roughen(town, chance.randrange(1000), name)
            else:
                town.start(name)
    except BaseException as error:
        town.broken.append(error)


def _burst(town: Town, person: str, wish: str) -> None:
    """A wish, and more words before it can have been granted."""
    town.write(person, wish)
    time.sleep(0.05)  # the model has been asked
    for _ in range(2 if person != JOB else 0):
        town.write(person)


def _is_more(town: Town, ended: int) -> bool:
    return len(town.ended()) > ended


@dataclass
class Row:
    """The deaths at one hop, at one moment of it."""

    hop: str
    side: str
    name: str
    wanted: int
    kills: int = 0
    began: float = 0.0
    ended: float = 0.0


@dataclass
class Rows:
    """A list of rows for each daemon; those of different daemons are gone through side by side."""

    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, town: Town, programs: tuple[str, ...], kills: int) -> Rows:
        """`kills` at each side of each hop of these programs."""
        found = []
        for hop, described in HOPS.items():
            names = [name for name in town.programs if name.partition("-")[0] == described.daemon]
            for name in names if described.daemon in programs else ():
                found += [Row(hop, side, name, max(3, kills // len(names))) for side in described.sides]
        return cls(found)

    def run(self, town: Town, seed: int) -> None:
        names = {row.name for row in self.rows}
        workers = [threading.Thread(target=self._of, args=(town, name, random.Random(f"{seed} {name}")), name=name) for name in sorted(names)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _of(self, town: Town, name: str, chance: random.Random) -> None:
        try:
            self._die(town, name, chance)
        except BaseException as error:
            town.broken.append(error)

    def _die(self, town: Town, name: str, chance: random.Random) -> None:
        for row in (row for row in self.rows if row.name == name):
            row.began = time.time()
            if name == "agentd":
                town.eager = _EAGER.get(row.hop)
            while row.kills < row.wanted and not town.broken:
                town.order(name, row.hop, row.side, chance.choice((1, 1, 2, 3)))
                if not town.daemons[name].ended(_REACHED_S):
                    break
                row.kills += 1
                town.start(name)
                if chance.random() < 0.5:  # a turn that dies again and again is given up, which is another matter
                    ended = len(town.ended())
                    town.until(partial(_is_more, town, ended), 2.0)
            row.ended = time.time()

    def unreached(self) -> list[str]:
        return [f"{row.hop} {row.side}: {row.kills} of {row.wanted}" for row in self.rows if row.kills < row.wanted]

    def table(self, seen: Evidence, verdict: Verdict) -> str:
        """A line a hop: what became of the words that were written while daemons died there."""
        head = f"{'§13':>4} {'hop':9} {'daemon':9} {'kills':>6}  {'at':34} {'words':>6} {'lost':>5}"
        lines = [f"{head} {'tools twice':>11} {'unshown':>8} {'uncertain':>9} {'s':>4}"]
        for hop in dict.fromkeys(row.hop for row in self.rows):
            rows = [row for row in self.rows if row.hop == hop]
            words = {word.word for word in seen.words if any(row.began - 0.5 <= word.at <= row.ended for row in rows)}
            found = [sum(problem.word in words for problem in verdict.of(*kinds)) for kinds in _COLUMNS]
            at = ", ".join(f"{side} {sum(row.kills for row in rows if row.side == side)}" for side in HOPS[hop].sides)
            unsure = sum(_is_unsure(lines_, rows) for lines_ in seen.receipts.values())
            lines.append(
                f"{HOPS[hop].step:>4} {hop:9} {HOPS[hop].daemon:9} {sum(row.kills for row in rows):6}  {at:34} {len(words):6} "
                f"{found[0]:5} {found[1]:11} {found[2]:8} {unsure:9} {sum(row.ended - row.began for row in rows):4.0f}"
            )
        return "\n".join(lines)


def _is_unsure(receipt: list[dict[str, Any]], rows: list[Row]) -> bool:
    return any("uncertain" in line and any(row.began <= line.get("at", 0) <= row.ended for row in rows) for line in receipt)
