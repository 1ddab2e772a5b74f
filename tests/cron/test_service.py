"""What is due is sent: once, whatever happens between."""

from __future__ import annotations

import errno
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles import log
from bubbles.cron.ops import Ops
from bubbles.cron.service import Service
from bubbles.errors import DataError, Misconfigured, ProtocolError, TryAgain
from bubbles.messages import Inbound, Outbound, from_dict, to_dict
from bubbles.paths import Home
from bubbles.spool import Queue
from tests.spool.disks import Dying, Killed, Refusing

NOW = 1_764_500_400.0
EVERY_30M = {"kind": "every", "every_s": 1800}


class World:
    """A home, a clock that a test moves, and cron as often as it is started."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.now = NOW
        self.rings = 0
        self.asked = 0
        self.start()

    def start(self, **seam: Any) -> None:
        """Cron is started, after whatever became of the one before."""
        self.service = Service(self.home, self._ring, now=lambda: self.now, **seam)
        self.ops = Ops(self.service)
        self.service.open()
        self.service.recover()

    def _ring(self) -> None:
        self.rings += 1

    def ask(self, op: str, request: str = "", **body: Any) -> dict[str, Any]:
        self.asked += 1
        return self.ops.answer(op, body, request or f"q{self.asked}")

    def add(self, schedule: dict[str, Any], message: str = "any mail?", **more: Any) -> str:
        return str(self.ask("job.add", message=message, schedule=schedule, **more)["id"])

    def job(self, id: str) -> dict[str, Any]:
        return next(job for job in self.ask("job.list")["jobs"] if job["id"] == id)

    @property
    def queue(self) -> Queue:
        return Queue(self.home.inbound("cron"), clock=lambda: int(self.now * 1e9))

    def sent(self) -> list[str]:
        """The ids of all messages that cron has ever sent."""
        return sorted(item.id for state in ("new", "cur", "done") for item in self.queue.list(state))

    def agentd_takes(self) -> list[Inbound]:
        """What agentd does with what it finds."""
        found = []
        for id in self.queue.due(self.now):
            found.append(from_dict(Inbound, self.queue.claim(id).body))
            self.queue.finish(id)
        return found

    def agentd_tells(self, message: Inbound | str, outcome: str, job: str = "") -> None:
        """How the turn that a message began came to its end."""
        id = message if isinstance(message, str) else message.id
        told = Outbound(f"{id}.outcome", self.now, "cron", "x", outcome, turn=id, origin="job", job=job or getattr(message, "job", ""))
        Queue(self.home.outbound("cron"), clock=lambda: int(self.now * 1e9)).put(told.id, to_dict(told))


@pytest.fixture
def world(home: Home) -> World:
    return World(home)


def test_a_job_for_one_time_runs_once_and_is_over(world: World) -> None:
    id = world.add({"kind": "at", "at": NOW + 600}, "the review", session="work/日", name="review")
    assert world.service.look() == 600
    assert world.sent() == []
    world.now += 600
    assert world.service.look() is None
    message, *more = world.agentd_takes()
    assert (message.id, message.text, message.job, message.origin) == (f"cron-{id}-{int(NOW) + 600}", "the review", id, "system")
    assert (message.channel, message.chat, message.at) == ("cron", id, NOW + 600)
    assert message.session.startswith("work_")
    assert more == []
    assert world.rings == 1
    world.now += 10 * 86400
    assert world.service.look() is None
    assert world.agentd_takes() == []
    assert (world.job(id)["enabled"], world.job(id)["next"], world.job(id)["last"]) == (False, None, "begun")


def test_a_key_that_is_cut_in_two_leaves_nothing_in_the_log(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.add({"kind": "at", "at": NOW + 1}, f"{'a' * 170} 123456789:AAHk5xabcdefghijklmnopqrstuvwxyz_12 and so on")
    world.now += 1
    world.service.look()
    told = capfd.readouterr().err
    assert f"a {log.STRUCK}" in told
    assert "AAHk5x" not in told


def test_a_job_without_a_session_names_none(world: World) -> None:
    world.add({"kind": "at", "at": NOW + 1})
    world.now += 1
    world.service.look()
    assert world.agentd_takes()[0].session == ""


def test_beats_keep_their_grid_over_restarts_and_late_looks(world: World) -> None:
    id = world.add(EVERY_30M)
    for late in (0.0, 17.3, 1.0, 900.0, 0.5):
        world.start()
        world.now = world.job(id)["next"] + late
        world.service.look()
        assert len(world.agentd_takes()) == 1
        assert (world.job(id)["next"] - NOW) % 1800 == 0
        assert 0 < world.job(id)["next"] - world.now <= 1800


def test_a_short_beat_comes_though_cron_is_restarted_more_often(world: World) -> None:
    world.add({"kind": "every", "every_s": 3})
    got = 0
    for _ in range(30):
        world.start()
        world.service.look()
        got += len(world.agentd_takes())
        world.now += 2
    assert got == 19


def test_what_was_missed_is_made_up_for_once(world: World) -> None:
    beat = world.add(EVERY_30M)
    once = world.add({"kind": "at", "at": NOW + 60}, "once")
    world.now += 7 * 86400 + 5
    world.start()
    world.service.look()
    assert sorted(message.id for message in world.agentd_takes()) == sorted([f"cron-{beat}-{int(NOW) + 1800}", f"cron-{once}-{int(NOW) + 60}"])
    world.service.look()
    assert world.agentd_takes() == []
    assert world.job(beat)["next"] == NOW + 7 * 86400 + 1800


def test_killed_at_each_call_it_is_sent_once(home: Home) -> None:
    """A look in which two jobs are due and an outcome waits, killed at its n-th system call, for each n; then cron is started again."""
    n, completed = 0, False
    while not completed:
        n += 1
        world = World(Home(home.root / str(n)))
        beat = world.add(EVERY_30M)
        once = world.add({"kind": "at", "at": NOW + 1700}, "once")
        over = world.add({"kind": "at", "at": NOW + 1}, "over")
        world.now = NOW + 1
        world.service.look()
        world.agentd_tells(world.agentd_takes()[0], "replied")
        world.now = NOW + 1800
        disk = Dying(n)
        world.start()
        with suppress(Killed):
            world.start(disk=disk)
            world.service.look()
            completed = True
        disk.release()
        world.start()
        world.service.look()
        assert sorted(world.sent()) == sorted([f"cron-{beat}-{int(NOW) + 1800}", f"cron-{once}-{int(NOW) + 1700}", f"cron-{over}-{int(NOW) + 1}"])
        assert [world.job(id)["last"] for id in (beat, once, over)] == ["begun", "begun", "replied"]
        assert world.job(beat)["next"] == NOW + 3600
        assert world.service.look() == 1800
    assert n > 50


def test_killed_before_it_was_saved_the_outcome_is_noted_all_the_same(world: World) -> None:
    id = world.add(EVERY_30M)
    before = world.home.jobs.read_bytes()
    world.now += 1800
    world.service.look()
    world.home.jobs.write_bytes(before)
    world.agentd_tells(world.agentd_takes()[0], "silent")
    world.start()
    world.service.look()
    assert (world.job(id)["last"], world.job(id)["next"]) == ("silent", NOW + 3600)
    assert world.agentd_takes() == []


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_refused_each_call_it_is_sent_once_later(home: Home, error: int) -> None:
    n, refused = 0, True
    while refused:
        n += 1
        world = World(Home(home.root / str(n)))
        id = world.add(EVERY_30M)
        over = world.add({"kind": "at", "at": NOW + 1}, "over")
        world.now = NOW + 1
        world.service.look()
        world.agentd_tells(world.agentd_takes()[0], "failed:model_down")
        world.now = NOW + 1800
        disk = Refusing(n, error)
        with suppress(Misconfigured, TryAgain):  # the daemon ends, and is started again
            world.start(disk=disk)
            pause = world.service.look()
            assert pause in (30, 1800)
        world.now += 30
        if disk.refused:
            world.service.look()
        refused = disk.refused
        world.start()
        world.service.look()
        assert sorted(world.sent()) == sorted([f"cron-{id}-{int(NOW) + 1800}", f"cron-{over}-{int(NOW) + 1}"])
        if Queue(world.home.outbound("cron")).find(f"cron-{over}-{int(NOW) + 1}.outcome") != "held":  # where reading it was refused
            assert (world.job(over)["last"], world.job(over)["why"]) == ("failed", "model_down")
    assert n > 20


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.1, 5000), st.sampled_from(["look", "restart", "kill", "take", "back"])), max_size=25))
def test_any_order_of_events(steps: list[tuple[float, str]]) -> None:
    """Nothing is sent before its time or twice; a job for one time is sent; beats lie on their grid."""
    with tempfile.TemporaryDirectory() as directory:
        world = World(Home(Path(directory) / "home"))
        beat, once = world.add({"kind": "every", "every_s": 600}), world.add({"kind": "at", "at": NOW + 2500})
        latest = NOW
        seen: list[str] = []
        for seconds, step in steps:
            world.now += -seconds if step == "back" else seconds
            latest = max(latest, world.now)
            before = world.home.jobs.read_bytes()
            if step == "restart":
                world.start()
            if step != "take":
                world.service.look()
            if step == "kill":  # after the message was stored, before the file of the jobs was
                world.home.jobs.write_bytes(before)
                world.start()
            seen += [message.id for message in world.agentd_takes()]
            assert len(seen) == len(set(seen))
        dues = [int(id.rsplit("-", 1)[1]) for id in seen if beat in id]
        assert all((due - NOW) % 600 == 0 and due <= latest for due in dues)
        world.now = latest + 3000
        world.service.look()
        assert f"cron-{once}-{int(NOW) + 2500}" in world.sent()
        assert any(beat in id for id in world.sent())


def test_beats_do_not_pile_up_while_nobody_takes_them(world: World) -> None:
    id = world.add(EVERY_30M)
    for _ in range(5):
        world.now += 1800
        world.service.look()
    assert [message.id for message in world.agentd_takes()] == [f"cron-{id}-{int(NOW) + 1800}"]
    world.now += 1800
    world.service.look()
    assert [message.id for message in world.agentd_takes()] == [f"cron-{id}-{int(NOW) + 6 * 1800}"]


def test_a_clock_that_is_set_back_does_not_silence_a_beat(world: World) -> None:
    id = world.add(EVERY_30M)
    world.now -= 5 * 86400
    world.service.look()
    assert world.agentd_takes() == []
    assert 0 < world.job(id)["next"] - world.now <= 1800
    world.now += 1800
    world.service.look()
    assert len(world.agentd_takes()) == 1


def test_outcomes_are_noted(world: World) -> None:
    id = world.add(EVERY_30M)
    for outcome, last, why in (("replied", "replied", ""), ("failed:rate_limited", "failed", "rate_limited"), ("silent", "silent", "")):
        world.now += 1800
        world.service.look()
        (message,) = world.agentd_takes()
        assert world.job(id)["last"] == "begun"
        world.agentd_tells(message, outcome)
        world.service.look()
        assert (world.job(id)["last"], world.job(id)["why"]) == (last, why)
        world.start()
        assert world.job(id)["last"] == last
    assert Queue(world.home.outbound("cron")).next_due() is None


def test_an_outcome_of_an_older_message_or_of_a_job_that_is_gone_changes_nothing(world: World) -> None:
    id = world.add(EVERY_30M)
    world.now += 1800
    world.service.look()
    (first,) = world.agentd_takes()
    world.now += 1800
    world.service.look()
    world.agentd_tells(first, "failed:model_down")
    world.agentd_tells("telegram-1", "replied", job="gone")
    world.service.look()
    assert world.job(id)["last"] == "begun"


def test_what_is_no_outcome_is_held(world: World) -> None:
    queue = Queue(world.home.outbound("cron"), clock=lambda: int(world.now * 1e9))
    queue.put("odd", {"text": 7})
    queue.put("newer", {"version": 99})
    (queue.path / "new" / "broken.json").write_text("no json }\n")
    world.now += 1e5
    world.service.look()
    assert sorted(item.id for item in queue.list("held")) == ["broken", "newer", "odd"]


def test_asked_again_under_one_id_nothing_happens_twice(world: World) -> None:
    first = world.ask("job.add", "q", message="x", schedule=EVERY_30M)
    assert world.ask("job.add", "q", message="x", schedule=EVERY_30M) == first
    assert len(world.ask("job.list")["jobs"]) == 1
    ran = world.ask("job.run", "r", id=first["id"])
    assert world.ask("job.run", "r", id=first["id"])["message_id"] == ran["message_id"]
    assert [message.id for message in world.agentd_takes()] == [ran["message_id"]]
    assert world.ask("job.run", "r2", id=first["id"])["message_id"] != ran["message_id"]


def test_switched_off_and_on(world: World) -> None:
    id = world.add(EVERY_30M)
    assert world.ask("job.enable", id=id, enabled=False)["next"] is None
    world.now += 4000
    world.service.look()
    assert world.sent() == []
    assert world.ask("job.enable", id=id, enabled=True)["next"] == NOW + 5400
    assert world.ask("job.enable", id=id)["next"] == NOW + 5400
    world.now += 1400
    world.service.look()
    assert len(world.sent()) == 1


def test_one_time_that_passed_while_it_was_off_is_over(world: World) -> None:
    id = world.add({"kind": "at", "at": NOW + 60})
    world.ask("job.enable", id=id, enabled=False)
    world.now += 61
    with pytest.raises(DataError, match="is past"):
        world.ask("job.enable", id=id, enabled=True)
    with pytest.raises(DataError, match="switched off") as refused:
        world.ask("job.run", id=id)
    assert "run -f" in refused.value.remedy
    assert world.ask("job.run", id=id, force=True)["last"] == "begun"
    assert len(world.agentd_takes()) == 1
    assert world.job(id)["enabled"] is False


def test_removed_jobs_do_not_come_back(world: World) -> None:
    id = world.add(EVERY_30M)
    world.now += 1800
    world.service.look()
    world.ask("job.remove", id=id)
    assert world.agentd_takes() == []
    world.agentd_tells(f"cron-{id}-{int(NOW) + 1800}", "replied", job=id)
    world.service.look()
    world.start()
    assert world.ask("job.list")["jobs"] == []
    with pytest.raises(DataError, match="no job"):
        world.ask("job.remove", id=id)


def test_a_job_may_be_called_by_its_name(world: World) -> None:
    id = world.add(EVERY_30M, name="mail")
    assert world.ask("job.enable", id="mail", enabled=False)["id"] == id
    world.add(EVERY_30M, name="mail")
    with pytest.raises(DataError, match="2 jobs are called 'mail'") as refused:
        world.ask("job.remove", id="mail")
    assert id in refused.value.remedy
    for wrong in ("", "nothing", None, 7):
        with pytest.raises(DataError):
            world.ask("job.remove", id=wrong)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, DataError, "without a message"),
    ({"message": " ", "schedule": EVERY_30M}, DataError, "without a message"),
    ({"message": 7, "schedule": EVERY_30M}, DataError, "'message' is a text"),
    ({"message": "x" * 200_000, "schedule": EVERY_30M}, DataError, "'message' is a text"),
    ({"message": "x"}, DataError, "a schedule is an object"),
    ({"message": "x", "schedule": {"kind": "at", "at": NOW - 61}}, DataError, "is past"),
    ({"message": "x", "schedule": {"kind": "cron", "expression": "* * * * *"}}, Misconfigured, "not built yet"),
    ({"message": "x", "schedule": EVERY_30M, "deliver": "telegram:42"}, Misconfigured, "not built yet"),
    ({"message": "x", "schedule": EVERY_30M, "name": []}, DataError, "'name' is a text"),
]


@pytest.mark.parametrize(("body", "error", "text"), WRONG)
def test_what_is_no_job_is_refused(world: World, body: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        world.ask("job.add", **body)
    assert world.ask("job.list") == {"jobs": []}
    assert not world.home.jobs.exists()


def test_odd_words_are_stored_as_words(world: World) -> None:
    id = world.add({**EVERY_30M, "tz": "Asia/Shanghai"}, "两点了\n\ud800\0", name="名", session="a/b\n")
    world.start()
    assert (world.job(id)["message"], world.job(id)["name"]) == ("两点了\n\ufffd\ufffd", "名")
    assert world.job(id)["schedule"] == {**EVERY_30M, "tz": "Asia/Shanghai"}
    world.now += 1800
    world.service.look()
    assert world.agentd_takes()[0].session.startswith("a_b_-")


def test_status(world: World) -> None:
    assert world.ask("status")["text"] == "0 jobs, none awaited"
    world.add(EVERY_30M, name="mail")
    found = world.ask("status")
    assert (found["jobs"], found["next"]) == (1, NOW + 1800)
    assert found["text"].startswith("1 job, next mail at 2025-11-30 ")
    with pytest.raises(ProtocolError, match="no operation 'job.fly'"):
        world.ask("job.fly")
