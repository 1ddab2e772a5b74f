"""`bubbles restore`: a home comes back, what it does by itself then, and what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bubbles.agentd.job import Job
from bubbles.bus.lock import is_running
from bubbles.channels.receipts import Receipts
from bubbles.cron.jobs import JobFile
from bubbles.kernel.events import UserSpoke
from bubbles.messages import Address
from bubbles.paths import Home
from bubbles.programs.given_up import turns
from bubbles.programs.restore import ending
from bubbles.programs.running import Running
from bubbles.programs.standstill import Standstill
from bubbles.spool import Queue
from tests.archive.home import file, history, journal, saved, spoke, tar
from tests.programs.conftest import Place, until
from tests.programs.run import BIN, bubbles
from tests.tidying.home import inbound, outbound

HOUR_S = 3600.0


@pytest.fixture
def waiting(home: Home) -> Home:
    """A home in which something waits everywhere."""
    for n, state in enumerate(("new", "cur", "held", "done")):
        inbound(home, f"telegram-{n}", state)
        outbound(home, f"cli-{n}.0.0", state)
    Receipts(home.outbound("telegram")).note("cli-1.0.0", begun=0)
    history(home, "s", "cli-0")
    journal(home, "s", spoke("cli-1"), turn="cli-1")
    job = {"id": "j1", "message": "look", "schedule": {"kind": "at", "at": time.time() - 600}, "next": time.time() - 600}
    beat = {"id": "j2", "message": "look", "schedule": {"kind": "every", "every_s": 3600}, "next": time.time() - 600, "anchor": time.time() - 4200}
    file(home.jobs, json.dumps({"version": 1, "jobs": [job, beat]}))
    return home


@pytest.fixture
def new(tmp_path: Path) -> Home:
    return Home(tmp_path / "new")


def restored(home: Home, new: Home, *argv: str, at: float | None = None) -> subprocess.CompletedProcess[str]:
    backup = home.root.with_name("backup.tar")
    backup.write_bytes(saved(home, ("logs",), at=at))
    return bubbles("restore", *argv, str(backup), BUBBLES_HOME=str(new.root))


def states(home: Home, way: str) -> dict[str, str]:
    """By message, where it lies."""
    return {path.stem: path.parent.name for path in (home.root / "spool" / way / "telegram").glob("*/*.json")}


AS_IT_WAS = {"telegram-0": "new", "telegram-1": "cur", "telegram-2": "held", "telegram-3": "done"}


def test_a_young_one_goes_on_as_after_a_power_cut(waiting: Home, new: Home) -> None:
    done = restored(waiting, new)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{new.root} is as it was on 20")
    assert states(new, "inbound") == AS_IT_WAS
    assert (new.turns / "s.jsonl").read_bytes() == (waiting.turns / "s.jsonl").read_bytes()
    assert new.jobs.read_bytes() == waiting.jobs.read_bytes()


def test_in_an_old_one_nothing_goes_on_by_itself(waiting: Home, new: Home) -> None:
    done = restored(waiting, new, at=time.time() - 2 * HOUR_S)
    assert done.returncode == 0
    assert "held, for what became of it since is not known: 4 messages, 1 turn, 2 jobs. bubbles queue list | bubbles scan" in done.stderr
    assert states(new, "inbound") == {"telegram-0": "held", "telegram-1": "held", "telegram-2": "held", "telegram-3": "done"}
    assert set(states(new, "outbound").values()) == {"held", "done"}
    why = [item.why for item in Queue(new.outbound("telegram")).list("held") if item.id == "cli-0.0.0"]
    assert why[0].startswith("restored from a backup of 20")
    assert Receipts(new.outbound("telegram")).facts("cli-1.0.0")[-1]["held"] == why[0], "and not sent unasked when it is released"
    assert (new.turns / "s.jsonl").read_bytes() == b""
    assert [turn.id for turn in turns(new)] == ["cli-1"]
    jobs = JobFile(new.jobs)
    jobs.load()
    assert [(job.id, job.enabled, job.next is None or job.next > time.time()) for job in jobs.all] == [("j1", False, True), ("j2", True, True)]


@pytest.mark.parametrize(("argv", "age_s", "held"), [("--resume", 30 * 24 * HOUR_S, False), ("--hold", 0.0, True), ("", -2 * HOUR_S, True)])
def test_a_person_may_say_which_and_a_clock_that_is_wrong_says_old(waiting: Home, new: Home, argv: str, age_s: float, held: bool) -> None:
    assert restored(waiting, new, *filter(None, [argv]), at=time.time() - age_s).returncode == 0
    assert (states(new, "inbound")["telegram-0"] == "held") is held


def test_a_home_in_which_nothing_waits_is_not_said_to_hold_anything(home: Home, new: Home) -> None:
    history(home, "s", "cli-0")
    done = restored(home, new, at=1.0)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_stands_in_a_journal_is_held_there_and_not_a_second_time(home: Home, new: Home) -> None:
    inbound(home, "telegram-1", "cur")
    words = UserSpoke("telegram-1", "hello", "", Address("telegram", "42"), at=1.0)
    journal(home, "telegram-42", words, turn="telegram-1")
    assert restored(home, new, at=1.0).returncode == 0
    assert states(new, "inbound") == {"telegram-1": "done"}
    assert [turn.id for turn in turns(new)] == ["telegram-1"]


def test_a_turn_that_is_over_is_not_held(home: Home, new: Home) -> None:
    history(home, "s", "cli-1")
    journal(home, "s", spoke("cli-1"), turn="cli-1")
    assert restored(home, new, at=1.0).returncode == 0
    assert list(turns(new)) == []
    assert (new.turns / "s.jsonl").read_bytes() == b""


def test_what_ran_in_the_background_is_lost_and_the_message_that_says_so_held(home: Home, new: Home) -> None:
    made = Job("s", 1, "make", 1.0, 60.0, Address("telegram", "42"), owner=True)
    made.store(home.background / "s/j1.json")
    replace(made, number=2, how="exit", exit=0, told=True).store(home.background / "s/j2.json")
    file(home.background / "s/j1.out", "so far\n")
    assert restored(home, new, at=1.0).returncode == 0
    (held,) = Queue(new.inbound("jobs")).list("held")
    assert held.id == made.message
    assert held.body["text"].startswith("The background job j1 was lost")
    assert held.body["text"].endswith("| so far")
    assert Job.load(new.background / "s/j1.json").told
    assert not Job.load(home.background / "s/j1.json").told


def test_what_cannot_be_read_is_left_to_whoever_reads_it(home: Home) -> None:
    (home.turns / "s.jsonl").write_text('{"format":"bubbles.turn","version":99}\n')
    (home.turns / "t.jsonl").write_text('{"event":"stray"}\n')
    file(home.jobs, "{")
    still = Standstill(home, 1.0)
    still.all()
    assert still.told() == {"messages": 0, "turns": 0, "jobs": 0}
    assert (home.turns / "t.jsonl").read_text() == '{"event":"stray"}\n'


def test_what_is_there_is_not_touched(waiting: Home, new: Home) -> None:
    file(new.root / "mine")
    done = restored(waiting, new)
    assert done.returncode == 64
    assert done.stderr.startswith(f"bubbles: {new.root} is not empty, and nothing is overwritten\n  try: mv ")
    assert os.listdir(new.root) == ["mine"]


def test_what_is_no_backup_is_told_as_such(new: Home, tmp_path: Path) -> None:
    hostile = tmp_path / "hostile.tar"
    hostile.write_bytes(tar(("../../x", {}, b"x")))
    for name, status in ((str(hostile), 65), (__file__, 65), (str(tmp_path / "nowhere"), 65), (str(tmp_path), 65)):
        done = bubbles("restore", name, BUBBLES_HOME=str(new.root))
        assert (done.returncode, done.stdout) == (status, "")
        assert re_two_lines(done.stderr)
    assert not new.root.exists()


def re_two_lines(text: str) -> bool:
    first, second = text.splitlines()
    return first.startswith("bubbles: ") and second.startswith("  try: ")


def test_through_a_pipe(waiting: Home, new: Home) -> None:
    line = f"{BIN}/bubbles backup - 2>/dev/null | BUBBLES_HOME={new.root} {BIN}/bubbles restore --json -"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert (told["home"], told["without"], told["links"], told["held"]) == (str(new.root), ["logs", "models"], [], {})
    assert states(new, "inbound") == AS_IT_WAS


def test_what_is_in_it_is_listed(waiting: Home, tmp_path: Path) -> None:
    backup = tmp_path / "a.tar.gz"
    (waiting.session("s") / "work").mkdir()
    file(waiting.session("s") / "work" / "evil\n\x1b[2J")
    (waiting.session("s") / "work" / "link").symlink_to("/etc/passwd")
    assert bubbles("backup", str(backup)).returncode == 0
    done = bubbles("restore", "--list", str(backup))
    assert (done.returncode, done.stderr) == (0, "")
    *files, last = done.stdout.splitlines()
    assert any(line.endswith(" sessions/s/work/evil\\n\\x1b[2J") for line in files)
    assert any(line.endswith(" sessions/s/work/link -> /etc/passwd") for line in files)
    assert last.startswith(f"{waiting.root} on 20")
    first, *members, end = [json.loads(line) for line in bubbles("restore", "--list", "--json", str(backup)).stdout.splitlines()]
    assert (first["format"], first["home"]) == ("bubbles.backup", str(waiting.root))
    assert {"path": "sessions/s/session.jsonl", "kind": "file"}.items() <= next(m for m in members if "session.jsonl" in m["path"]).items()
    assert (end["kind"], end["removed"]) == ("end", [])


def test_a_listing_finds_damage(waiting: Home, tmp_path: Path) -> None:
    backup = tmp_path / "a.tar.gz"
    assert bubbles("backup", str(backup)).returncode == 0
    backup.write_bytes(backup.read_bytes()[:-3])
    assert bubbles("restore", "--list", str(backup)).returncode == 65


def test_without_keys_it_says_what_to_do(waiting: Home, new: Home, tmp_path: Path) -> None:
    backup = tmp_path / "a.tar"
    assert bubbles("backup", "--no-keys", str(backup)).returncode == 0
    done = bubbles("restore", str(backup), BUBBLES_HOME=str(new.root))
    assert done.stderr == "bubbles: there are no keys in it: bubbles onboard\n"


def test_links_that_were_left_out_are_named(home: Home, new: Home) -> None:
    file(home.session("s") / "work" / "a")
    (home.session("s") / "work" / "python").symlink_to("/usr/bin/python3")
    assert "left out, it leads out of the home: sessions/s/work/python (--links)" in restored(home, new).stderr
    os.rename(new.root, new.root.with_name("was"))
    assert restored(home, new, "--links").stderr == ""
    assert (new.session("s") / "work" / "python").is_symlink()


def test_daemons_that_run_are_each_named_once_and_how_they_end(own_place: Place, tmp_path: Path) -> None:
    home, backup = own_place.home, tmp_path / "a.tar"
    assert own_place.run("backup", str(backup)).returncode == 0
    assert own_place.run("agent", "-s", "s", "-m", "one").returncode == 0
    until(lambda: is_running(home, "cron"))  # nobody waits for it
    done = own_place.run("restore", str(backup))
    wait = "wait: what a terminal started ends by itself, 30 s after the last terminal has"
    assert (done.returncode, done.stderr) == (75, f"bubbles: agentd, cron, modeld of {home.root} run\n  try: {wait}\n")
    missing = own_place.run("restore", str(tmp_path / "b.tar"))
    assert (missing.returncode, missing.stderr.splitlines()[0]) == (65, f"bubbles: {tmp_path / 'b.tar'} cannot be read: No such file or directory")
    for name in ("agentd", "modeld", "cron"):
        own_place.kill(name)


def test_a_gateway_is_ended_where_it_runs(own_place: Place, tmp_path: Path) -> None:
    home, backup = own_place.home, tmp_path / "a.tar"
    assert own_place.run("backup", str(backup)).returncode == 0
    with subprocess.Popen([BIN / "bubbles", "gateway", "--children"], env={**os.environ, **own_place.env}, stderr=subprocess.DEVNULL) as gateway:
        until(lambda: all(is_running(home, name) for name in ("gateway", "agentd", "modeld", "cron")))
        done = own_place.run("restore", str(backup))
        gateway.terminate()
    assert done.returncode == 75
    first, second = done.stderr.splitlines()
    assert first == f"bubbles: agentd, cron, gateway, modeld of {home.root} run"
    assert second == f"  try: Ctrl-C where bubbles gateway runs (pid {gateway.pid})"


@pytest.mark.parametrize(
    ("by", "gateway", "remedy"),
    [
        (("unit", "unit"), None, "systemctl --user stop bubbles.target"),
        (("unit", "hand"), None, "systemctl --user stop bubbles.target; kill 2"),
        (("gateway", "terminal"), 9, "Ctrl-C where bubbles gateway runs (pid 9); wait: what a terminal started"),
        (("hand", "hand"), None, "kill 1 2"),
        (("", ""), 9, "Ctrl-C where bubbles gateway runs (pid 9)"),
        (("once", ""), None, "wait until what runs once is done"),
    ],
)
def test_what_ends_them_is_told_by_who_runs_them(by: tuple[str, ...], gateway: int | None, remedy: str) -> None:
    assert ending([Running(f"{n}", n if who else None, who) for n, who in enumerate(by, 1)], gateway).startswith(remedy)


def test_a_home_that_runs_is_saved_and_its_open_turn_goes_on_in_another(own_place: Place, tmp_path: Path) -> None:
    place = own_place
    place.model.play({"default": {"reply": "first"}})
    assert place.run("agent", "-s", "s", "-m", "one").stdout == "first\n"
    place.model.play({"default": {"reply": "second", "delay_s": 3}})
    asking = subprocess.Popen([BIN / "bubbles", "agent", "-s", "s", "-m", "two"], stdout=subprocess.PIPE, env={**os.environ, **place.env})
    until(lambda: (place.home.turns / "s.jsonl").stat().st_size)
    assert place.run("backup", str(tmp_path / "a.tar.gz")).returncode == 0
    assert asking.communicate()[0] == b"second\n"
    done = place.run("restore", str(tmp_path / "a.tar.gz"))
    assert done.returncode in (64, 75), "its daemons run, and it is there"
    other = {**place.env, "BUBBLES_HOME": str(tmp_path / "other")}
    place.model.play({"default": {"reply": "second, again"}})
    assert bubbles("restore", str(tmp_path / "a.tar.gz"), **other).returncode == 0
    assert bubbles("agent", "-s", "s", "-m", "three", **other).stdout.endswith("second, again\n")
    said = [json.loads(line) for line in bubbles("history", "s", **other).stdout.splitlines()]
    assert [line["text"] for line in said if line.get("role") == "assistant"][:2] == ["first", "second, again"]
    assert [line["text"] for line in said if line.get("role") == "user"] == ["one", "two", "three"]
    for name in ("agentd", "modeld", "cron"):
        Place(Home(tmp_path / "other"), place.model, other).kill(name)


def test_what_is_held_is_answered_when_it_is_released_and_not_before(own_place: Place, tmp_path: Path) -> None:
    place, new = own_place, Home(tmp_path / "other")
    inbound(place.home, "cli-1", "new", "cli", session="s")
    journal(place.home, "s", spoke("cli-0"), turn="cli-0")
    (tmp_path / "a.tar").write_bytes(saved(place.home, at=1.0))
    other = {**place.env, "BUBBLES_HOME": str(new.root)}
    place.model.play({"default": {"reply": "done"}})
    assert bubbles("restore", str(tmp_path / "a.tar"), **other).returncode == 0
    assert bubbles("agent", "-s", "s", "-m", "now", **other).stdout == "done\n"
    assert place.model.seen()["requests"] == 1
    listed = [json.loads(line) for line in bubbles("queue", "list", **other).stdout.splitlines()]
    assert {line["id"] for line in listed if line["state"] == "held"} == {"cli-0", "cli-1"}, "a message, and a turn"
    for queue, id in (("inbound", "cli-1"), ("turns", "cli-0")):
        assert bubbles("queue", "release", queue, id, **other).returncode == 0
    bubbles("agent", "-s", "t", "-m", "and here", **other)
    until(lambda: place.model.seen()["requests"] == 4)
    for name in ("agentd", "modeld", "cron"):
        Place(new, place.model, other).kill(name)
