"""What a workspace reads, writes, lists and refuses: on openat2 and on the walk that stands in for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bubbles.errors import Misconfigured, OutsideWorkspace, Refused, ToolError
from bubbles.lending import SYSTEM, WHOLE
from bubbles.workspace import Grant, Workspace, WritePolicy, shown
from bubbles.workspace import beneath as below
from tests.workspace.trees import SECRET, everything, session


@pytest.fixture(params=["openat2", "walk"])
def kernel(request: pytest.FixtureRequest) -> bool:
    if request.param == "openat2" and not below.kernel_resolves():
        pytest.skip("no openat2 on this system")
    return bool(request.param == "openat2")


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return session(tmp_path)


@pytest.fixture
def files(alice: Path, kernel: bool) -> Iterator[Workspace]:
    workspace = Workspace.open(alice, kernel=kernel)
    yield workspace
    workspace.close()


def text(workspace: Workspace, path: str) -> str:
    return workspace.read(path).data.decode()


def test_a_relative_path_starts_at_work_and_an_absolute_one_means_the_same(files: Workspace, alice: Path) -> None:
    assert files.write("a/b.txt", "one\n")
    assert (alice / "work/a/b.txt").read_text() == "one\n"
    assert (
        text(files, "a/b.txt")
        == text(files, "./a//b.txt")
        == text(files, str(alice / "work" / "a/b.txt"))
        == text(files, "../data/.." + "/work" + "//a/b.txt")
        == "one\n"
    )
    assert text(files, "../MEMORY.md") == "MEMORY.md as it was\n"
    assert files.directory() == alice / "work"
    assert files.directory("a") == alice / "work/a"
    assert not files.write("a/b.txt", "two\n")
    assert files.edit("a/b.txt", "two", "three") == (1,)
    assert text(files, "a/b.txt") == "three\n"


def test_a_home_behind_a_link_may_be_named_either_way(tmp_path: Path, kernel: bool) -> None:
    session(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace.open(tmp_path / "link/home/sessions/alice", kernel=kernel)
    for root in ("link", "real"):
        assert text(workspace, f"{tmp_path}/{root}/home/sessions/alice/MEMORY.md") == "MEMORY.md as it was\n"
    workspace.close()


OUTSIDE = [
    "../../bob/MEMORY.md",
    "../../../session_homes/alice/.token",
    "../../../config.json",
    "../../../../outside/file",
    "sub/../../../bob/MEMORY.md",
    "/etc/passwd",
    "/proc/self/root/etc/passwd",
    "/dev/zero",
    "~/.ssh/id_ed25519",
    "~",
    "{root}/home/config.json",
    "{root}/home/sessions/bob/MEMORY.md",
    "{root}/home/session_homes/alice/.token",
    "{root}/home/sessions/alice/../bob/MEMORY.md",
    "{root}/home/sessions/alice2/MEMORY.md",
    "{root}/home/sessions",
]


@pytest.mark.parametrize("spelling", OUTSIDE)
def test_what_lies_outside_is_not_reached_by_any_method(files: Workspace, tmp_path: Path, spelling: str) -> None:
    path = spelling.format(root=tmp_path)
    (tmp_path / "home/sessions/alice/work" / "sub").mkdir()
    (tmp_path / "home/sessions/alice2").mkdir()
    before = everything(tmp_path)
    for method in (
        lambda: files.read(path),
        lambda: files.open_media(path),
        lambda: files.write(path, "evil"),
        lambda: files.edit(path, SECRET, "evil"),
        lambda: files.list(path),
        lambda: files.stat(path),
        lambda: files.directory(path),
    ):
        with pytest.raises(OutsideWorkspace) as caught:
            method()
        assert str(tmp_path / "home/sessions/alice") in caught.value.remedy
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["config.json", "session.jsonl"])
def test_the_sessions_own_secrets_are_neither_read_nor_written_nor_listed(files: Workspace, alice: Path, name: str) -> None:
    os.link(alice / name, alice / "work/hard")
    for path in (f"../{name}", "hard", f"{alice}/{name}", f"../data/../{name}"):
        with pytest.raises(Refused):
            files.read(path)
        with pytest.raises(Refused):
            files.edit(path, SECRET, "evil")
        with pytest.raises(Refused):
            files.write(path, "evil")
    assert (alice / name).read_text() == f"{SECRET}\n"
    assert name not in [entry.path for entry in files.list("..").entries]
    (alice / name).unlink()
    with pytest.raises(Refused):
        files.write(f"../{name}", "{}")


def test_a_hard_link_to_the_installations_configuration_is_not_read(files: Workspace, alice: Path) -> None:
    os.link(alice.parent.parent / "config.json", alice / "data/hard")
    with pytest.raises(Refused):
        files.read("../data/hard")


def test_a_hard_link_to_a_file_outside_keeps_its_content_when_written(files: Workspace, alice: Path, tmp_path: Path) -> None:
    os.link(tmp_path / "outside/file", alice / "work/hard")
    files.write("hard", "mine")
    assert (tmp_path / "outside/file").read_text() == f"{SECRET}\n"
    assert text(files, "hard") == "mine"


@pytest.mark.parametrize(
    ("path", "policy"),
    [
        ("../SOUL.md", WritePolicy(soul=True)),
        ("../skills/pdf/SKILL.md", WritePolicy(skills=True)),
        ("../skills/new/SKILL.md", WritePolicy(skills=True)),
        ("../HEARTBEATS.md", WritePolicy(heartbeats=True)),
        ("../MEMORY.md", WritePolicy()),
    ],
)
def test_policy_decides_on_the_sessions_own_files(alice: Path, kernel: bool, path: str, policy: WritePolicy) -> None:
    none = Workspace.open(alice, write=WritePolicy(memory=False), kernel=kernel)
    before = everything(alice)
    with pytest.raises(Refused) as caught:
        none.write(path, "new")
    assert "../data/" in caught.value.remedy
    with pytest.raises(ToolError):
        none.edit(path, "was", "is")
    assert everything(alice) == before
    some = Workspace.open(alice, write=policy, kernel=kernel)
    some.write(path, "new")
    assert text(some, path) == "new"
    none.close()
    some.close()


@pytest.mark.parametrize(
    "path", ["../notes", "../work", "../data", "../skills", "..", ".", "../NEW/x", "../memory.md", "../MEMORY.md/x", "../session.jsonl.bak"]
)
def test_nothing_else_in_the_sessions_directory_is_written(files: Workspace, alice: Path, path: str) -> None:
    before = sorted(alice.rglob("*"))
    with pytest.raises(ToolError):
        files.write(path, "evil")
    assert sorted(alice.rglob("*")) == before


def test_policy_follows_where_a_link_leads_and_not_how_it_is_spelt(alice: Path) -> None:
    workspace = Workspace.open(alice)
    (alice / "work/up").symlink_to("../skills/pdf")
    (alice / "work/soul").symlink_to("../SOUL.md")
    (alice / "work/memory").symlink_to("../MEMORY.md")
    (alice / "work/shelf").symlink_to("../data")
    for path in ("up/SKILL.md", "up/new", "soul"):
        with pytest.raises(Refused):
            workspace.write(path, "evil")
    assert text(workspace, "soul") == "SOUL.md as it was\n"
    assert workspace.edit("memory", "was", "is") == (1,)
    assert (alice / "work/memory").is_symlink()
    assert (alice / "MEMORY.md").read_text() == "MEMORY.md as it is\n"
    workspace.write("shelf/deep/er/x", "kept")
    assert (alice / "data/deep/er/x").read_text() == "kept"
    workspace.close()


def test_links_that_lead_out_in_a_circle_or_nowhere_are_refused(files: Workspace, alice: Path, tmp_path: Path) -> None:
    work = alice / "work"
    (work / "out").symlink_to(tmp_path / "outside")
    (work / "file").symlink_to(tmp_path / "outside/file")
    (work / "relative").symlink_to("../../bob")
    (work / "magic").symlink_to(f"/proc/self/root{tmp_path}/outside")
    (work / "loop").symlink_to("loop")
    (work / "dead").symlink_to("nothing-here")
    (work / "zero").symlink_to("/dev/zero")
    before = everything(tmp_path)
    for path in ("out/file", "file", "relative/MEMORY.md", "magic/file", "loop", "dead", "zero", "out/new", "loop/x", "dead/x", "relative"):
        with pytest.raises(ToolError):
            files.read(path)
        with pytest.raises(ToolError):
            files.write(path, "evil")
        with pytest.raises(ToolError):
            files.edit(path, SECRET, "evil")
    for path in ("out", "relative", "magic", "loop", "dead"):
        with pytest.raises(ToolError):
            files.list(path)
    assert everything(tmp_path) == before
    shown_links = {entry.path: entry.target for entry in files.list().entries if entry.kind == "link"}
    assert shown_links["relative"] == "../../bob"
    assert [entry.path for entry in files.list(depth=3).entries] == sorted(shown_links)


def test_without_openat2_no_link_is_followed_at_all(alice: Path) -> None:
    (alice / "work/in").symlink_to("../data")
    (alice / "data/x").write_text("x")
    walking, resolving = Workspace.open(alice, kernel=False), Workspace.open(alice, kernel=True)
    assert text(resolving, "in/x") == "x"
    with pytest.raises(ToolError):
        walking.read("in/x")
    walking.close()
    resolving.close()


def test_a_fifo_a_socket_and_a_directory_are_refused_at_once(files: Workspace, alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(alice / "work/fifo")
    monkeypatch.chdir(alice / "work")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path in ("fifo", "socket", "."):
            for method in (lambda p: files.read(p), lambda p: files.open_media(p), lambda p: files.write(p, "x"), lambda p: files.edit(p, "x", "y")):
                with pytest.raises(ToolError):
                    method(path)
    assert stat.S_ISFIFO((alice / "work/fifo").stat().st_mode)
    assert {entry.path: entry.kind for entry in files.list().entries} == {"fifo": "other", "socket": "other"}


def test_a_huge_sparse_file_costs_no_more_than_the_cap(files: Workspace, alice: Path) -> None:
    with open(alice / "work/huge", "wb") as file:
        file.truncate(1 << 40)
    assert files.read("huge", 0, 10).size == 1 << 40
    assert len(files.read("huge", 0, 1 << 40).data) == 16 * 1024 * 1024
    assert files.read("huge", (1 << 40) - 3, 10).data == b"\0\0\0"
    with pytest.raises(ToolError, match="too large"):
        files.edit("huge", "a", "b")
    assert files.stat("huge").size == 1 << 40


def test_pictures_are_told_from_what_is_none(files: Workspace, alice: Path) -> None:
    for name, head in {"a.png": b"\x89PNG\r\n\x1a\n", "a.jpg": b"\xff\xd8\xff\xe0", "a.gif": b"GIF89a", "a.webp": b"RIFF\0\0\0\0WEBP"}.items():
        (alice / "work" / name).write_bytes(head + b"body")
        assert files.open_media(name) == head + b"body"
    (alice / "work/a.txt").write_text("GIF87b")
    (alice / "work/big.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    os.truncate(alice / "work/big.png", 21 * 1024 * 1024)
    for name in ("a.txt", "big.png", "none.png"):
        with pytest.raises(ToolError):
            files.open_media(name)


@pytest.mark.parametrize("path", ["a\0b", "../MEMORY.md\0.txt", "", "\ud83d", "x" * 256, "é" * 128, "d/" * 2100 + "x"])
def test_paths_that_no_file_can_have(files: Workspace, path: str) -> None:
    for method in (lambda: files.read(path), lambda: files.write(path, "x"), lambda: files.edit(path, "a", "b"), lambda: files.stat(path)):
        with pytest.raises(ToolError):
            method()


def test_three_thousand_levels_are_an_error_and_no_crash(files: Workspace) -> None:
    with pytest.raises(ToolError):
        files.read("../data/" + "d/" * 1900 + "x")
    with pytest.raises(ToolError):
        files.write("../../" * 600 + "x", "y")


def test_names_that_look_alike_are_different_files(files: Workspace) -> None:
    names = ["caf\u00e9", "cafe\u0301", "a\uff0fb", "-rf", " ", "..."]
    for name in names:
        files.write(name, name)
    assert [text(files, name) for name in names] == names
    assert len(files.list().entries) == len(names)


def test_modes_are_kept_and_new_files_are_as_private_as_their_root(files: Workspace, alice: Path) -> None:
    alice.chmod(0o700)
    files.write("script", "#!/bin/sh\n")
    (alice / "work/script").chmod(0o750)
    files.write("script", "#!/bin/bash\n")
    files.edit("script", "bash", "sh")
    assert stat.S_IMODE((alice / "work/script").stat().st_mode) == 0o750
    (alice / "work/locked").write_text("as it was")
    (alice / "work/locked").chmod(0o444)
    with pytest.raises(Refused, match="read-only"):
        files.write("locked", "evil")
    assert (alice / "work/locked").read_text() == "as it was"
    private = Workspace.open(alice)
    private.write("new/file", "x")
    assert stat.S_IMODE((alice / "work/new/file").stat().st_mode) == 0o600
    assert stat.S_IMODE((alice / "work/new").stat().st_mode) == 0o700
    private.close()


def test_edit_refuses_what_is_not_utf8_and_keeps_what_it_does_not_touch(files: Workspace, alice: Path) -> None:
    (alice / "work/latin").write_bytes("café".encode("latin-1"))
    with pytest.raises(ToolError, match="UTF-8"):
        files.edit("latin", "caf", "x")
    (alice / "work/mixed").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n\tthree")
    files.edit("mixed", "two", "2")
    assert (alice / "work/mixed").read_bytes() == b"\xef\xbb\xbfone\r\n2\r\n\tthree"
    with pytest.raises(ToolError, match="does not exist"):
        files.edit("none", "a", "b")
    assert not (alice / "work/none").exists()


def test_lone_surrogates_in_what_is_written_do_not_reach_the_disk(files: Workspace) -> None:
    files.write("x", "a\ud83db")
    assert text(files, "x") == "a?b"


def test_listings_are_sorted_bounded_and_count_what_they_leave_out(files: Workspace, alice: Path) -> None:
    for number in range(30):
        (alice / f"work/d{number % 3}").mkdir(exist_ok=True)
        (alice / f"work/d{number % 3}/f{number:02}").write_text("x" * number)
    assert [entry.path for entry in files.list().entries] == ["d0", "d1", "d2"]
    whole = files.list(depth=2)
    assert [entry.path for entry in whole.entries] == sorted(entry.path for entry in whole.entries)
    assert {entry.path: entry.size for entry in whole.entries}["d2/f29"] == 29
    cut = files.list(depth=2, most=10)
    assert [entry.path for entry in cut.entries if "/" not in entry.path] == ["d0", "d1", "d2"]
    assert (len(cut.entries), cut.left_out, cut.more) == (10, 23, False)


def test_a_directory_with_more_names_than_are_looked_at_says_so(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(dir=memory)) if memory.is_dir() else tmp_path
    alice = session(root)
    files = Workspace.open(alice)
    for number in range(10_001):
        os.close(os.open(alice / f"data/{number}", os.O_CREAT))
    found = files.list("../data")
    assert found.more
    assert len(found.entries) == 1000
    files.close()
    shutil.rmtree(root)


def test_names_cannot_forge_a_line(files: Workspace, alice: Path) -> None:
    for name in (b"a\n[ok] done", b"\x1b[2Jb", "c\u202ed".encode(), b"\xff\xfe", b"back\\slash"):
        (alice / "work" / os.fsdecode(name)).write_text("")
    assert [entry.path for entry in files.list().entries] == ["\\x1b[2Jb", "a\\n[ok] done", "back\\\\slash", "c\\u202ed", "\\xff\\xfe"]


@given(st.text(st.characters(), max_size=30))
@example("\u2028\u200b\u202e\x85")
def test_a_shown_name_is_one_plain_line(name: str) -> None:
    told = shown(name)
    assert told.isprintable()
    assert len(told.splitlines()) == bool(name)
    assert told.encode().decode() == told


paths = st.lists(
    st.sampled_from(["..", ".", "", "work", "data", "d", "out", "in", "bob", "MEMORY.md", "config.json", "file", "é", "\0", "~"]), max_size=8
)


@given(paths, st.booleans(), st.booleans())
def test_no_path_at_all_reads_or_writes_outside(tmp_path_factory: pytest.TempPathFactory, parts: list[str], absolute: bool, kernel: bool) -> None:
    root = tmp_path_factory.mktemp("any")
    alice = session(root)
    (alice / "work/out").symlink_to(root / "outside")
    (alice / "work/in").symlink_to("../data")
    (alice / "data/out").symlink_to("../../bob")
    before = everything(root)
    workspace = Workspace.open(alice, kernel=kernel)
    path = (f"{alice}/" if absolute else "") + "/".join(parts)
    for method in (lambda: text(workspace, path), lambda: workspace.write(path, "written"), lambda: text(workspace, path)):
        with contextlib.suppress(ToolError):
            assert SECRET not in str(method())
    workspace.close()
    after = everything(root)
    changed = {name for name in after if after[name] != before.get(name)}
    inside = tuple(f"home/sessions/alice/{name}" for name in ("work" + "/", "data/", "MEMORY.md"))
    assert all(name.startswith(inside) for name in changed)
    assert before.keys() <= after.keys()


def test_a_lent_workspace_is_read_and_where_lent_so_written(tmp_path: Path, alice: Path, kernel: bool) -> None:
    for name in ("project", "library"):
        (tmp_path / name).mkdir(mode=0o755)
        (tmp_path / name).chmod(0o755)
        (tmp_path / name / "main.py").write_text("print(1)\n")
    (tmp_path / "library/up").symlink_to("../project")
    workspace = Workspace.open(alice, grants=[Grant(tmp_path / "project", "rw"), Grant(tmp_path / "library")], kernel=kernel)
    assert text(workspace, f"{tmp_path}/library/main.py") == "print(1)\n"
    workspace.edit(f"{tmp_path}/project/main.py", "1", "2")
    workspace.write(f"{tmp_path}/project/src/new.py", "")
    assert stat.S_IMODE((tmp_path / "project/src/new.py").stat().st_mode) == 0o644
    with pytest.raises(Refused, match="read-only"):
        workspace.write(f"{tmp_path}/library/main.py", "evil")
    with pytest.raises(ToolError):
        workspace.read(f"{tmp_path}/library/up/main.py")
    with pytest.raises(OutsideWorkspace) as caught:
        workspace.read(f"{tmp_path}/outside/file")
    assert f"{tmp_path}/project (read and write)" in caught.value.remedy
    assert workspace.directory(f"{tmp_path}/project/src") == tmp_path / "project/src"
    workspace.close()


def test_what_may_not_be_lent_is_refused_and_left_out(tmp_path: Path, alice: Path) -> None:
    home = alice.parent.parent
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "file").write_text("")
    never = [
        *WHOLE,
        *SYSTEM,
        os.path.expanduser("~"),
        str(home),
        str(home.parent),
        str(alice),
        str(home / "cron"),
        str(tmp_path / "link"),
        "/proc/self",
    ]
    for path in [*never, "relative", str(tmp_path / "missing"), str(tmp_path / "file")]:
        with pytest.raises(Misconfigured) as caught:
            Grant(Path(path), "rw").check(home)
        assert caught.value.remedy
    with pytest.raises(Misconfigured):
        Grant(tmp_path / "outside", "rwx").check(home)
    workspace = Workspace.open(alice, grants=[Grant(home, "rw"), Grant(tmp_path / "missing"), Grant(tmp_path / "outside")])
    assert len(workspace.refused) == 2
    assert text(workspace, f"{tmp_path}/outside/file") == f"{SECRET}\n"
    with pytest.raises(OutsideWorkspace):
        workspace.read(f"{home}/config.json")
    workspace.close()


def test_a_closed_workspace_says_so_and_keeps_no_descriptor(alice: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    workspace = Workspace.open(alice)
    workspace.write("x", "y")
    workspace.list(depth=3)
    with pytest.raises(ToolError):
        workspace.read("nothing")
    workspace.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ToolError, match="closed"):
        workspace.read("x")


def test_openat2_is_what_is_used_where_the_kernel_has_it(alice: Path) -> None:
    if os.uname().sysname != "Linux" or tuple(map(int, os.uname().release.split(".")[:2])) < (5, 6):
        pytest.skip("no openat2 before Linux 5.6")
    assert below.kernel_resolves()
    with pytest.raises(ValueError, match="null"):
        below.open_beneath(os.open(alice, os.O_RDONLY), "work/a\0b")
