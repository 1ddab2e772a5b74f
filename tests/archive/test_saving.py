"""A home saved and put in place again is the same home."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.archive.form import END, HEAD, INSIDE, Head
from bubbles.archive.moment import Mark
from bubbles.archive.packing import Pack
from bubbles.archive.restoring import restore
from bubbles.archive.saving import Patience, Saving
from bubbles.channels.receipts import Receipts
from bubbles.errors import Misconfigured, TryAgain
from bubbles.kernel.events import ModelAsked, ToolFinished, to_line
from bubbles.messages import Media
from bubbles.paths import Home
from tests.archive.home import ended, file, history, journal, saved, spoke, tree
from tests.tidying.home import inbound, outbound


@pytest.fixture
def full(home: Home) -> Home:
    """A home with something in each place."""
    file(home.config, '{"version": 1}')
    file(home.config.with_name("config.json.2026-01-01"), "{}")
    for key in ("busy", "still"):
        history(home, key, "cli-0")
        file(home.session(key) / "work" / "a.txt", key)
        file(home.session_home(key) / ".gitconfig")
        (home.session(key) / "data").mkdir()
    (home.session("still") / "work" / "empty").mkdir()
    (home.session("still") / "work" / "run.sh").write_text("#!/bin/sh\n")
    (home.session("still") / "work" / "run.sh").chmod(0o755)
    (home.session("still") / "work" / "link").symlink_to("a.txt")
    journal(home, "busy")
    for n, state in enumerate(("new", "cur", "held", "done")):
        inbound(home, f"telegram-{n}", state)
        outbound(home, f"cli-{n}.0.0", state)
    Receipts(home.outbound("telegram")).note("cli-1.0.0", begun=0)
    file(home.turns / "held" / "cli-7.jsonl")
    file(home.media("telegram") / "picture.png")
    file(home.jobs, json.dumps({"version": 1, "jobs": []}))
    file(home.chats, "{}")
    file(home.root / "channels" / "telegram" / "session")
    file(home.tokens / "x.json")
    file(home.models / "small.gguf", "weights")
    file(home.log / "agentd.log", "…")
    file(home.run / "alerts.json")
    return home


def again(data: bytes, tmp_path: Path) -> Home:
    found = Home(tmp_path / "again")
    restore(found, io.BytesIO(data))
    return found


def test_it_is_the_same(full: Home, tmp_path: Path) -> None:
    os.utime(full.inbound("telegram") / "new" / "telegram-0.json", ns=(1_764_500_400_123_456_789,) * 2)
    found, own = tree(again(saved(full), tmp_path).root), tree(full.root)
    left_out = {name for name in own if name.split("/")[0] == "run" or name.endswith("/tmp")}
    empty = {name for name in own if name.startswith("spool/") and own[name] is None}
    assert {name: own[name] for name in own.keys() - left_out - empty} == {name: found[name] for name in found.keys() - empty}
    assert found["spool/inbound/telegram/new/telegram-0.json"][1] == 1_764_500_400_123_456_789, "its place in the line"


@pytest.mark.parametrize(
    "odd", ["sessions/odd", "spool/inbound/odd", "session_homes/odd", "turns/held/odd.jsonl", "spool/outbound/telegram/receipts"]
)
def test_a_link_that_leads_to_itself_stops_nothing(full: Home, odd: str, tmp_path: Path) -> None:
    shutil.rmtree(full.root / odd, ignore_errors=True)
    (full.root / odd).symlink_to(full.root / odd)
    assert (again(saved(full), tmp_path).session("still") / "work" / "a.txt").read_text() == "still"


def test_a_file_of_which_the_disk_gives_a_part_is_not_in_it(full: Home, tmp_path: Path) -> None:
    out, path = io.BytesIO(), full.session("still") / "work" / "a.txt"
    pack = Pack(out)
    pack.begin(Head("0", "/", 0.0))
    with open(path, "ab") as closed, pytest.raises(OSError, match="Bad file descriptor"):  # to be written, not to be read
        pack.file("bad", closed.fileno(), 5, os.fstat(closed.fileno()))
    with open(path, "rb") as opened:
        pack.file("good", opened.fileno(), 5, os.fstat(opened.fileno()))
    pack.end.removed = ["bad"]
    pack.finish()
    home = again(out.getvalue(), tmp_path)
    assert (os.listdir(home.root), (home.root / "good").read_bytes()) == (["good"], b"still")


def test_everybody_else_is_kept_out_of_it(full: Home, tmp_path: Path) -> None:
    home = again(saved(full), tmp_path)
    modes = {path.relative_to(home.root): path.stat().st_mode & 0o777 for path in [home.root, *home.root.rglob("*")] if not path.is_symlink()}
    assert {mode for path, mode in modes.items() if (home.root / path).is_dir()} == {0o700}
    assert {path.name for path, mode in modes.items() if (home.root / path).is_file() and mode == 0o700} == {"run.sh"}
    assert {mode for path, mode in modes.items() if (home.root / path).is_file() and path.name != "run.sh"} == {0o600}


@pytest.mark.parametrize(
    ("without", "gone", "there"),
    [
        ((), set(), {"models/small.gguf", "log/agentd.log", "config.json"}),
        (("models", "logs"), {"models/small.gguf", "log/agentd.log"}, {"config.json", "channels/telegram/session", "tokens/x.json"}),
        (
            ("keys",),
            {"config.json", "config.json.2026-01-01", "channels/telegram/session", "session_homes/busy/.gitconfig", "tokens/x.json"},
            {"chats.json"},
        ),
    ],
)
def test_what_is_left_out(full: Home, tmp_path: Path, without: tuple[str, ...], gone: set[str], there: set[str]) -> None:
    found = tree(again(saved(full, without), tmp_path).root)
    assert not gone & found.keys()
    assert there <= found.keys()
    assert "run/alerts.json" not in found


def test_without_keys_those_of_a_session_in_which_something_goes_on_are_left_out_too(full: Home) -> None:
    def grows(path: str, size: int) -> None:
        if path == "sessions/still/work/a.txt":
            journal(full, "still")

    assert not any("session_homes" in name for name in _names(_saved_while(full, grows, without=("keys",))))


def _saved_while(home: Home, told: Callable[[str, int], object], *, without: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    Saving(home, Pack(out, told), without).run(0.0)
    return out.getvalue()


def _names(data: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as found:
        return found.getnames()


def test_its_head_comes_first_and_its_end_last(full: Home) -> None:
    names = _names(saved(full))
    assert (names[0], names[1], names[-1]) == (HEAD, INSIDE, END)


def test_half_a_line_at_the_end_of_a_history_is_not_copied(full: Home, tmp_path: Path) -> None:
    path = full.session("still") / "session.jsonl"
    whole = path.read_bytes()
    with open(path, "ab") as out:
        out.write(b'{"role":"us')
    assert (again(saved(full), tmp_path).session("still") / "session.jsonl").read_bytes() == whole


def test_a_turn_that_is_closed_while_files_are_copied_is_in_it_with_its_files(full: Home, tmp_path: Path) -> None:
    def goes_on(path: str, size: int) -> None:
        if path == "sessions/still/work/a.txt":  # the last of its files
            file(full.session("busy") / "work" / "a.txt", "what the turn made")
            history(full, "busy", "cli-0", "cli-1")
            (full.turns / "busy.jsonl").write_bytes(b"")

    home = again(_saved_while(full, goes_on), tmp_path)
    assert b'"turn":"cli-1"' in (home.session("busy") / "session.jsonl").read_bytes()
    assert (home.session("busy") / "work" / "a.txt").read_text() == "what the turn made"
    assert not (home.turns / "busy.jsonl").exists()


def test_a_file_that_a_turn_removed_meanwhile_is_not_there(full: Home, tmp_path: Path) -> None:
    def goes_on(path: str, size: int) -> None:
        if path == "sessions/still/work/run.sh" and (full.session("busy") / "work").exists():
            (full.session("busy") / "work" / "a.txt").unlink()
            (full.session("busy") / "work").rmdir()
            journal(full, "busy", ToolFinished("c1", "removed"))

    home = again(_saved_while(full, goes_on), tmp_path)
    assert not (home.session("busy") / "work").exists()


def test_a_message_that_arrives_while_files_are_copied_is_in_it(full: Home, tmp_path: Path) -> None:
    def arrives(path: str, size: int) -> None:
        if path.startswith("sessions/still/"):
            inbound(full, "telegram-late", "new")

    assert (again(_saved_while(full, arrives), tmp_path).inbound("telegram") / "new" / "telegram-late.json").exists()


class Restless(Saving):
    """In a home in which something happens in the midst of each try."""

    happens: Callable[[], object]

    def _catch_up(self, marks: dict[str, Mark]) -> None:
        super()._catch_up(marks)
        self.happens()


def test_where_turns_are_closed_without_rest_it_says_so(full: Home) -> None:
    saving = Restless(full, Pack(io.BytesIO()), patience=Patience(0.3, 0.1))
    saving.happens = lambda: _append(full.session("busy") / "session.jsonl", b'{"meta":"new","at":1}\n')
    with pytest.raises(TryAgain, match="no moment could be caught"):
        saving.run(0.0)
    assert saving.tries > 1


def test_where_tools_end_without_rest_their_session_is_named(full: Home) -> None:
    saving = Restless(full, Pack(io.BytesIO()), patience=Patience(30.0, 0.1))
    saving.happens = lambda: _append(full.turns / "busy.jsonl", to_line(ToolFinished("c1", "x"), 1.0))
    assert saving.run(0.0).busy == ["busy"]
    assert saving.tries > 1


def _append(path: Path, line: bytes) -> None:
    with open(path, "ab") as out:
        out.write(line)


@pytest.mark.parametrize("spoil", [lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir(), lambda path: os.mkfifo(path)])
def test_a_history_that_is_none_is_told_and_the_rest_is_there(full: Home, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
    path = full.session("still") / "session.jsonl"
    path.unlink()
    spoil(path)
    out = io.BytesIO()
    end = Saving(full, Pack(out)).run(0.0)
    assert list(end.unread) == ["sessions/still/session.jsonl"]
    assert (again(out.getvalue(), tmp_path).session("busy") / "session.jsonl").exists()


def test_at_rest_one_try_does(full: Home) -> None:
    saving = Saving(full, Pack(io.BytesIO()), ())
    assert saving.run(0.0).busy == []
    assert saving.tries == 1


def test_a_home_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="there is no home"):
        ended(Home(tmp_path / "nowhere"))


def test_nothing_in_the_home_is_changed(full: Home) -> None:
    journal(full, "busy", spoke("cli-1"), ModelAsked("cli-1.1"))
    before = tree(full.root)
    saved(full)
    assert tree(full.root) == before


NAMES = st.binary(min_size=1, max_size=30).filter(lambda name: not set(name) & set(b"/\0") and name not in (b".", b".."))


@settings(max_examples=25)
@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.binary(max_size=3000), max_size=6))
def test_whatever_files_are_called_they_come_back(tmp_path_factory: pytest.TempPathFactory, files: dict[tuple[bytes, ...], bytes]) -> None:
    tmp_path = tmp_path_factory.mktemp("names")
    home = Home(tmp_path / "home")
    work = home.session("s") / "work"
    work.mkdir(parents=True)
    for names, content in files.items():
        path = Path(os.fsdecode(os.path.join(os.fsencode(work), *names)))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):  # another one's name is a part of this one's
            continue
    litter = {name for name in tree(home.root) if ".bubbles-" in name or ".tmp" in name}
    own = tree(home.root)
    found = tree(again(saved(home), tmp_path).root)
    assert {name: value for name, value in own.items() if name not in litter} == {name: value for name, value in found.items() if name not in litter}


@pytest.mark.parametrize("state", ["new", "cur", "held"])
def test_files_of_a_message_that_waits_to_go_out_are_in_it(home: Home, tmp_path: Path, state: str) -> None:
    media = home.outbound("telegram") / "media"
    outbound(home, "cli-1.c", state, media=(Media(str(file(media / "cli-1.c.0.png", "image")), "a.png"),))
    outbound(home, "cli-2.c", "done", media=(Media(str(file(media / "cli-2.c.0.png", "sent")), "b.png"),))
    file(media / "cli-3.c.0", "of a message that was never put")
    found = again(saved(home), tmp_path).outbound("telegram") / "media"
    assert {each.name: each.read_text() for each in found.iterdir()} == {"cli-1.c.0.png": "image"}
