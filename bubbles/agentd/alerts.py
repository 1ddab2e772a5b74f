"""Trouble that nobody is waiting to hear of, told to the owner's chat: what is held, what is not delivered, which job came to nothing.

At most one line an hour, each trouble once as long as it lasts, and never by the channel that is the trouble. It does not
know why something went wrong; the log has that, and the line says where to look.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from bubbles import log, regular
from bubbles.agentd.texts import told
from bubbles.bus.lock import is_running
from bubbles.errors import BubblesError
from bubbles.messages import Address, Outbound
from bubbles.paths import Home
from bubbles.spool import Queue

HOUR_S = 3600.0
UNDELIVERED_S = 600.0  # a message that has waited so long is no hiccup of the network
_LOOKED_AT = 50  # messages of a queue whose age is looked at
_NAMED = 3  # things of a kind that are named; more are counted

KINDS = ("held", "undelivered", "dead", "turn", "broken", "job", "cron", "budget")
Trouble = tuple[str, str, str]  # one of KINDS, where, what


class Alerts:
    """The alerts of one home. `put` sends a message on; `broken` are the sessions that cannot be used; `is_wanted`: whether a channel is switched
    on; `is_running` the pid of a daemon, None where there is none; `now` is the clock, epoch seconds, and `day` the owner's date."""

    def __init__(
        self,
        home: Home,
        target: str,
        language: str,
        put: Callable[[Outbound], None],
        broken: Callable[[], Mapping[str, str]],
        *,
        is_wanted: Callable[[str], bool] = lambda channel: True,
        is_running: Callable[[Home, str], int | None] = is_running,
        now: Callable[[], float] = time.time,
        day: Callable[[], str] = lambda: "",
    ) -> None:
        self._home = home
        self._target = Address.parse(target) if target else None
        self._language = "zh" if language == "zh" else "en"
        self._put, self._broken, self._is_wanted, self._now = put, broken, is_wanted, now
        self._is_running, self._day = is_running, day
        self._path = home.run / "alerts.json"
        self._away: set[str] = set()  # channels whose daemon was away at the last look
        remembered = self._remembered()
        self._stopped = str(remembered.get("stopped", ""))  # the day on which a budget last stopped a job
        jobs = remembered.get("jobs")
        self._jobs: dict[str, str] = {str(k): str(v) for k, v in jobs.items()} if isinstance(jobs, dict) else {}  # by job: how its last turn ended

    def job_ended(self, job: str, outcome: str) -> None:
        """A job's turn has come to its end."""
        before = dict(self._jobs), self._stopped
        if outcome == "failed:over_budget":
            self._stopped = self._day()
        elif outcome in ("replied", "silent", "stopped"):
            self._jobs.pop(job, None)
        else:
            self._jobs[job] = outcome
        if (self._jobs, self._stopped) != before and self._target is not None:
            with suppress(OSError):
                self._remember(*self._last())

    def look(self) -> None:
        """Tell what is new, if it is time to. Where the disk refuses, the next look will."""
        if self._target is None:
            return
        try:
            self._look(self._target)
        except (OSError, BubblesError) as error:
            log.event("daemon.warning", f"the owner cannot be told of trouble: {error}", priority="warning")

    def _look(self, target: Address) -> None:
        troubles = sorted({*self._held(), *self._undelivered(), *self._given_up(), *self._failed()})
        last_at, known = self._last()
        now, keys = self._now(), {"\t".join(trouble) for trouble in troubles}
        if keys <= known:
            return self._remember(last_at, keys) if known - keys else None
        if 0 <= now - last_at < HOUR_S:
            return None
        if {("undelivered", target.channel, ""), ("dead", target.channel, "")} & set(troubles):
            log.event("daemon.warning", f"the owner is not told of trouble: {target.channel}, where it would be told, is it", priority="warning")
            return None
        text = self._line([trouble for trouble in troubles if "\t".join(trouble) not in known])
        # One who is killed before the next line says this one once more, under the same id.
        id = f"alert-{int(last_at)}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        self._put(Outbound(id, now, target.channel, target.chat, text, target.thread, origin="notice"))
        self._remember(now, keys)
        return None

    def _line(self, troubles: list[Trouble]) -> str:
        parts = []
        for kind in dict.fromkeys(kind for kind, _, _ in troubles):
            names = [what or where for its, where, what in troubles if its == kind]
            more = "" if len(names) <= _NAMED else told("alert more", self._language, n=len(names) - _NAMED)
            parts.append(told(f"alert {kind}", self._language, n=len(names), names=", ".join(names[:_NAMED]) + more))
        return told("alert", self._language, what="; ".join(parts))

    # -- what there is ---------------------------------------------------------------------------

    def _held(self) -> Iterator[Trouble]:
        for way in ("inbound", "outbound"):
            for path in sorted((self._home.root / "spool" / way).glob("*/held")):
                for entry in os.scandir(path):
                    if entry.name.endswith(".json"):
                        yield "held", f"{way}/{path.parent.name}", entry.name.removesuffix(".json")

    def _undelivered(self) -> Iterator[Trouble]:
        for path in sorted((self._home.root / "spool" / "outbound").glob("*/new")):
            channel = path.parent.name
            if channel == "cron" or not self._is_wanted(channel):
                continue
            if self._is_stuck(Queue(path.parent)):
                yield "undelivered", channel, ""
            if self._is_dead(channel):
                yield "dead", channel, ""

    def _is_dead(self, channel: str) -> bool:
        """Whether the daemon of a channel that has been used is away, and was at the last look: a restart is no trouble."""
        if self._is_running(self._home, f"channel-{channel}") is not None:
            self._away.discard(channel)
            return False
        was = channel in self._away
        self._away.add(channel)
        return was

    def _is_stuck(self, queue: Queue) -> bool:
        """Whether messages wait that should long be delivered; one that no channel is there for waits, too."""
        waiting = chain(queue.list("cur"), queue.list("new"))  # a channel keeps the first of each chat claimed until it is gone
        ages = [item.body.get("at") for item in islice(waiting, _LOOKED_AT)]
        return any(isinstance(at, int | float) and self._now() - at > UNDELIVERED_S for at in ages)

    def _given_up(self) -> Iterator[Trouble]:
        for path in (self._home.turns / "held").glob("*.jsonl"):
            yield "turn", "", path.stem
        for session in self._broken():
            yield "broken", "", session

    def _failed(self) -> Iterator[Trouble]:
        for job, outcome in self._jobs.items():
            yield "job", outcome, job
        if self._stopped and self._stopped == self._day():
            yield "budget", "", self._stopped
        if self._has_jobs() and self._is_running(self._home, "cron") is None:
            yield "cron", "", "cron"

    def _has_jobs(self) -> bool:
        with suppress(OSError, ValueError):
            return bool(json.loads(regular.read(self._home.jobs))["jobs"])
        return False

    # -- what was told ---------------------------------------------------------------------------

    def _last(self) -> tuple[float, set[str]]:
        """When the last line was sent (0: never), and of which troubles the owner knows."""
        body = self._remembered()
        with suppress(ValueError, KeyError, TypeError, OverflowError):
            return max(0.0, float(int(body["at"]))), set(map(str, body["told"]))
        return 0.0, set()

    def _remembered(self) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            body = json.loads(regular.read(self._path))
            return body if isinstance(body, dict) else {}
        return {}

    def _remember(self, at: float, keys: set[str]) -> None:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        beside.write_text(json.dumps({"at": at, "told": sorted(keys), "jobs": self._jobs, "stopped": self._stopped}))
        beside.replace(self._path)
