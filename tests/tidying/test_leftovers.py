"""What gone processes left: told from what living ones hold by the kernel alone."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path

import pytest

from bubbles.paths import Home
from bubbles.sessions.lent import lend, lent
from bubbles.tidying import leftovers
from bubbles.workspace import Grant
from tests.tidying.home import aged, file, gone

NAMES = re.compile(r"bubbles-[0-9a-f]{8}")


def test_turns_that_were_decided_on_go_after_a_month_and_held_ones_never(home: Home) -> None:
    for name in ("held/a.jsonl", "released/b.jsonl", "released/b.17.jsonl", "work.jsonl"):
        file(home.turns / name)
    assert gone(home, 29) == set()
    assert gone(home, 31) == {"turns/released/b.jsonl", "turns/released/b.17.jsonl"}
    assert gone(home, 5000) == set()


def test_background_jobs_go_three_days_after_their_end_was_told_and_the_last_keeps_its_number(home: Home) -> None:
    for n, told in ((1, "true"), (2, "false"), (3, "true"), (12, "true")):
        file(home.background / "work" / f"j{n}.json", f'{{"version":1,"told":{told}}}\n')
        file(home.background / "work" / f"j{n}.out")
    file(home.background / "work" / "j4.json", "{")
    file(home.background / "work" / "j5.out")
    file(home.background / "work" / "j6.json.tmp")
    file(home.background / "work" / "j3.json", '{"version":1,"told":true}\n', days=1)  # it ended later than it printed
    file(home.background / "work" / "notes.txt")
    assert gone(home, 2.9) == set()
    ended = {"jobs/work/j1.json", "jobs/work/j1.out", "jobs/work/j12.out", "jobs/work/j5.out", "jobs/work/j6.json.tmp"}
    assert gone(home, 3.1) == ended
    assert gone(home, 4.1) == {"jobs/work/j3.json", "jobs/work/j3.out"}
    left = {path.name for path in (home.background / "work").iterdir()}
    assert left == {"j2.json", "j2.out", "j4.json", "j12.json", "notes.txt"}


def test_loans_of_killed_terminals_go_and_those_of_open_ones_stay(home: Home, tmp_path: Path) -> None:
    lending = tmp_path / "project"
    lending.mkdir()
    left = file(home.run / "lent" / "work" / "4711-abcdef01", '{"path":"/x","mode":"ro"}')
    file(home.run / "lent" / "work" / ".4711-abcdef02")
    file(home.run / "lent" / "play" / "4711-abcdef03")
    with lend(home, "daily", Grant(lending, "ro")):
        assert gone(home, 0.9) == set()
        assert gone(home, 2) == {f"run/lent/{name}" for name in ("work/4711-abcdef01", "work/.4711-abcdef02", "work", "play/4711-abcdef03", "play")}
        assert [grant.path for grant in lent(home, "daily")] == [lending]
    assert not left.exists()


def bound(path: Path, kind: socket.SocketKind = socket.SOCK_STREAM, *, listens: bool = False) -> socket.socket:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = socket.socket(socket.AF_UNIX, kind)
    found.bind(str(path))
    if listens and kind == socket.SOCK_STREAM:
        found.listen()
    return found


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    path = Path("/tmp") / f"tidy-{os.getpid()}-{time.monotonic_ns():x}"  # short enough for a socket
    path.mkdir()
    yield path  # type: ignore[misc]
    for each in sorted(path.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() and not each.is_symlink() else each.unlink()
    path.rmdir()


def test_sockets_of_gone_daemons_go_and_the_directories_of_gone_homes(home: Home, runtime: Path, tmp_path: Path) -> None:
    gone_home, lives = runtime / "bubbles-00000001", runtime / "bubbles-00000002"
    bound(gone_home / "agentd.sock").close()
    bound(gone_home / "notify-1.sock", socket.SOCK_DGRAM).close()
    kept = [bound(lives / "agentd.sock", listens=True), bound(lives / "notify-2.sock", socket.SOCK_DGRAM)]
    bound(lives / "modeld.sock").close()
    (runtime / "bubbles-00000003").mkdir()
    (runtime / "bubbles-00000004").symlink_to(tmp_path)
    (runtime / "other").mkdir()
    file(runtime / "bubbles-00000005" / "notes.txt")
    assert gone(home, 0.9, sockets={runtime: NAMES}) == set()
    assert {path.removeprefix(f"{runtime}/") for path in gone(home, 2, sockets={runtime: NAMES})} == {
        "bubbles-00000001/agentd.sock",
        "bubbles-00000001/notify-1.sock",
        "bubbles-00000001",
        "bubbles-00000002/modeld.sock",
        "bubbles-00000003",
    }
    assert sorted(path.name for path in lives.iterdir()) == ["agentd.sock", "notify-2.sock"]
    for each in kept:
        each.close()


def test_the_directory_of_this_home_stays(home: Home) -> None:
    own = home.prepare_sockets()
    bound(own / "agentd.sock").close()
    assert gone(home, 2, sockets={own.parent: re.compile(re.escape(own.name))}) == {str(own / "agentd.sock")}
    assert own.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_another_users_directory_is_not_looked_into(home: Home, runtime: Path) -> None:
    (runtime / "bubbles-00000001").mkdir()
    os.chown(runtime / "bubbles-00000001", 12345, 12345)
    assert gone(home, 2, sockets={runtime: NAMES}) == set()


def test_where_sockets_are_is_where_homes_put_them(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    places = leftovers.places(home)
    assert places[home.sockets.parent].fullmatch(home.sockets.name)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    elsewhere = Home(tmp_path / "another").sockets
    assert elsewhere.parent == Path("/tmp")
    assert leftovers.places(home)[Path("/tmp")].fullmatch(elsewhere.name)


def test_young_ones_may_just_be_made(home: Home, runtime: Path) -> None:
    bound(runtime / "bubbles-00000001" / "agentd.sock").close()
    aged(runtime / "bubbles-00000001" / "agentd.sock", 1.5)
    aged(runtime / "bubbles-00000001", 1.5)
    assert gone(home, 2, sockets={runtime: NAMES}) == set()
