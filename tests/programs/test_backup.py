"""`bubbles backup`: what it writes, what it says, and what it leaves alone."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from bubbles.paths import Home
from bubbles.readable import readable
from tests.archive.home import file, history, journal
from tests.programs.run import BIN, ROOT, bubbles
from tests.tidying.home import inbound, outbound

POWERLESS = pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="everything is open to root")


@pytest.fixture
def full(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with a little in it; the working directory is beside."""
    file(home.config, '{"version": 1, "providers": {"custom": {"api_key": "sk-secret"}}}').chmod(0o600)
    file(home.session("work") / "work" / "notes.md", "notes")
    file(home.models / "small.gguf", "weights")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return home


def names(path: Path | str) -> list[str]:
    with tarfile.open(path) as found:
        return [member.name.removeprefix("bubbles-backup/home/") for member in found if member.isreg()]


def test_without_a_name_it_is_called_by_its_time_and_lies_here(full: Home) -> None:
    done = bubbles("backup")
    assert (done.returncode, done.stderr) == (0, "")
    (name,) = os.listdir(".")
    assert re.fullmatch(r"bubbles-\d{4}-\d\d-\d\d-\d{6}\.tar\.gz", name)
    assert done.stdout.startswith(f"{name}: 2 files, 70 bytes")
    assert done.stdout.endswith("; without models/ (--models), log/ (--logs)\n")
    assert os.stat(name).st_mode & 0o777 == 0o600
    assert names(name)[1:-1] == ["config.json", "sessions/work/work/notes.md"]


@pytest.mark.parametrize(("name", "magic"), [("a.tar", b"bubbles-"), ("a.tar.gz", b"\x1f\x8b"), ("a.tgz", b"\x1f\x8b"), ("a.tar.xz", b"\xfd7z")])
def test_its_name_says_how_it_is_compressed(full: Home, name: str, magic: bytes) -> None:
    assert bubbles("backup", name).returncode == 0
    assert Path(name).read_bytes().startswith(magic)
    assert "sessions/work/work/notes.md" in names(name)


def test_another_name_is_refused(full: Home) -> None:
    done = bubbles("backup", "a.zip")
    assert (done.returncode, os.listdir(".")) == (64, [])
    assert "  try: let it end in .tar.gz" in done.stderr


def test_nothing_is_overwritten(full: Home) -> None:
    Path("a.tar").write_text("mine")
    done = bubbles("backup", "a.tar")
    assert done.returncode == 64
    assert done.stderr == "bubbles: a.tar is there already, and nothing is overwritten\n  try: give another name\n"
    assert Path("a.tar").read_text() == "mine"
    Path("b.tar").symlink_to("nowhere")
    assert bubbles("backup", "b.tar").returncode == 64
    assert sorted(os.listdir(".")) == ["a.tar", "b.tar"]


def test_two_do_not_write_one_file(full: Home) -> None:
    with open("a.tar.part", "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        done = bubbles("backup", "a.tar")
    assert done.returncode == 75
    assert "is being written already" in done.stderr


def test_what_a_killed_one_left_is_written_over(full: Home) -> None:
    Path("a.tar.part").write_bytes(b"x" * 100_000)
    assert bubbles("backup", "a.tar").returncode == 0
    assert os.listdir(".") == ["a.tar"]
    assert "config.json" in names("a.tar")


def test_killed_in_its_midst_it_leaves_nothing_of_that_name(full: Home) -> None:
    with open(full.session("work") / "work" / "large", "wb") as large:
        large.truncate(200 << 20)
    process = subprocess.Popen([BIN / "bubbles", "backup", "a.tar.gz"], stdout=subprocess.DEVNULL)
    while not os.path.exists("a.tar.gz.part"):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not os.path.exists("a.tar.gz")
    os.unlink(full.session("work") / "work" / "large")
    assert bubbles("backup", "a.tar.gz").returncode == 0


def test_stopped_by_a_person_it_leaves_nothing(full: Home) -> None:
    with open(full.session("work") / "work" / "large", "wb") as large:
        large.truncate(200 << 20)
    process = subprocess.Popen([BIN / "bubbles", "backup", "a.tar.gz"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists("a.tar.gz.part"):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert os.listdir(".") == []


def test_to_standard_output_for_a_pipe(full: Home) -> None:
    with open("out", "wb") as out:
        done = subprocess.run([BIN / "bubbles", "backup", "--models", "-"], stdout=out, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0
    assert done.stderr.startswith("-: 3 files")
    assert names("out")[1:-1] == ["config.json", "models/small.gguf", "sessions/work/work/notes.md"]


def test_a_file_in_the_home_is_not_in_itself(full: Home) -> None:
    with open(full.root / "out", "wb") as out:
        subprocess.run([BIN / "bubbles", "backup", "-"], stdout=out, stderr=subprocess.DEVNULL, check=True)
    assert "out" not in names(full.root / "out")


def test_no_backup_goes_into_the_home(full: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").mkdir()
    (full.root / "away").symlink_to(tmp_path / "disk")
    (tmp_path / "way").symlink_to(full.session("work"))
    for place in (full.root, full.session("work") / "work", tmp_path / "disk", tmp_path / "way", full.root / ".." / full.root.name):
        done = bubbles("backup", str(place / "a.tar"), HOME=str(tmp_path))
        assert done.returncode == 64
        first, second = done.stderr.splitlines()
        assert first == f"bubbles: {place / 'a.tar'} would lie in the home, and in the backups that are taken of it later"
        assert second == f"  try: bubbles backup {tmp_path / 'a.tar'}"
    monkeypatch.chdir(full.root)
    assert bubbles("backup").returncode == 64
    assert not [path for path in tmp_path.rglob("*") if ".tar" in path.name]


def test_backups_that_lie_in_the_home_are_left_out_and_named(full: Home) -> None:
    for kind in ("tar", "tgz", "tar.xz"):
        assert bubbles("backup", f"a.{kind}").returncode == 0
        shutil.copy(f"a.{kind}", full.root / f"keys.{kind}")
    file(full.root / "bubbles-2026-11-30-031500.tar.gz.part", "")
    file(full.root / "mine.tar", "no backup")
    (full.root / "begun.tar.gz").write_bytes(b"\x1f\x8b")
    (full.root / "linked").symlink_to(Path("a.tar").absolute())
    left = ["bubbles-2026-11-30-031500.tar.gz.part", "keys.tar", "keys.tar.xz", "keys.tgz", "linked"]
    done = bubbles("backup", "--no-keys", "b.tar")
    assert (done.returncode, done.stderr) == (0, "".join(f"bubbles: left out, it is a backup itself: {name}\n" for name in left))
    assert b"sk-secret" not in Path("b.tar").read_bytes()
    assert names("b.tar")[1:-1] == ["begun.tar.gz", "mine.tar", "sessions/work/work/notes.md"]
    assert json.loads(bubbles("backup", "--json", "c.tar").stdout)["left_out"] == left


def test_for_programs_it_is_an_object(full: Home) -> None:
    done = bubbles("backup", "--json", "--logs", "a.tar")
    assert json.loads(done.stdout) == {
        "file": "a.tar", "files": 2, "bytes": done.stdout and os.path.getsize(full.config) + 5, "size": os.path.getsize("a.tar"),
        "without": ["models"], "left_out": [], "tries": 1, "unread": {}, "busy": [],
    }  # fmt: skip


def test_without_keys_none_of_ours_are_in_it(full: Home) -> None:
    file(full.session_home("work") / ".netrc", "login")
    file(full.root / "channels" / "telegram" / "session", "login")
    assert bubbles("backup", "a.tar").returncode == 0
    assert b"sk-secret" in Path("a.tar").read_bytes()
    done = bubbles("backup", "--no-keys", "b.tar")
    assert ", keys" in done.stdout
    assert names("b.tar")[1:-1] == ["sessions/work/work/notes.md"]


def test_what_is_missing_is_told(full: Home) -> None:
    at = full.session("work") / "work"
    for _ in range(105):
        at = at / "d"
    at.mkdir(parents=True)
    done = bubbles("backup", "a.tar")
    assert done.returncode == 1
    assert done.stderr.startswith("bubbles: not in it: sessions/work/work/d/d/")
    assert os.path.exists("a.tar")


def test_a_home_that_is_not_there_is_not_made(full: Home, tmp_path: Path) -> None:
    done = bubbles("backup", "a.tar", BUBBLES_HOME=str(tmp_path / "nowhere"))
    assert done.returncode == 78
    assert done.stderr.startswith(f"bubbles: there is no home at {tmp_path / 'nowhere'}")
    assert (os.listdir("."), (tmp_path / "nowhere").exists()) == ([], False)


def test_a_place_that_cannot_be_written_is_told(full: Home) -> None:
    Path("file").touch()
    for name in ("nowhere/a.tar", "file/a.tar"):
        done = bubbles("backup", name)
        assert (done.returncode, done.stderr.splitlines()[1]) == (64, f"  try: mkdir -p {name.partition('/')[0]}")


def _powerless(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """A program as somebody to whom closed doors are closed, whoever we are."""
    as_one = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    return subprocess.run([*as_one, *argv], capture_output=True, text=True, env={**os.environ, **env})


@POWERLESS
def test_a_place_where_nothing_may_be_written_is_told_and_another_one(full: Home, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    done = _powerless(BIN / "bubbles", "backup", str(closed / "a.tar"), HOME=str(tmp_path))
    assert done.returncode == 78
    assert done.stderr == f"bubbles: nothing may be written in {closed}: Permission denied\n  try: bubbles backup {tmp_path / 'a.tar'}\n"
    closed.chmod(0o700)
    file(closed / "a.tar.part").chmod(0o400)
    done = _powerless(BIN / "bubbles", "backup", str(closed / "a.tar"), HOME=str(tmp_path))
    assert (done.returncode, done.stderr.splitlines()[0]) == (78, f"bubbles: {closed / 'a.tar.part'} is not yours to write: Permission denied")


CLOSED = [
    "sessions/shut", "sessions/shut/session.jsonl", "turns/shut.jsonl", "turns/held", "turns/held/cli-7.jsonl", "spool/media",
    "spool/inbound/telegram", "spool/inbound/telegram/new", "spool/inbound/telegram/new/telegram-1.json",
    "spool/outbound/telegram/done/cli-1.0.0.json", "spool/outbound/telegram/receipts", "spool/outbound", "cron", "cron/jobs.json", "chats.json",
    "session_homes", "config.json", "turns", "sessions",
]  # fmt: skip


@POWERLESS
@pytest.mark.parametrize("closed", CLOSED)
def test_what_cannot_be_read_is_told_and_all_else_is_there(full: Home, closed: str) -> None:
    history(full, "shut", "cli-0")
    file(full.session("shut") / "data" / "a.png")
    journal(full, "shut")
    inbound(full, "telegram-1", "new")
    outbound(full, "cli-1.0.0", "done")
    for path in ("turns/held/cli-7.jsonl", "spool/media/telegram/a.png", "spool/outbound/telegram/receipts/cli-1.0.0.jsonl", "cron/jobs.json"):
        file(full.root / path)
    for path in ("chats.json", "session_homes/shut/.netrc"):
        file(full.root / path)
    everything = {str(path.relative_to(full.root)) for path in full.root.rglob("*") if path.is_file() and path.name != "small.gguf"}
    was = (full.root / closed).stat().st_mode
    for mode in (0o000, 0o400):  # a directory that may be listed, and not entered
        if mode and (full.root / closed).is_file():
            continue
        (full.root / closed).chmod(mode)
        done = _powerless(BIN / "bubbles", "backup", "--json", f"{mode}.tar")
        (full.root / closed).chmod(was)
        assert done.returncode == 1, done.stderr
        unread = json.loads(done.stdout)["unread"]
        assert unread
        assert all(f"{name}/".startswith(f"{closed}/") for name in unread)
        assert f"bubbles: not in it: {next(iter(unread))}: Permission denied" in done.stderr
        assert {*names(f"{mode}.tar")[1:-1]} == {name for name in everything if not f"{name}/".startswith(f"{closed}/")}


def test_what_standard_output_does_not_take_is_no_fault_of_the_homes(full: Home) -> None:
    with open("/dev/full", "wb") as target:
        done = subprocess.run([BIN / "bubbles", "backup", "-"], stdout=target, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 75
    assert done.stderr.startswith("bubbles: standard output takes no more: No space left on device\n  try: ")
    assert len(done.stderr.splitlines()) == 2


def test_a_target_that_takes_no_more_ends_it_whatever_is_being_copied(full: Home) -> None:
    with open(full.session("work") / "work" / "large", "wb") as large:
        large.truncate(8 << 20)
    limited = ["bash", "-c", 'ulimit -f 1024; trap "" XFSZ; exec "$@"', "-", str(BIN / "bubbles"), "backup", "a.tar"]
    done = subprocess.run(limited, capture_output=True, text=True)
    assert done.returncode == 75
    assert done.stderr.startswith("bubbles: a.tar.part takes no more: File too large\n  try: bubbles backup ")
    assert os.listdir(".") == []


def _on_a_terminal(*argv: str) -> tuple[int, str]:
    """A program with a terminal for its standard output and error; its status, and what was shown."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execv(argv[0], argv)
    shown = b""
    while readable([fd], 30):
        try:
            shown += os.read(fd, 1 << 16)
        except OSError:
            break
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_a_terminal_gets_no_backup(full: Home) -> None:
    status, shown = _on_a_terminal(str(BIN / "bubbles"), "backup", "-")
    assert status == 64
    assert "nothing for a terminal" in shown


def test_at_a_terminal_what_takes_long_is_shown_and_what_does_not_is_not() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from bubbles.programs.meter import Meter\n"
    code += "with Meter('saving', silent_s=float(sys.argv[1])) as meter:\n    for n in range(3): meter.told(f'{n}', 1_500_000)\n"
    assert _on_a_terminal(sys.executable, "-c", code, "3600") == (0, "")
    status, shown = _on_a_terminal(sys.executable, "-c", code, "0")
    assert status == 0
    assert re.search(r"saving: (1 file, 1\.5|2 files, 3\.0|3 files, 4\.5) MB", shown), "which of them, the machine's pace decides"
