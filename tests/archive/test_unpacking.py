"""A backup may be anybody's: whatever is in it, it is read as what it is or refused."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bubbles.archive.form import DEEPEST, END, HEAD, INSIDE, TOP, Head
from bubbles.archive.unpacking import Member, Unpack
from bubbles.errors import DataError, ProtocolError
from tests.archive.home import tar


def read(data: bytes) -> dict[str, tuple[Member, bytes]]:
    unpack = Unpack(io.BytesIO(data))
    found = {member.path: (member, b"".join(pieces)) for member, pieces in unpack.members()}
    assert unpack.end is not None
    return found


def test_what_is_in_it_is_read() -> None:
    found = read(tar(("a", {"mtime": 5}, b"x" * 100_000), ("b", {"type": tarfile.DIRTYPE}, b""), ("b/run", {"mode": 0o755}, b"")))
    assert found["a"][1] == b"x" * 100_000
    assert found["a"][0] == Member("a", "file", 100_000, 5 * 10**9)
    assert found["b"][0].kind == "directory"
    assert found["b/run"][0].executable


@pytest.mark.parametrize("how", [bytes, gzip.compress, lzma.compress])
def test_how_it_is_compressed_is_seen(how: Callable[[bytes], bytes]) -> None:
    assert set(read(how(tar(("a", {}, b"x"))))) == {"a"}


def test_times_are_read_to_the_nanosecond() -> None:
    found = read(tar(("a", {"pax_headers": {"mtime": "1764500400.123456789"}}, b"")))
    assert found["a"][0].at_ns == 1_764_500_400_123_456_789


@pytest.mark.parametrize("mtime", ["x", "-5", "1e400", "nan", "inf", "", "99999999999999999"])
def test_a_time_that_is_none_is_the_beginning_of_time(mtime: str) -> None:
    with suppress(DataError):
        assert read(tar(("a", {"pax_headers": {"mtime": mtime}}, b"")))["a"][0].at_ns == 0


SPARSE = {"major": "1", "minor": "0", "realsize": "99"}
HOSTILE: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "an absolute path": ("//etc/passwd", {}, b"x"),
    "a path that goes up": ("../../x", {}, b"x"),
    "a path that goes up in its midst": ("a/../../../x", {}, b"x"),
    "a path that goes nowhere": ("a/./b", {}, b"x"),
    "a path beside the home": (f"/{TOP}/elsewhere", {}, b"x"),
    "a path that begins as ours do": (f"/{INSIDE}x", {}, b"x"),
    "another top": ("/etc/passwd", {}, b"x"),
    "the home as a file": (f"/{INSIDE}", {}, b"x"),
    "the home as a link": (f"/{INSIDE}", {"type": tarfile.SYMTYPE, "linkname": "/etc"}, b""),
    "a hard link": ("a", {"type": tarfile.LNKTYPE, "linkname": f"{INSIDE}/b"}, b""),
    "a device": ("a", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5}, b""),
    "a disk": ("a", {"type": tarfile.BLKTYPE}, b""),
    "a pipe": ("a", {"type": tarfile.FIFOTYPE}, b""),
    "a long name": ("a" * 256, {}, b"x"),
    "a name that is long in bytes": ("ü" * 128, {}, b"x"),
    "a long path": ("/".join(["a" * 200] * 21), {}, b"x"),
    "a deep path": ("/".join("a" * (DEEPEST + 2)), {}, b"x"),
    "a sparse file": (
        "a",
        {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99"}},
        b"1\n0\n99\n" + bytes(505),
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_no_backup_has_is_refused(what: str) -> None:
    with pytest.raises(DataError):
        read(tar(("fine", {}, b"x"), HOSTILE[what]))


@pytest.mark.parametrize(
    ("path", "target", "out"),
    [
        ("a", "b", False),
        ("a/b/c", "../x", False),
        ("a/b/c", "../../x", False),
        ("a/b/c", "../../../x", True),
        ("a", "..", True),
        ("a", "/etc", True),
        ("a/b", "c/../../..", True),
        ("a/b", "./c", False),
        ("a/b", "c/../d", True),  # c may be a link, and then `..` is somewhere else
        ("a/b", ".", False),
    ],
)
def test_a_link_that_may_lead_out_is_known(path: str, target: str, out: bool) -> None:
    found = read(tar((path, {"type": tarfile.SYMTYPE, "linkname": target}, b"")))
    assert found[path][0].leads_out is out


def test_a_tar_of_somebody_elses_is_no_backup() -> None:
    for data in (b"", b"hello", os.urandom(2000), gzip.compress(b"hello"), tar()[512:], bytes(10240), b"\x1f\x8b" + bytes(20), b"\xfd7zXZ\x00" * 9):
        with pytest.raises(DataError, match="no backup of a home"):
            read(data)


def test_a_newer_one_is_refused_as_such() -> None:
    with pytest.raises(ProtocolError, match="version 2"):
        read(tar(head={**Head("9", "/x", 1.0).body(), "version": 2}))


@pytest.mark.parametrize("head", [{"format": "other"}, [], {"format": "bubbles.backup", "at": "x"}, {"format": "bubbles.backup", "at": 1e300}])
def test_a_head_that_says_nothing_is_refused(head: Any) -> None:
    with pytest.raises(DataError):
        read(tar(head=head if isinstance(head, dict) else {"": head}))


@pytest.mark.parametrize("end", [{"removed": "x"}, {"files": "1"}, {"removed": [1]}, {"unread": []}])
def test_an_end_that_says_nothing_is_refused(end: Any) -> None:
    with pytest.raises(DataError):
        read(tar(end=end))


def test_what_stands_behind_the_end_is_refused() -> None:
    with pytest.raises(DataError, match="behind the end"):
        read(tar() + b"more")


@pytest.mark.parametrize("how", [bytes, gzip.compress, lzma.compress])
def test_one_that_was_cut_short_anywhere_is_refused(how: Callable[[bytes], bytes]) -> None:
    data = how(tar(("a", {}, os.urandom(3000)), ("b", {}, b"x")))
    whole = data.rstrip(b"\0") if how is bytes else data
    for size in range(0, len(whole) - 512, 101):
        with pytest.raises(DataError):
            read(data[:size])


@settings(max_examples=150)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_damage_in_one_that_is_compressed_is_found(place: float, change: int) -> None:
    good = gzip.compress(tar(("a", {}, b"hello" * 50), ("b", {"type": tarfile.SYMTYPE, "linkname": "a"}, b"")), mtime=0)
    at = 10 + int(place * (len(good) - 10))  # behind gzip's own head, of which much means nothing
    bad = good[:at] + bytes([good[at] ^ change]) + good[at + 1 :]
    with suppress(OSError, EOFError, zlib.error):
        assume(gzip.decompress(bad) != gzip.decompress(good))  # of some bits of what is compressed, none depends
    with pytest.raises((DataError, ProtocolError)):
        read(bad)


def test_a_header_that_wants_all_memory_gets_none() -> None:
    for kind in (tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 8 << 30
        data = tar()[: 1536 - 512] + info.tobuf(tarfile.GNU_FORMAT) + bytes(100_000)
        with pytest.raises(DataError):
            read(data)


def test_headers_before_headers_come_to_an_end() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 12
    block = info.tobuf(tarfile.USTAR_FORMAT) + b"11 path=abc\n".ljust(512, b"\0")
    with pytest.raises(DataError):
        read(tar()[:1024] + block * 5000)


def test_a_size_that_is_not_there_is_refused() -> None:
    info = tarfile.TarInfo(f"{INSIDE}/a")
    info.size = 1 << 40
    with pytest.raises(DataError, match="cut short"):
        read(tar()[:1024] + info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40) | st.lists(st.sampled_from(["..", ".", "", "a", "b", " "])).map(
    "/".join
)


@given(TEXTS, st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.CONTTYPE]), TEXTS)
def test_whatever_a_member_is_called_it_stays_inside(name: str, kind: bytes, target: str) -> None:
    try:
        found = read(tar((f"/{name}" if name.startswith("bubbles") else name, {"type": kind, "linkname": target}, b"")))
    except DataError:
        return
    for path, (member, _) in found.items():
        assert not os.path.isabs(path)
        assert os.path.normpath(path) in (path, ".")
        assert ".." not in path.split("/")
        if member.kind == "link" and not member.leads_out:
            end = os.path.normpath(os.path.join("/home", os.path.dirname(path), member.target))
            assert end == "/home" or end.startswith("/home/")


@given(st.binary(max_size=3000))
def test_noise_is_refused(noise: bytes) -> None:
    for data in (noise, tar()[:1024] + noise, gzip.compress(noise)):
        with pytest.raises((DataError, ProtocolError)):
            read(data)


def test_head_and_end_are_where_they_are() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar())) as found:
        assert found.getnames() == [HEAD, END]
