"""Files in and out: whole or not at all, under a name of ours, and nothing but what was meant."""

from __future__ import annotations

import asyncio
import os
import stat
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.media import NAME_MOST, Shelf, TooLarge, cleaned, opened
from bubbles.errors import NotEver, TryAgain
from bubbles.messages import Media

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 30


def stored(shelf: Shelf, *chunks: bytes, name: str = "", type: str = "", size: int = 0) -> Media:
    async def story() -> Media:
        async with shelf.file(name, type, size) as sink:
            for chunk in chunks:
                await sink.write(chunk)
        return sink.media

    return asyncio.run(story())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "media" / "test", most=1000, free=0)
    made.prepare()
    return made


def test_a_file_is_there_whole_under_a_name_of_ours(shelf: Shelf) -> None:
    media = stored(shelf, b"one ", b"two", name="../../a b.txt", type="text/plain")
    path = Path(media.path)
    assert (path.parent, path.read_bytes(), path.suffix) == (shelf.path, b"one two", ".txt")
    assert (media.name, media.type, media.size) == ("a b.txt", "text/plain", 7)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(shelf.path.stat().st_mode)) == (0o600, 0o700)


def test_two_of_the_same_name_are_two(shelf: Shelf) -> None:
    assert stored(shelf, b"1", name="a.txt").path != stored(shelf, b"2", name="a.txt").path


@pytest.mark.parametrize("said", [0, 1001])
def test_what_is_too_large_leaves_nothing(shelf: Shelf, said: int) -> None:
    with pytest.raises(TooLarge, match="1 kB"):
        stored(shelf, b"x" * 600, b"x" * 600, size=said)
    assert list(shelf.path.iterdir()) == []


def test_what_fails_or_is_cancelled_leaves_nothing(shelf: Shelf) -> None:
    async def story() -> None:
        async with shelf.file("a") as sink:
            await sink.write(b"half")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(story())
    assert list(shelf.path.iterdir()) == []


def test_a_disk_keeps_room_for_what_else_needs_some(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, free=2**62)
    with pytest.raises(TryAgain, match="no room"):
        stored(shelf, b"x")
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_left_is_swept(shelf: Shelf) -> None:
    whole = stored(shelf, b"x").path
    (shelf.path / "abc.part").write_bytes(b"half")
    shelf.prepare()
    assert [str(path) for path in shelf.path.iterdir()] == [whole]


@pytest.mark.parametrize(
    ("content", "name", "said", "type", "shown"),
    [
        (PNG, "photo", "", "image/png", "photo.png"),
        (PNG, "a.jpg", "image/jpeg", "image/png", "a.jpg"),
        (b"\xff\xd8\xff\xe0", "", "application/octet-stream", "image/jpeg", "file.jpg"),
        (b"RIFF0000WEBPVP8 ", "s", "", "image/webp", "s.webp"),
        (b"<html>", "a.png", "image/png", "application/octet-stream", "a.png"),
        (b"%PDF-1.7", "r.pdf", "", "application/pdf", "r.pdf"),
        (b"x", "r.pdf", "text/plain; charset=utf-8", "text/plain", "r.pdf"),
        (b"x", "r", "not a type", "", "r"),
        (b"", "", "", "", "file"),
    ],
)
def test_what_a_file_is(shelf: Shelf, content: bytes, name: str, said: str, type: str, shown: str) -> None:
    media = stored(shelf, content, name=name, type=said)
    assert (media.type, media.name) == (type, shown)


@given(st.text(max_size=300), st.sampled_from(["", "image/png", "text/plain", "x/y"]))
def test_a_name_is_one_line_that_reads_as_it_is_written(name: str, type: str) -> None:
    shown = cleaned(name, type)
    assert 0 < len(shown) <= NAME_MOST
    assert not {"/", "\\", "\n", "\u202e", "\0"} & set(shown)
    assert shown not in (".", "..")
    assert all(unicodedata.category(character)[0] != "C" for character in shown)
    shown.encode()


def test_what_goes_out_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello")
    with opened(Media(str(tmp_path / "a.txt")), tmp_path) as file:
        assert file.read() == b"hello"


def test_a_home_that_was_restored_elsewhere_sends_its_own_file(tmp_path: Path) -> None:
    old, root = (tmp_path / home / "spool" / "outbound" / "test" / "media" for home in ("old", "new"))
    for each in (old, root):
        each.mkdir(parents=True)
        (each / "x").write_bytes(each.parts[-5].encode())
    (old / "gone").write_bytes(b"s")
    with opened(Media(str(old / "x")), root) as file:
        assert file.read() == b"new"
    for path in (old / "gone", old / ".." / "media" / "x", old.parent.parent / "other" / "media" / "x"):
        with pytest.raises(NotEver):
            opened(Media(str(path)), root)


@pytest.mark.parametrize("kind", ["elsewhere", "above", "below", "link", "pipe", "directory", "missing", "itself", "linked root"])
def test_nothing_else_goes_out(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "media"
    (root / "d").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"s")
    (root / "d" / "x").write_bytes(b"s")
    (root / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "other").symlink_to(root)
    (root / "x").write_bytes(b"s")
    os.mkfifo(root / "pipe")
    path = {
        "elsewhere": tmp_path / "secret",
        "above": f"{root}/../secret",
        "below": root / "d" / "x",
        "link": root / "link",
        "pipe": root / "pipe",
        "directory": root / "d",
        "missing": root / "none",
        "itself": root,
        "linked root": tmp_path / "other" / "x",
    }[kind]
    with pytest.raises(NotEver):
        opened(Media(str(path)), tmp_path / "other" if kind == "linked root" else root)
