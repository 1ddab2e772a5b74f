"""A backup is put in place whole or not at all, beside everything that is there."""

from __future__ import annotations

import io
import os
import random
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bubbles.archive.form import Head
from bubbles.archive.restoring import restore
from bubbles.bus.lock import Lock
from bubbles.errors import BubblesError, DataError, Misconfigured, TryAgain, Usage
from bubbles.paths import Home
from tests.archive.home import file, tar, tree
from tests.archive.test_unpacking import HOSTILE

ROOT = Path(__file__).resolve().parents[2]
LINK = {"type": tarfile.SYMTYPE}
DIRECTORY = {"type": tarfile.DIRTYPE}


@pytest.fixture
def empty(tmp_path: Path, home: Home) -> Home:
    """A place for a home. (The fixture `home` sees to the environment.)"""
    return Home(tmp_path / "place" / "new")


def put(home: Home, *members: tuple[str, dict[str, object], bytes], **more: object) -> dict[str, object]:
    restore(home, io.BytesIO(tar(*members)), **more)  # type: ignore[arg-type]
    return {name: value[0] if isinstance(value, tuple) else value for name, value in tree(home.root).items()}


def beside(home: Home) -> list[str]:
    return sorted(os.listdir(home.root.parent)) if home.root.parent.exists() else []


def test_a_home_comes_to_be_and_nothing_beside_it(empty: Home) -> None:
    assert put(empty, ("a/b", {}, b"x"), ("c", DIRECTORY, b"")) == {"a": None, "a/b": b"x", "c": None}
    assert beside(empty) == ["new"]


def test_an_empty_directory_is_no_home_yet(empty: Home) -> None:
    empty.root.mkdir(parents=True)
    assert put(empty, ("a", {}, b"x")) == {"a": b"x"}


def test_a_link_in_its_place_leads_to_where_it_goes(empty: Home, tmp_path: Path) -> None:
    empty.root.parent.mkdir()
    empty.root.symlink_to(tmp_path / "disk")
    restore(empty, io.BytesIO(tar(("a", {}, b"x"))))
    assert empty.root.is_symlink()
    assert (tmp_path / "disk" / "a").read_bytes() == b"x"


def test_what_is_there_is_never_overwritten(empty: Home) -> None:
    file(empty.root / "mine")
    with pytest.raises(Usage, match="not empty") as told:
        put(empty, ("a", {}, b"x"))
    assert told.value.remedy.startswith(f"mv {empty.root} ")
    assert tree(empty.root).keys() == {"mine"}
    os.unlink(empty.root / "mine")
    empty.root.rmdir()
    empty.root.write_text("a file")
    with pytest.raises(Usage):
        put(empty)


def test_nor_what_came_meanwhile(empty: Home) -> None:
    with pytest.raises(Usage):
        put(empty, ("a", {}, b"x"), settle=lambda home, head: file(empty.root / "mine"))
    assert (beside(empty), tree(empty.root).keys()) == (["new"], {"mine"})


def test_where_a_daemon_runs_it_is_refused(empty: Home) -> None:
    empty.run.mkdir(parents=True)
    lock = Lock(empty, "agentd")
    lock.acquire()
    with pytest.raises(TryAgain, match=r"agentd of .* runs"):
        put(empty)
    lock.release()


def test_so_it_is_where_one_answers_whose_home_was_moved_away(empty: Home) -> None:
    directory = empty.prepare_sockets()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(directory / "modeld.sock"))
        door.listen()
        with pytest.raises(TryAgain, match="modeld"):
            put(empty)
    assert put(empty, ("a", {}, b"x")) == {"a": b"x"}, "a socket at which nobody answers is left over"


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_backup_has_leaves_nothing(empty: Home, tmp_path: Path, what: str) -> None:
    before = tree(tmp_path)
    with pytest.raises(DataError):
        put(empty, ("fine", {}, b"x"), HOSTILE[what])
    assert {name: value for name, value in tree(tmp_path).items() if name != "place"} == before
    assert beside(empty) == []


def test_nothing_is_written_through_a_link(empty: Home, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    found = put(
        empty,
        ("d", {**LINK, "linkname": str(tmp_path / "outside")}, b""),
        ("d/x", {}, b"x"),
        ("e", {**LINK, "linkname": "f"}, b""),
        ("e", {}, b"y"),
        ("g", {**LINK, "linkname": str(tmp_path / "outside" / "new")}, b""),
        ("g", {}, b"z"),
        links=True,
    )
    assert list((tmp_path / "outside").iterdir()) == []
    assert (found["e"], found["g"]) == (b"y", b"z")


def test_links_that_lead_out_are_left_out_unless_they_are_wanted(empty: Home) -> None:
    members = [("a", {**LINK, "linkname": "b"}, b""), ("python", {**LINK, "linkname": "/usr/bin/python3"}, b"")]
    assert restore(empty, io.BytesIO(tar(*members))).links == ["python"]
    assert tree(empty.root) == {"a": "b"}
    other = Home(empty.root.with_name("other"))
    assert put(other, *members, links=True) == {"a": "b", "python": "/usr/bin/python3"}


def test_what_stands_twice_counts_as_it_stands_last(empty: Home) -> None:
    found = put(
        empty, ("a", {}, b"1"), ("a", {}, b"2"), ("b", {}, b"1"), ("b/c", {}, b"2"), ("d/e", {}, b"1"), ("d", {}, b"2"), ("f", {}, b"1"),
        ("f", {**LINK, "linkname": "a"}, b""),
    )  # fmt: skip
    assert found == {"a": b"2", "b": None, "b/c": b"2", "d": b"2", "f": "a"}


def test_what_was_gone_at_the_end_is_not_there(empty: Home) -> None:
    data = tar(("a/b/c", {}, b"x"), ("a/d", {}, b"y"), end={"removed": ["a/b/c", "a/b", "no/such"]})
    restore(empty, io.BytesIO(data))
    assert tree(empty.root).keys() == {"a", "a/d"}


@pytest.mark.parametrize("path", ["../new", "..", "", "/etc/passwd", "a/../../x"])
def test_nothing_else_can_be_removed(empty: Home, path: str) -> None:
    with pytest.raises(DataError):
        restore(empty, io.BytesIO(tar(("a", {}, b"x"), end={"removed": [path]})))


def test_modes_are_private_whatever_it_says(empty: Home) -> None:
    put(empty, ("a", {"mode": 0o4777}, b"x"), ("b", {"mode": 0o044}, b"x"), ("d", {**DIRECTORY, "mode": 0o777}, b""))
    assert {path.name: path.stat().st_mode & 0o7777 for path in [empty.root, *empty.root.iterdir()]} == {
        "new": 0o700,
        "a": 0o700,
        "b": 0o600,
        "d": 0o700,
    }


def test_a_file_that_the_disk_has_no_room_for_is_not_begun(empty: Home) -> None:
    info = tarfile.TarInfo("bubbles-backup/home/a")
    info.size = 1 << 50
    with pytest.raises(TryAgain, match="no room"):
        restore(empty, io.BytesIO(tar()[:1024] + info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
    assert beside(empty) == []


def test_whoever_is_told_may_still_say_no(empty: Home) -> None:
    def refuse(home: Home, head: Head) -> None:
        assert (home.root / "a").read_bytes() == b"x"
        assert not empty.root.exists()
        raise Misconfigured("no")

    with pytest.raises(BubblesError, match="no"):
        put(empty, ("a", {}, b"x"), settle=refuse)
    assert beside(empty) == []


def test_what_a_killed_one_left_is_swept_and_what_a_living_one_makes_is_not(empty: Home) -> None:
    file(empty.root.parent / ".new.restoring-12345678" / "a")
    code = "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY); fcntl.flock(fd, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    alive = file(empty.root.parent / ".new.restoring-abcdef01" / "a").parent
    with subprocess.Popen([sys.executable, "-c", code, str(alive)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        put(empty, ("a", {}, b"x"))
        assert beside(empty) == [".new.restoring-abcdef01", "new"]
        other.communicate()


def test_killed_at_any_moment_it_leaves_a_whole_home_or_none(empty: Home, tmp_path: Path) -> None:
    contents = {f"sessions/s/work/{n}": os.urandom(2000) for n in range(400)}
    backup = tmp_path / "backup.tar"
    backup.write_bytes(tar(*((name, {}, content) for name, content in contents.items())))
    argv = [sys.executable, "-m", "bubbles.programs", "restore", str(backup)]
    env = {**os.environ, "BUBBLES_HOME": str(empty.root)}
    chance = random.Random(7)
    began = time.monotonic()
    assert subprocess.run(argv, cwd=ROOT, env=env, capture_output=True).returncode == 0
    takes_s = time.monotonic() - began
    os.rename(empty.root, empty.root.with_name("whole"))
    for n in range(10):
        process = subprocess.Popen(argv, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(takes_s / 3, takes_s))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if empty.root.exists():
            assert {name: value[0] for name, value in tree(empty.root).items() if value} == contents
            os.rename(empty.root, empty.root.with_name(f"whole-{n}"))
    put(empty, ("a", {}, b"x"))
    assert [name for name in beside(empty) if name.startswith(".")] == []
