"""The file of the jobs: kept whole, kept private, and never overwritten by somebody who could not read it."""

from __future__ import annotations

import errno
import json
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.cron.jobs import VERSION, Job, JobFile, job_from, job_to
from bubbles.cron.schedule import Schedule
from bubbles.errors import Misconfigured, TryAgain
from tests.spool.disks import Dying, Killed, Refusing

NOW = 1_764_500_400.0
EVERY = Job("3f2a91bc", "any mail?", Schedule("every", every_s=1800), "mail", "work", next=NOW, anchor=NOW - 1800)
ONCE = Job("b0", "两点了 \ud800", Schedule("at", at=NOW), next=NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cron" / "jobs.json"


def opened(path: Path, **seam: Any) -> JobFile:
    file = JobFile(path, **seam)
    file.load()
    return file


def test_no_file_is_no_jobs(path: Path) -> None:
    assert opened(path).all == ()
    assert not path.exists()


def test_jobs_outlive_their_process(path: Path) -> None:
    file = opened(path)
    file.add(EVERY)
    file.add(ONCE)
    file.change(replace(EVERY, last="replied", next=NOW + 1800))
    again = opened(path)
    assert again.all == (replace(EVERY, last="replied", next=NOW + 1800), ONCE)
    assert again.find("b0") == ONCE
    again.remove("b0")
    assert [job.id for job in opened(path).all] == ["3f2a91bc"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_change_that_changes_nothing_writes_nothing(path: Path) -> None:
    file = opened(path)
    file.add(EVERY)
    before = path.stat().st_mtime_ns
    file.change(EVERY)
    file.change()
    assert path.stat().st_mtime_ns == before


def test_what_we_do_not_know_is_kept(path: Path) -> None:
    path.parent.mkdir()
    raw = {
        "version": VERSION,
        "note": "mine",
        "jobs": [
            {
                **job_to(EVERY),
                "delete_after_run": True,
                "gate": {"run": "true"},
                "schedule": {"kind": "every", "every_s": 1800, "tz": "Europe/Berlin"},
            }
        ],
    }
    path.write_text(json.dumps(raw))
    file = opened(path)
    file.change(replace(file.all[0], last="failed"))
    file.add(ONCE)
    kept = json.loads(path.read_text())
    assert kept["note"] == "mine"
    assert kept["jobs"][0] == {**raw["jobs"][0], "last": "failed"}  # type: ignore[index]


def test_a_loose_mode_is_tightened_and_told(path: Path) -> None:
    opened(path).add(EVERY)
    path.chmod(0o644)
    assert opened(path).was_open
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not opened(path).was_open


def job(**changes: Any) -> str:
    return json.dumps({"version": 1, "jobs": [{**job_to(EVERY), **changes}]})


BROKEN = {
    "": "line 1, column 1",
    "{": "line 1, column 2",
    '{\n "version": 1,\n "jobs": [,]\n}': "line 3, column 11",
    '{"version": 1, "jobs": ["\xff"]}': "line 1: not UTF-8",
    "[]": "not a JSON object",
    "[" * 100_000: "maximum recursion",
    "{}": "'version' is None",
    '{"version": true, "jobs": []}': "'version' is True",
    '{"version": "1", "jobs": []}': "'version' is '1'",
    '{"version": 2, "jobs": []}': "version 2; this program knows 1",
    '{"version": 1}': "'jobs' is not a list",
    '{"version": 1, "jobs": {}}': "'jobs' is not a list",
    '{"version": 1, "jobs": [7]}': "job 1: not an object",
    job(id=""): r"job 1 \(\): it has no 'id'",
    job(id="../x"): r"job 1 \(../x\): 'id' is not a plain name",
    job(message=""): "it has no 'message'",
    job(message=7): "'message' is 7",
    job(enabled=1): "'enabled' is 1",
    job(next="soon"): "'next' is \"soon\"",
    job(next=True): "'next' is true",
    job(next=float("nan")): "'next' is NaN",
    job(anchor=float("inf")): "'anchor' is Infinity",
    job(anchor=None): "'anchor' is null",
    job(schedule=None): "a schedule is an object",
    job(schedule={"kind": "every", "every_s": 0}): "'every_s' is a whole number",
    job(schedule={"kind": "cron", "expression": "* * * * *"}): "not built yet",
    json.dumps({"version": 1, "jobs": [job_to(EVERY), job_to(EVERY)]}): "two jobs have one id",
}


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_understood_is_told_and_left_alone(path: Path, content: str) -> None:
    path.parent.mkdir()
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(Misconfigured, match=BROKEN[content]) as refused:
        opened(path)
    assert str(path) in refused.value.text
    assert refused.value.remedy
    assert refused.value.exit == 78
    assert path.read_bytes() == content.encode("latin-1")


def test_what_is_no_file_is_told(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(Misconfigured, match="cannot be read"):
        opened(path)
    path.rmdir()
    path.symlink_to("/etc/passwd")
    with pytest.raises(Misconfigured, match="cannot be read"):
        opened(path)


@pytest.mark.parametrize(
    "found", [EVERY, ONCE, replace(EVERY, enabled=False, next=None, fired="cron-1-2", fired_at=NOW, last="failed", why="model_down")]
)
def test_as_json_and_back(found: Job) -> None:
    assert job_from(json.loads(json.dumps(job_to(found)))) == found


def test_one_that_is_switched_off_by_hand_is_not_due(path: Path) -> None:
    assert job_from({**job_to(EVERY), "enabled": False}).next is None


def test_killed_at_each_call_the_file_is_the_old_or_the_new(path: Path) -> None:
    opened(path).add(EVERY)
    n, completed, seen = 0, False, set()
    while not completed:
        n += 1
        opened(path).remove(ONCE.id)
        disk = Dying(n)
        file = opened(path, disk=disk)
        with suppress(Killed):
            file.add(ONCE)
            completed = True
        disk.release()
        found = opened(path).all
        assert found in ((EVERY,), (EVERY, ONCE))
        seen.add(len(found))
    assert seen == {1, 2}


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS])
def test_refused_each_call_nothing_has_changed(path: Path, error: int) -> None:
    opened(path).add(EVERY)
    n, refused = 0, True
    while refused:
        n += 1
        disk = Refusing(n, error)
        file = opened(path, disk=disk)
        told = refusal(file)
        if told:
            assert "cannot be written" in told.text
            assert [entry.name for entry in path.parent.iterdir()] == ["jobs.json"]
        assert file.all == opened(path).all == ((EVERY,) if told else (EVERY, ONCE))
        opened(path).remove(ONCE.id)
        refused = disk.refused
    assert n > 5


def refusal(file: JobFile) -> TryAgain | None:
    try:
        file.add(ONCE)
    except TryAgain as error:
        return error
    return None
