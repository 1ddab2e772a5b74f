"""A home in which nothing goes on by itself: what waited is held, open turns are put away, and no job makes up for what it missed.

For a home that was restored from an old backup: the one it was taken of has most likely done all that since. Nothing is lost by it; a
person lets go on what should. It does not know where the home comes from, and nobody else works in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbles import regular
from bubbles.agentd import ends
from bubbles.agentd.job import Job
from bubbles.channels.receipts import Receipts
from bubbles.cron.jobs import JobFile, advanced
from bubbles.errors import BubblesError, DataError, Misconfigured
from bubbles.ids import safe
from bubbles.kernel.events import UserSpoke, from_line, header
from bubbles.messages import from_line as object_from
from bubbles.messages import to_dict
from bubbles.paths import Home
from bubbles.sessions.journal import Journal, Segment
from bubbles.spool import Queue


class Standstill:
    """What was held in `home`, which was as it is at `at` (epoch seconds)."""

    def __init__(self, home: Home, at: float) -> None:
        self._home = home
        self._why = f"restored from a backup of {time.strftime('%Y-%m-%d %H:%M', time.localtime(at))}; what became of it since is not known"
        self.messages = self.turns = self.jobs = 0

    def all(self) -> None:
        """Bring everything to a standstill. Raises TryAgain where the disk refuses."""
        self._lose()
        known = {id for path in sorted(self._home.turns.glob("*.jsonl")) for id in self._put_away(path)}
        for path in self._queues("inbound"):
            self._hold(path, known)
        for path in self._queues("outbound"):
            if path.name != "cron":  # what became of jobs harms nobody
                self._hold(path, set())
        self._skip()

    def told(self) -> dict[str, int]:
        return {"messages": self.messages, "turns": self.turns, "jobs": self.jobs}

    def __str__(self) -> str:
        return ", ".join(f"{count} {name if count > 1 else name[:-1]}" for name, count in self.told().items() if count)

    def _queues(self, way: str) -> list[Path]:
        return [path for path in sorted((self._home.root / "spool" / way).glob("*")) if path.is_dir()]

    def _hold(self, path: Path, known: set[str]) -> None:
        """Hold what waits in a queue; what stands in a journal that was put away is handled by that."""
        queue, receipts = Queue(path), Receipts(path)
        queue.prepare()
        queue.recover()
        for item in list(queue.list("new")):
            with suppress(FileNotFoundError, DataError):
                queue.claim(item.id)
                if item.id in known:
                    queue.finish(item.id)
                elif queue.hold(item.id, self._why):
                    self.messages += 1
                    if receipts.facts(item.id):
                        receipts.note(item.id, held=self._why)

    def _put_away(self, path: Path) -> Iterator[str]:
        """The turns of a journal become turns that were given up, and the ids of their words are told. Those that are in the history are over."""
        journal = Journal(path)
        try:
            segments = journal.read()
            over = _ended(self._home.session(path.stem) / "session.jsonl", {segment.header.turn for segment in segments})
            for segment in segments:
                if segment.header.turn not in over:
                    self._keep(segment)
                yield from (spoke.id for spoke in _spoken(segment))
            if not journal.stray:
                journal.reset()
        except Misconfigured:  # a newer program's: agentd will say so
            return
        finally:
            journal.close()

    def _keep(self, segment: Segment) -> None:
        held = self._home.turns / "held"
        held.mkdir(mode=0o700, exist_ok=True)
        (held / f"{safe(segment.header.turn)}.jsonl").write_bytes(header(*segment.header) + b"".join(segment.lines))
        self.turns += 1

    def _lose(self) -> None:
        """What ran in the background is lost; the messages that say so are put, to be held with the others."""
        queue = Queue(self._home.inbound(ends.QUEUE))
        for path in sorted(self._home.background.glob("*/j*.json")):
            with suppress(OSError, BubblesError):
                job, output = Job.load(path), path.with_suffix(".out")
                if not job.told:
                    job.lose(time.time())
                    queue.put(job.message, to_dict(ends.message(job, output)))
                    job.told = True
                    job.store(path)

    def _skip(self) -> None:
        jobs, now = JobFile(self._home.jobs), time.time()
        try:
            jobs.load()
            due = [job for job in jobs.all if job.enabled and job.next is not None and job.next <= now]
            jobs.change(*(advanced(job, now) for job in due))
            self.jobs = len(due)
        except Misconfigured:  # cron will say so
            return


def _ended(history: Path, turns: set[str]) -> set[str]:
    """Those of the turns that a history holds."""
    found = set()
    with suppress(OSError), open(history, "rb", opener=regular.opened) as file:
        for line in file:
            if line.startswith(b'{"meta":"turn"') and line.endswith(b"\n"):
                with suppress(DataError):
                    found.add(str(object_from(line).get("turn")))
    return found & turns


def _spoken(segment: Segment) -> Iterator[UserSpoke]:
    for line in segment.lines:
        with suppress(BubblesError):
            event = from_line(line)
            if isinstance(event, UserSpoke):
                yield event
