"""A session's directory swept: data/ alone, by age, whatever tree a model has made there."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.kernel.events import Call as ToolCall
from bubbles.kernel.events import ModelAnswered, UserSpoke, header, to_line
from bubbles.messages import Address, Media
from bubbles.paths import Home
from bubbles.tidying.ages import DAY_S
from bubbles.tidying.spared import Spared
from bubbles.tidying.walk import Old, mounted
from tests.tidying.home import aged, file, gone, inbound, later, swept
from tests.workspace import exchanging as exchanging_

NAMES = ["plain.txt", "日报 与 图片.png", "new\nline", " ", "-rf", "\u202egnp.exe", ".hidden", b"\xff\xfe".decode("utf-8", "surrogateescape")]


@pytest.fixture
def data(home: Home) -> Path:
    path = home.session("work") / "data"
    path.mkdir(parents=True)
    return path


def everything(root: Path) -> dict[str, str]:
    return {str(path): path.read_text("utf-8", "replace") for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


def test_old_files_go_young_ones_stay_and_nothing_else_is_looked_at(home: Home, data: Path) -> None:
    session = data.parent
    kept = [file(session / name) for name in ("session.jsonl", "SOUL.md", "MEMORY.md", "config.json", "work/notes.md", "skills/pdf/SKILL.md")]
    kept += [file(data / "young.txt", days=1.1), file(data / "deep/young.txt", days=1.1), file(data / "of-tomorrow", days=90)]
    old = [file(data / name) for name in NAMES] + [file(data / "deep/er/old.txt"), file(data / "deep/old.txt")]
    assert gone(home, 2.9) == set()
    assert gone(home, 4) == {f"sessions/work/{path.relative_to(session)}" for path in old} | {"sessions/work/data/deep/er"}
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in old)
    assert data.is_dir()


def test_directories_go_when_they_are_old_and_empty(home: Home, data: Path) -> None:
    file(data / "a/b/c/old.txt")
    (data / "empty").mkdir()
    aged(data / "empty", 2)  # made yesterday: a command may be about to write there
    (data / "ancient").mkdir()
    assert {path.split("/data/")[1] for path in gone(home, 4)} == {"a/b/c/old.txt", "a/b/c", "a/b", "a", "ancient"}
    assert sorted(path.name for path in data.iterdir()) == ["empty"]


def test_links_go_by_their_own_age_and_lead_nowhere(home: Home, data: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    file(outside / "secret")
    file(outside / "deep/secret")
    before = everything(outside)
    (data / "to-file").symlink_to(outside / "secret")
    (data / "to-directory").symlink_to(outside)
    (data / "to-nothing").symlink_to("nowhere")
    (data / "loop").symlink_to(data)
    (data / "young").symlink_to(outside)
    aged(data / "young", 3)
    os.link(outside / "secret", data / "hard")
    assert {path.split("/data/")[1] for path in gone(home, 4)} == {"to-file", "to-directory", "to-nothing", "loop", "hard"}
    assert everything(outside) == before
    assert [path.name for path in data.iterdir()] == ["young"]


@pytest.mark.parametrize("which", ["data", "work", ".", "sessions"])
def test_a_directory_that_is_a_link_is_not_entered(home: Home, data: Path, tmp_path: Path, which: str) -> None:
    """Not even by its owner's wish: nobody can tell that from a model's."""
    file(data / "old.txt")
    place = {"data": data, "work": data.parent / "work", ".": data.parent, "sessions": home.sessions}[which]
    place.mkdir(exist_ok=True)
    moved = tmp_path / "moved"
    shutil.move(place, moved)
    place.symlink_to(moved)
    before = everything(moved)
    expected = {"sessions/work/data/old.txt"} if which == "work" else set()
    assert gone(home, 4) == expected
    assert everything(moved) == before
    assert place.is_symlink()


def test_pipes_sockets_and_devices_are_not_opened(home: Home, data: Path) -> None:
    os.mkfifo(data / "pipe")
    os.mkfifo(data.parent / ".bubbles-0123456789abcdef.tmp")
    assert len(gone(home, 4)) == 2


def test_half_written_files_go_after_a_day_wherever_they_are(home: Home, data: Path) -> None:
    session = data.parent
    litter = ".bubbles-0123456789abcdef.tmp"
    places = [session / litter, session / "work/a/b" / litter, session / "skills/pdf" / litter, data / "x" / litter, session / ".config.json.4711"]
    for path in places:
        file(path)
    kept = [session / "work/.bubbles-0123.tmp", session / "work/.config.json.4711", session / ".bashrc.1", session / "session.jsonl.broken-17"]
    for path in kept:
        file(path)
    assert gone(home, 0.9) == set()
    assert gone(home, 1.1) == {f"sessions/work/{path.relative_to(session)}" for path in places}
    assert all(path.exists() for path in kept)


def journal(home: Home, *lines: bytes) -> None:
    (home.turns / "work.jsonl").write_bytes(header("t", "work") + b"".join(lines))


def spoke(at: float, text: str = "hi", **more: object) -> bytes:
    return to_line(UserSpoke("t", text, address=Address("cli", "work"), **more), at)  # type: ignore[arg-type]


def test_what_an_open_turn_names_is_spared(home: Home, data: Path) -> None:
    began = time.time() + 3600
    names = ["picture.png", "日报.pdf", "in \"quotes\".txt", "listed.csv", "project"]
    for name in names[:-1]:
        file(data / name)
    file(data / "project/deep/in.txt")
    file(data / "other.txt")
    call = ToolCall("c1", "exec", json.dumps({"command": "cat '../data/日报.pdf' '../data/in \"quotes\".txt' && ls ../data/project"}))
    journal(home, spoke(began, media=(Media("../data/picture.png"),)), to_line(ModelAnswered("so: listed.csv", (call,)), began))
    assert gone(home, 40) == {"sessions/work/data/other.txt"}
    (home.turns / "work.jsonl").write_bytes(b"")
    assert len(gone(home, 40)) == 7


def test_what_an_open_turn_has_read_written_or_unpacked_is_spared(home: Home, data: Path) -> None:
    file(data / "untouched.txt")
    began = time.time()
    time.sleep(0.01)
    unpacked = file(data / "unpacked-from-an-archive.txt")
    aged(unpacked, -1000)
    read = file(data / "read.txt")
    os.utime(read, (began + 60, began - 5 * DAY_S))
    aged(data / "untouched.txt", -10)
    journal(home, spoke(time.time() + 30))
    assert {path.split("/data/")[1] for path in gone(home, 4)} == {"untouched.txt", "unpacked-from-an-archive.txt"}
    aged(file(data / "unpacked-from-an-archive.txt"), -1000)
    journal(home, spoke(began))
    assert gone(home, 4) == set()


@pytest.mark.parametrize("content", [b"\0", b"{", b"not a journal\n"])
def test_a_journal_that_cannot_be_read_spares_everything(home: Home, data: Path, content: bytes) -> None:
    file(data / "old.txt")
    (home.turns / "work.jsonl").write_bytes(content)
    assert gone(home, 40) == set()


def test_a_turn_that_begins_during_the_walk_is_seen(home: Home, data: Path) -> None:
    for name in ("a", "b"):
        file(data / f"{name}-file.txt")

    def begins(old: Old) -> None:
        left = "b" if "a-file" in old.name else "a"
        journal(home, spoke(time.time() + 10, f"look at {left}-file.txt"))

    assert swept(home, 4, told=begins).deleted == 1
    assert len(list(data.iterdir())) == 1


def test_what_a_message_that_waits_or_a_turn_that_was_given_up_has_with_it_is_spared(home: Home, data: Path) -> None:
    for name in ("waits.png", "held.png", "other.png"):
        file(data / name)
    inbound(home, "telegram-1.again", "new", media=(Media("../data/waits.png"),))
    (home.turns / "held").mkdir()
    (home.turns / "held" / "t.jsonl").write_bytes(header("t", "work") + spoke(1.0, media=(Media("../data/held.png"),)))
    assert gone(home, 5) == {"sessions/work/data/other.png"}


def test_another_disk_and_another_mount_are_not_entered(home: Home, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told of a mount is the kernel's; here it is asked for two places that are mounted apart."""
    found = {mounted(fd) for path in ("/", "/proc") if (fd := os.open(path, os.O_RDONLY)) >= 0}
    assert len(found) == 2
    fd = os.open(data, os.O_RDONLY)
    assert mounted(fd) == mounted(fd)
    os.close(fd)


def test_a_bind_mount_is_not_entered(home: Home, data: Path, tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", data / "mounted"
    file(outside / "precious.txt")
    inside.mkdir()
    if os.geteuid() != 0 or os.system(f"mount --bind '{outside}' '{inside}' 2>/dev/null") != 0:
        pytest.skip("mounting is not allowed here")
    try:
        done = swept(home, 10)
        assert (outside / "precious.txt").exists()
        assert done.left == {"sessions/work/data/mounted": "another disk is mounted there"}
    finally:
        os.system(f"umount '{inside}'")
    assert swept(home, 10).deleted == 1


def test_a_tree_without_an_end_is_left_and_told(home: Home, data: Path) -> None:
    at = os.open(data, os.O_RDONLY)
    for _ in range(150):  # deeper than a path can be long
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    file(data / "old.txt")
    before = len(os.listdir("/proc/self/fd"))
    done = swept(home, 4)
    assert len(os.listdir("/proc/self/fd")) == before
    assert done.kinds == {"data": 1}
    assert list(done.left.values()) == ["it lies too deep"]


def test_what_may_not_be_looked_into_is_told_and_stops_nothing(home: Home, data: Path) -> None:
    file(data / "shut/old.txt")
    file(data / "zzz.txt")
    (data / "shut").chmod(0)
    done = swept(home, 4)
    if os.geteuid() == 0:
        assert done.deleted == 3
    else:
        assert (done.deleted, done.left) == (1, {"sessions/work/data/shut": "Permission denied"})
        (data / "shut").chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_another_user_goes_where_that_is_allowed(home: Home, data: Path) -> None:
    os.chown(file(data / "theirs.txt"), 12345, 12345)
    file(data / "their/own.txt")
    os.chown(data / "their", 12345, 12345)
    assert len(gone(home, 4)) == 3


@pytest.fixture
def exchanging(data: Path, tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A directory in data/, which all the time is exchanged for a link to another one outside: that one, and the inner one, open."""
    outside = tmp_path / "outside"
    for n in range(20):
        file(outside / f"{n}.txt")
    file(data / "real/young.txt", days=90)
    (data / "link").symlink_to(outside)
    aged(data / "link", 90)
    fd = os.open(data / "real", os.O_RDONLY)
    argv = [sys.executable, exchanging_.__file__, str(data), "real", "link"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield outside, fd
        assert int(process.communicate()[0]) > 1000
    os.close(fd)


def test_a_directory_that_is_exchanged_during_the_walk_leads_nowhere(home: Home, data: Path, exchanging: tuple[Path, int]) -> None:
    outside, real = exchanging
    before, went = everything(outside), 0
    for _ in range(200):
        for n in range(20):
            os.close(os.open(f"{n}.txt", os.O_CREAT | os.O_WRONLY, dir_fd=real))
        went += swept(home, 4).deleted
        assert everything(outside) == before
    assert went > 20, "it was a directory at times"


def test_ten_thousand_files_go_a_thousand_at_a_time(home: Home, data: Path) -> None:
    for n in range(10_000):
        (data / str(n)).touch()
    first = swept(home, 4)
    assert (first.deleted, first.more, len(os.listdir(data))) == (1000, True, 9000)
    rest = swept(home, 4, most=None)
    assert (rest.deleted, rest.more, os.listdir(data)) == (9000, False, [])


def test_looking_changes_nothing(home: Home, data: Path) -> None:
    for path in ("a/old.txt", "b.txt"):
        file(data / path)
    before = {path: path.lstat().st_mtime_ns for path in home.root.rglob("*")}
    would = gone(home, 4, dry=True)
    assert {path: path.lstat().st_mtime_ns for path in home.root.rglob("*")} == before
    assert gone(home, 4) == would
    assert len(would) == 3


def test_a_journal_is_read_again_only_when_it_has_changed(home: Home) -> None:
    spared = Spared(home)
    assert spared.turn("work") is None
    journal(home, spoke(7.0))
    first = spared.turn("work")
    assert first
    assert first.since == 7.0
    assert spared.turn("work") is first
    journal(home, spoke(7.0), spoke(8.0))
    assert spared.turn("work") is not first
    assert stat.S_ISREG((home.turns / "work.jsonl").stat().st_mode)
    assert later(1).wall > time.time()
