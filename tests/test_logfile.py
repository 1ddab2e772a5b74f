"""Logs that were written for long: nothing of the newest is lost, whoever moves them aside, and the oldest goes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bubbles import logfile

LINE = b"x" * (1 << 20)


def files(path: Path) -> list[Path]:
    """The newest first."""
    return [each for each in (path, *(Path(f"{path}.{n}") for n in range(1, 10))) if each.exists()]


def test_what_was_written_is_all_there_in_order_up_to_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    file = logfile.Lines(path)
    count = 0
    while len(files(path)) <= logfile.KEPT or count % 7:
        assert file.write(b"%d " % count + LINE + b"\n")
        count += 1
    for _ in range(20):
        assert file.write(b"%d " % count + LINE + b"\n")
        count += 1
    file.close()
    assert len(files(path)) == logfile.KEPT + 1
    kept = [int(line.split()[0]) for each in reversed(files(path)) for line in each.read_bytes().splitlines()]
    assert kept == list(range(count - len(kept), count))
    assert all(each.stat().st_size <= logfile.MOST_BYTES + len(LINE) + 20 for each in files(path))
    assert {each.stat().st_mode & 0o777 for each in files(path)} == {0o600}


def test_a_line_that_was_cut_off_spoils_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    path.write_bytes(b'whole\n{"at":1,"mess')
    file = logfile.Lines(path)
    assert file.write(b"one\n")
    assert file.write(b"two\n")
    file.close()
    assert logfile.Lines(path).write(b"three\n")
    assert path.read_bytes() == b'whole\n{"at":1,"mess\none\ntwo\nthree\n'


def test_a_pipe_in_the_place_of_a_log_takes_no_line_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "n.jsonl")
    assert not logfile.Lines(tmp_path / "n.jsonl").write(b"one\n")


def test_the_file_is_made_with_the_first_line(tmp_path: Path) -> None:
    file = logfile.Lines(tmp_path / "log" / "n.jsonl")
    assert list(tmp_path.iterdir()) == []
    assert file.write(b"one\n")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "log" / "n.jsonl"
    file = logfile.Lines(path)
    assert file.write(b"one\n")
    shutil.rmtree(path.parent)
    assert file.write(b"the last that nobody reads\n")
    assert file.write(b"two\n")
    assert path.read_bytes() == b"two\n"
    shutil.rmtree(tmp_path / "log")
    path.parent.write_text("in the way")
    assert file.write(b"nobody reads this\n")
    assert file.write(b"nor this\n")
    os.unlink(path.parent)
    assert file.write(b"nor this\n")
    assert file.write(b"three\n")
    assert path.read_bytes() == b"three\n"


FULL = """
import os, resource, signal, sys
from pathlib import Path
from bubbles import logfile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = logfile.Lines(Path(sys.argv[1]))
took = [file.write(b"12345678\\n")]
resource.setrlimit(resource.RLIMIT_FSIZE, (14, resource.RLIM_INFINITY))
took += [file.write(b"half-written\\n"), file.write(b"not at all\\n")]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
took += [file.write(b"again\\n"), file.write(b"and on\\n")]
print(took)
"""


def test_a_line_that_found_no_room_is_told_of_and_the_next_stands_alone(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: it, too, takes the part of a line for which there is room."""
    path = tmp_path / "n.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], check=True, capture_output=True, text=True)
    assert done.stdout == "[True, False, False, True, True]\n"
    assert path.read_bytes() == b"12345678\nhalf-\nagain\nand on\n"


def test_a_start_moves_a_long_one_aside_and_leaves_another(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    path.write_bytes(b"y" * logfile.MOST_BYTES)
    os.close(logfile.opened(path))
    assert files(path) == [path]
    with path.open("ab") as file:
        file.write(b"newest")
    os.close(logfile.opened(path))
    assert path.read_bytes() == b""
    assert Path(f"{path}.1").read_bytes().endswith(b"newest")


def test_many_that_find_it_too_long_move_it_once(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    path.write_bytes(b"y" * (logfile.MOST_BYTES + 1))
    code = "import sys; from pathlib import Path; from bubbles import logfile; sys.stdin.read(); logfile.opened(Path(sys.argv[1]))"
    racers = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE) for _ in range(6)]
    for racer in racers:
        racer.communicate(timeout=60)
        assert racer.returncode == 0
    assert [each.stat().st_size for each in files(path)] == [0, logfile.MOST_BYTES + 1]


STDERR = """
import os, sys
from pathlib import Path
from bubbles import logfile
path = Path(sys.argv[1])
own = logfile.StandardError(path)
os.write(2, b"one\\n")
exec(sys.argv[2])
own.tend()
os.write(2, b"two\\n")
os.write(1, b"three\\n")
"""


def stderr_of(path: Path, meanwhile: str, target: Path | None = None) -> None:
    with open(target or path, "ab") as file:
        subprocess.run([sys.executable, "-c", STDERR, str(path), meanwhile], stdout=file, stderr=file, check=True)


def test_a_process_goes_on_in_a_new_file_whoever_moved_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    stderr_of(path, "os.replace(path, f'{path}.1')")
    assert (path.read_text(), Path(f"{path}.1").read_text()) == ("two\nthree\n", "one\n")
    path.write_bytes(b"y" * logfile.MOST_BYTES)
    stderr_of(path, "pass")
    assert path.read_text() == "two\nthree\n"
    assert Path(f"{path}.1").read_bytes().endswith(b"one\n")


def test_a_standard_error_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "n.log", tmp_path / "other"
    other.write_bytes(b"y" * logfile.MOST_BYTES)
    stderr_of(path, "path.write_bytes(b'')", other)
    assert other.read_bytes().endswith(b"one\ntwo\nthree\n")
    assert path.read_bytes() == b""


def test_where_it_cannot_be_moved_it_grows_on(tmp_path: Path) -> None:
    path = tmp_path / "n.log"
    path.write_bytes(b"y" * logfile.MOST_BYTES)
    Path(f"{path}.{logfile.KEPT - 1}").mkdir()
    Path(f"{path}.{logfile.KEPT}", "full").mkdir(parents=True)
    stderr_of(path, "pass")
    assert path.read_bytes().endswith(b"one\ntwo\nthree\n")
