"""The power goes while jobs come due: what the file of jobs says was sent lies in the queue, and no job is gone or comes twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bubbles.cron.jobs import Job, JobFile
from bubbles.cron.schedule import Schedule
from bubbles.cron.service import Service
from bubbles.errors import BubblesError
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.disasters.power import Record, lay
from tests.disasters.record import Entry, Recorder, entries
from tests.disasters.soak import SOAK

NOW = 1_764_500_400.0
CUTS = 400 if SOAK else 40


def recorded(path: Path, seed: int, skips: str = "") -> Record:
    """Three jobs, an hour of beats, an agentd that takes what is sent, and a cron that is killed now and then."""
    root, chance, now = path / f"home-{seed}", random.Random(seed), [NOW]
    home = Home(root)
    (root / "cron").mkdir(parents=True)
    recorder = Recorder(root, path / f"record-{seed}", skips=lambda place, fd: bool(skips) and place.startswith(skips))
    queue = Queue(home.inbound("cron"), disk=recorder, clock=lambda: int(now[0] * 1e9))
    queue.prepare()
    recorder.note("begun")
    service = Service(home, lambda: None, now=lambda: now[0], disk=recorder)
    for n, schedule in enumerate([Schedule("every", every_s=600), Schedule("every", every_s=900), Schedule("at", at=NOW + 1000)]):
        service.jobs.add(Job(f"job{n}", "tick", schedule, next=schedule.at or NOW + schedule.every_s, anchor=NOW))
        recorder.note("added", f"job{n}")
    for _ in range(8):
        now[0] += chance.randint(100, 800)
        service.look()
        for id in queue.due(now[0]):
            queue.claim(id)
            recorder.note("handled", id)
            queue.finish(id)
        if chance.random() < 0.3:
            service = Service(home, lambda: None, now=lambda: now[0], disk=recorder)
            service.open()
            service.recover()
    found = entries(path / f"record-{seed}")
    return Record(found, found.index(("begun",)))


def complaints(home: Home, remarks: list[Entry]) -> list[str]:
    try:
        jobs = JobFile(home.jobs)
        jobs.load()
        queue = Queue(home.inbound("cron"))
        queue.recover()
        found = [f"{id} is gone" for kind, *rest in remarks for id in rest if kind == "added" and jobs.find(id) is None]
        found += [f"{job.fired} is noted as sent and lies nowhere" for job in jobs.all if job.fired and queue.find(job.fired) is None]
        handled = {rest[0] for kind, *rest in remarks if kind == "handled"}
        service = Service(home, lambda: None, now=lambda: NOW + 4 * 3600)
        service.open()
        service.look()
        waiting = queue.due(NOW + 5 * 3600)
        found += [f"{id} waits twice" for id in waiting if waiting.count(id) > 1]
        once = [id for id in {*waiting, *handled} if id.startswith("cron-job2")]
        found += ["the job for one time was never sent"] if "job2" in {job.id for job in jobs.all} and len(once) != 1 else []
    except (BubblesError, OSError) as error:
        return [f"cron stumbles: {error!r}"]
    return found


def judged(record: Record, path: Path, seed: int) -> list[str]:
    found: list[str] = []
    for n, (cut, state) in enumerate(record.states(random.Random(seed), CUTS, 3)):
        home = Home(path / f"after-{seed}-{n}")
        lay(state, home.root)
        (home.root / "cron").mkdir(exist_ok=True)
        found += complaints(home, record.until(cut))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_no_job_is_lost_and_none_that_is_noted_as_sent_is_missing(tmp_path: Path, quick: Path, seed: int) -> None:
    assert judged(recorded(tmp_path, seed), quick, seed) == []


@pytest.mark.parametrize(("skips", "complaint"), [("spool/inbound/cron", "lies nowhere"), ("cron/", "is gone")])
def test_each_sync_that_is_left_out_is_found(tmp_path: Path, quick: Path, skips: str, complaint: str) -> None:
    assert any(complaint in each or "stumbles" in each for each in judged(recorded(tmp_path, 7, skips), quick, 7))
