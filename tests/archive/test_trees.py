"""Files are copied once, and those of a session again when they have changed."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bubbles.archive.form import DEEPEST, INSIDE
from bubbles.archive.packing import Pack
from bubbles.archive.trees import Trees
from bubbles.paths import Home
from tests.archive.home import file


class Copying:
    """Trees, and what they put into their pack."""

    def __init__(self, home: Home, skip: Callable[[str], bool] = lambda path: False, **more: Any) -> None:
        self._out = io.BytesIO()
        self.pack = Pack(self._out)
        self.trees = Trees(home.root, self.pack, skip, **more)
        self._read = 0

    def new(self) -> list[str]:
        """The files and links that came into the pack since the last time."""
        self._out.seek(0)
        with tarfile.open(fileobj=io.BytesIO(self._out.getvalue() + bytes(1024))) as found:
            names = [member.name.removeprefix(f"{INSIDE}/") for member in found if not member.isdir()]
        before, self._read = self._read, len(names)
        self._out.seek(0, 2)
        return names[before:]


def old(path: Path) -> Path:
    """A file that nobody writes any more; how old it is by its ctime cannot be set."""
    os.utime(path, (1.0, 1.0))
    return path


def test_all_of_it_is_copied_but_what_is_skipped(home: Home) -> None:
    file(home.root / "notes" / "a.txt")
    file(home.session("s") / "work" / "b.txt")
    file(home.session_home("s") / ".gitconfig")
    copying = Copying(home, lambda path: path in ("run", "notes/a.txt"))
    copying.trees.all()
    assert copying.new() == ["session_homes/s/.gitconfig", "sessions/s/work/b.txt"]


def test_litter_of_ours_is_left_out_and_a_persons_files_of_such_names_are_not(home: Home) -> None:
    for name in ("config.json.tmp", "sessions/s/.SOUL.md.17", "sessions/s/work/.bubbles-0123456789abcdef.tmp"):
        file(home.root / name)
    file(home.session("s") / "work" / "deep" / "config.json.tmp")
    copying = Copying(home)
    copying.trees.all()
    assert copying.new() == ["sessions/s/work/deep/config.json.tmp"]


def test_sockets_and_pipes_are_left_out_and_links_stay_links(home: Home) -> None:
    work = home.session("s") / "work"
    file(work / "a")
    (work / "out").symlink_to("/etc/passwd")
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(work / "door"))
        copying = Copying(home)
        copying.trees.all()
    assert copying.new() == ["sessions/s/work/a", "sessions/s/work/out"]
    assert copying.pack.end.unread == {}


def test_a_link_at_the_top_is_what_it_leads_to(home: Home, tmp_path: Path) -> None:
    file(tmp_path / "disk" / "s" / "work" / "a")
    home.sessions.rmdir()
    home.sessions.symlink_to(tmp_path / "disk")
    file(tmp_path / "dotfiles" / "bubbles.json", "{}")
    home.config.symlink_to(tmp_path / "dotfiles" / "bubbles.json")
    copying = Copying(home)
    copying.trees.all()
    assert copying.new() == ["config.json", "sessions/s/work/a"]


def test_again_copies_what_has_changed_and_names_what_is_gone(home: Home) -> None:
    work = home.session("s") / "work"
    for name in ("same", "changed", "gone", "dir/below"):
        old(file(work / name))
    time.sleep(0.15)  # a file that was written just now is copied once more, in case it goes on
    copying = Copying(home)
    copying.trees.all()
    copying.new()
    (work / "changed").write_text("y")
    (work / "gone").unlink()
    (work / "dir" / "below").unlink()
    (work / "dir").rmdir()
    file(work / "new")
    copying.trees.again("s")
    assert sorted(copying.new()) == ["sessions/s/work/changed", "sessions/s/work/new"]
    assert copying.trees.gone == ["sessions/s/work/dir", "sessions/s/work/dir/below", "sessions/s/work/gone"]
    file(work / "gone")
    copying.trees.again("s")
    assert "sessions/s/work/gone" in copying.new()
    assert copying.trees.gone == ["sessions/s/work/dir", "sessions/s/work/dir/below"]


def test_a_file_that_was_just_written_is_copied_once_more(home: Home) -> None:
    file(home.session("s") / "work" / "a")
    copying = Copying(home)
    copying.trees.all()
    copying.trees.again("s")
    assert copying.new() == ["sessions/s/work/a"] * 2


def test_a_session_that_came_or_went_meanwhile(home: Home) -> None:
    file(home.session("gone") / "work" / "a")
    copying = Copying(home)
    copying.trees.all()
    copying.new()
    os.rename(home.session("gone"), home.root.parent / "elsewhere")
    file(home.session("new") / "work" / "b")
    copying.trees.again("gone")
    copying.trees.again("new")
    assert copying.new() == ["sessions/new/work/b"]
    assert "sessions/gone/work/a" in copying.trees.gone


def test_what_lies_too_deep_is_told(home: Home) -> None:
    at = home.session("s") / "work"
    for _ in range(DEEPEST):
        at = at / "d"
    at.mkdir(parents=True)
    copying = Copying(home)
    copying.trees.all()
    assert list(copying.pack.end.unread.values()) == ["it lies too deep"]


def test_the_file_that_is_being_written_is_not_in_itself(home: Home) -> None:
    path = file(home.root / "backup.tar")
    info = path.stat()
    copying = Copying(home, own=(info.st_dev, info.st_ino))
    copying.trees.all()
    assert copying.new() == []


def test_a_file_that_becomes_shorter_while_it_is_read_is_filled_up(home: Home) -> None:
    path = file(home.root / "log.txt", "x" * 100)
    out = io.BytesIO()
    with open(path, "rb") as opened:
        info = os.fstat(opened.fileno())
        os.truncate(path, 40)
        Pack(out).file("log.txt", opened.fileno(), info.st_size, info)
    with tarfile.open(fileobj=io.BytesIO(out.getvalue() + bytes(1024))) as found:
        extracted = found.extractfile(f"{INSIDE}/log.txt")
        assert extracted
        assert extracted.read() == b"x" * 40 + bytes(60)
