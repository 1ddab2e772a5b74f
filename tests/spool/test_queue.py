"""What a queue promises to those who put into it and to the one who takes out of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from bubbles.errors import DataError, Misconfigured
from bubbles.spool import STATES, Queue
from bubbles.spool.backoff import LONGEST_S
from bubbles.spool.disk import filesystem
from bubbles.spool.files import Files
from tests.spool.disks import Recording, Stuttering

NOW = 1_764_500_400.0


class Clock:
    """Wall time that a test moves; in seconds."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Queue:
    made = Queue(tmp_path / "q", clock=clock)
    made.prepare()
    return made


def test_a_message_travels(queue: Queue) -> None:
    assert queue.put("telegram-1", {"text": "hello"})
    assert queue.find("telegram-1") == "new"
    assert queue.due(NOW) == ["telegram-1"]
    item = queue.claim("telegram-1")
    assert (item.id, item.body, item.at_ns) == ("telegram-1", {"text": "hello"}, int(NOW * 1e9))
    assert queue.find("telegram-1") == "cur"
    assert queue.due(NOW) == []
    assert queue.finish("telegram-1")
    assert queue.find("telegram-1") == "done"
    assert not queue.finish("telegram-1")


@pytest.mark.parametrize("state", STATES[1:])
def test_put_knows_an_id_in_each_state(queue: Queue, state: str) -> None:
    queue.put("a", {"text": "one", "at": 1.0})
    if state != "new":
        queue.claim("a")
    if state == "done":
        queue.finish("a")
    if state == "held":
        queue.hold("a")
    assert queue.find("a") == state
    assert not queue.put("a", {"text": "one", "at": 1.0})
    assert not queue.put("a", {"text": "two"})
    assert not queue.put("a", {"at": 2.0, "text": "one"}, strict=True)
    with pytest.raises(DataError, match="another content"):
        queue.put("a", {"text": "two"}, strict=True)
    assert [item.body["text"] for item in queue.list(state)] == ["one"]


IDS = ["a/b", "..", ".", "", "a\0b", "a\nb", "x" * 300, "会议提醒", "会议提醒 二", "\ud800", ".hidden", "-rf", "a b", "a.json", "a.why", "a.json.1.2"]


def test_any_id_is_a_file_name(queue: Queue) -> None:
    for n, id in enumerate(IDS):
        assert queue.put(id, {"n": n})
        assert not queue.put(id, {"n": n}, strict=True)
    due = queue.due(NOW)
    assert [queue.claim(id).body["n"] for id in due] == list(range(len(IDS)))
    for n, id in enumerate(IDS):
        assert queue.find(id) == "cur"
        assert queue.hold(id, "why") if n % 2 else queue.finish(id)
    assert all(len(os.fsencode(entry.name)) < 128 for state in STATES for entry in (queue.path / state).iterdir())


def test_who_is_put_off_waits_and_keeps_its_body(queue: Queue, clock: Clock) -> None:
    queue.put("a", {"n": 1})
    queue.claim("a")
    assert queue.defer("a", NOW + 30)
    assert queue.due(NOW + 29.9) == []
    assert queue.next_due() == pytest.approx(NOW + 30, abs=1e-5)
    assert queue.due(NOW + 30) == ["a"]
    clock.now = NOW + 31
    assert queue.next_due() == pytest.approx(NOW + 31, abs=1e-5)
    assert queue.claim("a").body == {"n": 1}
    assert not queue.defer("b", NOW)


def test_next_due_is_never_a_moment_early(queue: Queue, clock: Clock) -> None:
    for k in range(200):
        clock.now = NOW + k * 7.123456789
        queue.put("a", {}, not_before=clock.now + 1.000000123 * k)
        at = queue.next_due()
        assert at is not None
        assert queue.due(at) == ["a"]
        clock.now = at
        queue.claim("a")
        queue.finish("a")
        (queue.path / "done" / "a.json").unlink()
    assert queue.next_due() is None


def test_not_before(queue: Queue) -> None:
    queue.put("late", {}, not_before=NOW + 60)
    queue.put("past", {}, not_before=NOW - 60)
    queue.put("soon", {})
    assert queue.due(NOW) == ["past", "soon"]
    assert queue.due(NOW + 60) == ["past", "soon", "late"]


def test_nothing_waits_longer_than_an_hour(queue: Queue) -> None:
    queue.put("a", {}, not_before=NOW + 10 * LONGEST_S)
    assert queue.due(NOW + 1) == []
    assert queue.due(NOW + LONGEST_S) == ["a"]


def test_the_line_is_kept_when_the_clock_steps_back(queue: Queue, clock: Clock, tmp_path: Path) -> None:
    other = Queue(tmp_path / "q", clock=clock)
    other.put("0", {})
    for k, step in enumerate([0, -0.001, -1800, 5, -900, 0, -10], start=1):
        clock.now += step
        (queue if k % 2 else other).put(str(k), {})
        assert queue.due(clock.now) == [str(n) for n in range(k + 1)]
        assert queue.next_due() == pytest.approx(clock.now, abs=1e-5)


def test_who_is_put_off_after_a_step_back_is_neither_early_nor_forgotten(queue: Queue, clock: Clock) -> None:
    queue.put("a", {})
    clock.now -= 1800
    queue.claim("a")
    queue.defer("a", clock.now + 4)
    assert queue.due(clock.now) == []
    queue.put("b", {})
    assert queue.due(clock.now + 1) == ["b"]
    assert queue.due(clock.now + 1804.1) == ["b", "a"]


def test_a_clock_that_was_years_ahead_holds_nothing_back(queue: Queue, clock: Clock) -> None:
    clock.now = NOW + 12 * 365 * 86400
    queue.put("b", {})
    queue.put("a", {}, not_before=clock.now + 60)
    queue.put("c", {})
    clock.now = NOW
    queue.put("d", {})
    assert queue.due(NOW) == ["b", "c", "a", "d"]
    assert queue.next_due() == pytest.approx(NOW, abs=1e-5)
    queue.claim("b")
    queue.defer("b", NOW + 4)
    assert queue.due(NOW) == ["c", "a", "d"]
    assert queue.due(NOW + 4) == ["c", "a", "d", "b"]


def test_equal_places_are_ordered_by_name(queue: Queue) -> None:
    for id in "cab":
        queue.put(id, {})
        os.utime(queue.path / "new" / f"{id}.json", (NOW, NOW))
    assert queue.due(NOW) == ["a", "b", "c"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"text":"hel', b'{"text":"hello"}', b"\0" * 20, b'{"a":1}\n\0\0'])
def test_litter_is_skipped_and_overwritten(queue: Queue, content: bytes) -> None:
    torn = queue.path / "new" / "a.json"
    torn.write_bytes(content)
    queue.put("b", {})
    assert queue.due(NOW + 1) == ["b"]
    assert queue.find("a") is None
    assert [item.id for item in queue.list("new")] == ["b"]
    with pytest.raises(FileNotFoundError):
        queue.claim("a")
    queue.claim("b")
    queue.finish("b")
    assert queue.next_due() is None
    assert queue.put("a", {"text": "hello"})
    assert queue.claim("a").body == {"text": "hello"}


def test_litter_of_a_claimed_message_is_overwritten_too(queue: Queue) -> None:
    queue.put("a", {"n": 1}, sync=False)
    queue.claim("a")
    (queue.path / "cur" / "a.json").write_bytes(b"\0\0")
    assert queue.recover() == ["a"]
    assert queue.due(NOW + 1) == []
    assert queue.put("a", {"n": 1})
    assert queue.due(NOW + 1) == ["a"]


def test_what_is_done_stays_known_though_its_content_is_gone(queue: Queue) -> None:
    queue.put("a", {"n": 1}, sync=False)
    queue.claim("a")
    queue.finish("a")
    (queue.path / "done" / "a.json").write_bytes(b"")
    assert not queue.put("a", {"n": 1})
    assert [(item.id, item.body) for item in queue.list("done")] == [("a", {})]


def _unreadable(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("/etc/passwd")
        case _:
            path.write_bytes(kind.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    "kind", ["no json }\n", '["a"]}\n', "\udcff}\n", "[" * 100_000 + "}\n", '{"a":' + "9" * 5000 + "}\n", "directory", "link", "pipe"]
)
def test_what_is_no_message_is_held_for_a_person(queue: Queue, kind: str) -> None:
    _unreadable(queue.path / "new" / "a.json", kind)
    queue.put("b", {})
    assert sorted(queue.due(NOW + 1e9)) == ["a", "b"]
    with pytest.raises(DataError, match="held") as told:
        queue.claim("a")
    assert "held/a.json" in told.value.remedy
    assert queue.due(NOW + 1) == ["b"]
    held = next(queue.list("held"))
    assert (held.id, held.body) == ("a", {})
    assert "cannot be read" in held.why


@pytest.mark.parametrize("kind", ["directory", "link", "pipe"])
def test_put_says_what_stands_in_its_way(queue: Queue, kind: str) -> None:
    _unreadable(queue.path / "cur" / "a.json", kind)
    with pytest.raises(Misconfigured, match=r"cur/a.json is not a regular file"):
        queue.put("a", {"n": 1})


def test_foreign_files_are_left_alone(queue: Queue) -> None:
    for state in STATES:
        (queue.path / state / "README").write_text("mine\n")
    queue.put("a", {})
    assert queue.due(NOW) == ["a"]
    assert queue.recover() == []
    assert [item.id for item in queue.list("new")] == ["a"]


def test_held_released_dropped(queue: Queue) -> None:
    for id in "abc":
        queue.put(id, {"id": id})
    queue.claim("a")
    assert queue.hold("a", "chat 42 has blocked us")
    assert [(item.id, item.why) for item in queue.list("held")] == [("a", "chat 42 has blocked us")]
    assert queue.release("a")
    assert not queue.release("a")
    assert queue.due(NOW + 1) == ["b", "c", "a"]
    queue.claim("a")
    queue.hold("a")
    assert [item.why for item in queue.list("held")] == [""]
    assert queue.drop("a")
    assert queue.drop("c")
    assert not queue.drop("a")
    assert queue.due(NOW + 1) == ["b"]
    assert not queue.put("a", {"id": "a"})
    with pytest.raises(FileNotFoundError):
        queue.claim("c")


def test_who_was_not_claimed_is_not_held_and_has_no_reason(queue: Queue) -> None:
    queue.put("a", {})
    assert not queue.hold("a", "why")
    assert queue.find("a") == "new"
    assert not list((queue.path / "held").iterdir())


def test_a_write_may_come_in_pieces(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "q", disk=Stuttering())
    assert queue.put("a", {"text": "x" * 1000})
    assert queue.claim("a").body == {"text": "x" * 1000}


def test_recover_keeps_the_line_and_sweeps_old_litter(queue: Queue, clock: Clock) -> None:
    for id in "zyx":
        queue.put(id, {})
        queue.claim(id)
    (queue.path / "tmp" / "old.json.1.1").write_text("{")
    os.utime(queue.path / "tmp" / "old.json.1.1", (NOW - 90_000, NOW - 90_000))
    (queue.path / "tmp" / "young.json.1.2").write_text("{")
    os.utime(queue.path / "tmp" / "young.json.1.2", (NOW - 60, NOW - 60))
    assert queue.recover() == ["z", "y", "x"]
    assert queue.due(NOW + 1) == ["z", "y", "x"]
    assert [entry.name for entry in (queue.path / "tmp").iterdir()] == ["young.json.1.2"]


@pytest.mark.parametrize("state", ["cur", "done"])
def test_a_second_copy_is_not_handed_out(queue: Queue, state: str) -> None:
    """Two producers of one id, the slower of which renames after the owner has taken the faster one's."""
    queue.put("a", {"n": 1})
    slower = (queue.path / "new" / "a.json").read_bytes()
    queue.claim("a")
    if state == "done":
        queue.finish("a")
    (queue.path / "new" / "a.json").write_bytes(slower)
    for id in queue.due(NOW + 1e9):
        with pytest.raises(FileNotFoundError):
            queue.claim(id)
    assert queue.due(NOW + 1e9) == []
    assert queue.find("a") == state


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o500, 0o1770])
def test_wrong_modes_are_mended(queue: Queue, mode: int) -> None:
    for state in STATES:
        (queue.path / state).chmod(mode)
    queue.path.chmod(mode | 0o700)
    queue.prepare()
    for path in [queue.path, *(queue.path / state for state in STATES)]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    queue.put("a", {})
    assert stat.S_IMODE((queue.path / "new" / "a.json").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() == 0, reason="root may do anything")
def test_a_directory_without_rights_is_told(queue: Queue) -> None:
    (queue.path / "tmp").chmod(0o500)
    with pytest.raises(Misconfigured, match="no permission"):
        queue.put("a", {})
    queue.prepare()
    assert queue.put("a", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(queue: Queue) -> None:
    os.chown(queue.path / "new", 12345, -1)
    with pytest.raises(Misconfigured, match="another user"):
        queue.prepare()


def test_a_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "new").write_text("")
    with pytest.raises(Misconfigured, match="not made of directories"):
        Queue(tmp_path / "q").prepare()
    with pytest.raises(Misconfigured, match="not made of directories"):
        Queue(tmp_path / "q" / "new" / "deeper").put("a", {})


def test_directories_removed_under_a_running_owner(queue: Queue) -> None:
    queue.put("a", {})
    queue.claim("a")
    (queue.path / "done").rmdir()
    assert queue.finish("a")
    for state in STATES:
        for entry in (queue.path / state).iterdir():
            entry.unlink()
        (queue.path / state).rmdir()
    queue.path.rmdir()
    assert queue.due(NOW) == []
    assert queue.next_due() is None
    assert queue.find("a") is None
    assert queue.put("a", {})
    assert queue.due(NOW + 1) == ["a"]


def test_an_unprepared_queue_is_empty(tmp_path: Path) -> None:
    queue = Queue(tmp_path / "nothing")
    assert queue.due(NOW) == []
    assert queue.next_due() is None
    assert queue.recover() == []
    assert list(queue.list("new")) == []
    assert not queue.finish("a")
    assert not queue.defer("a", NOW)
    assert not queue.hold("a")
    assert not queue.release("a")
    assert not queue.drop("a")
    assert not (tmp_path / "nothing").exists()


def test_strangers_to_json_are_refused_before_anything_is_written(queue: Queue) -> None:
    with pytest.raises(TypeError):
        queue.put("a", {"x": object()})
    assert queue.find("a") is None
    assert not list((queue.path / "tmp").iterdir())


def test_large_bodies(queue: Queue) -> None:
    body = {"text": "€" * 3_000_000}
    queue.put("a", body)
    assert queue.claim("a").body == body


def test_a_file_is_one_line_of_ascii_json(queue: Queue) -> None:
    queue.put("a", {"text": "两\n行 \ud800"})
    content = (queue.path / "new" / "a.json").read_bytes()
    assert content.isascii()
    assert content.endswith(b"}\n")
    assert content.count(b"\n") == 1
    assert json.loads(content) == {"text": "两\n行 \ud800"}


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:27 / /tmp rw,nosuid shared:5 - tmpfs tmpfs rw
31 22 0:35 /@home /home rw shared:6 - btrfs /dev/sda2 rw
32 31 0:40 / /home/ann/nas\\040disk rw - nfs4 nas:/ann rw
33 31 0:41 / /home/ann/盘 rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/x", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmpfile", "ext4"),
        ("/home/ann/.bubbles", "btrfs"),
        ("/home/ann/nas disk/b", "nfs4"),
        ("/home/ann/盘/b", "xfs"),
    ],
)
def test_the_filesystem_is_found_by_mount_point(path: str, kind: str) -> None:
    assert filesystem(Path(path), MOUNTS) == kind


def test_the_directory_is_synced_where_renames_are_not_ordered(tmp_path: Path) -> None:
    kind = filesystem(tmp_path)
    disk = Recording()
    Queue(tmp_path / "q", disk=disk).put("a", {})
    assert disk.calls.count("fsync") == 1 + (kind not in ("ext4", "xfs", "btrfs"))
    shm = Path("/dev/shm")
    if filesystem(shm) == "tmpfs" and os.access(shm, os.W_OK):
        files, disk = Files(shm / f"bubbles-test-{os.getpid()}", disk := Recording()), disk
        files.prepare()
        files.store("a.json", b"{}\n", 1, sync=True)
        files.store("b.json", b"{}\n", 1, sync=False)
        assert disk.calls.count("fsync") == 2
        for entry in sorted((shm / f"bubbles-test-{os.getpid()}").rglob("*"), reverse=True):
            entry.rmdir() if entry.is_dir() else entry.unlink()
        (shm / f"bubbles-test-{os.getpid()}").rmdir()
