"""What a session may plant for the file tools to fall for: none of them does, and a file tool that is made as one usually is does.

Each trap is set as a command under `local` can set it, which is more than a jail lets one do.
"""

from __future__ import annotations

import asyncio
import ctypes
import io
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tarfile
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import Refused, ToolError
from bubbles.sandboxes import Limits, binary
from bubbles.workspace import Grant, Workspace, WritePolicy
from bubbles.workspace import beneath as below
from tests.workspace.trees import SECRET, session, state

ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="devices are made by root")


class Usual:
    """File tools that look where a path leads by its text, and then open it."""

    def __init__(self, alice: Path) -> None:
        self._alice = alice

    def _path(self, path: str) -> str:
        plain = os.path.normpath(self._alice / "work" / path)
        if not f"{plain}/".startswith(f"{self._alice}/") or os.path.basename(plain) in ("config.json", "session.jsonl"):
            raise ToolError("outside")
        return os.path.join(self._alice / "work", path)

    def read(self, path: str) -> str:
        with open(self._path(path), errors="replace") as file:
            return file.read(4096)

    def write(self, path: str, text: str) -> None:
        Path(self._path(path)).write_text(text)


@dataclass(frozen=True)
class Trap:
    """One attack: what `set` plants in a session's directory, and the paths that a tool is then given. Row: of the table of attacks."""

    row: int
    name: str
    set: Callable[[Path, Path], object]
    path: str
    reads: bool = True  # whether the usual tool reads the secret so
    writes: bool = True  # whether it writes outside


def _swap_work(alice: Path, root: Path) -> None:
    (alice / "work").rmdir()
    (alice / "work").symlink_to(root / "outside")


def _swap_data(alice: Path, root: Path) -> None:
    (alice / "data").rmdir()
    (alice / "data").symlink_to("../bob")


def _chain(alice: Path, root: Path) -> None:
    (alice / "work/l0").symlink_to(root / "outside/file")
    for number in range(1, 20):
        (alice / f"work/l{number}").symlink_to(f"l{number - 1}")


def _down(alice: Path, _: Path) -> None:
    (alice / "work/d/e/f").mkdir(parents=True)
    (alice / "work/d/e/f/l").symlink_to("../../../../data")


def _around(alice: Path, _: Path) -> None:
    (alice / "work/deep/er").mkdir(parents=True)
    (alice / "work/up").symlink_to("deep/er")
    (alice / "work/deep/er/on").symlink_to("../../../../..")


TRAPS = [
    Trap(5, "a link out", lambda alice, root: (alice / "work/l").symlink_to(root / "outside/file"), "l"),
    Trap(5, "a relative link out", lambda alice, _: (alice / "work/l").symlink_to("../../bob/MEMORY.md"), "l"),
    Trap(5, "a linked directory", lambda alice, root: (alice / "work/l").symlink_to(root / "outside"), "l/file"),
    Trap(5, "a link out in data", lambda alice, root: (alice / "data/l").symlink_to(root / "outside/file"), "../data/l"),
    Trap(5, "a chain of links", _chain, "l19"),
    Trap(5, "a dead link out", lambda alice, root: (alice / "work/l").symlink_to(root / "outside/new"), "l", reads=False),
    Trap(5, "a link into a directory outside", lambda alice, root: (alice / "work/l").symlink_to(root / "outside"), "l/new", reads=False),
    Trap(7, "the root by a magic link", lambda alice, root: (alice / "work/l").symlink_to(f"/proc/self/root{root}/outside/file"), "l"),
    Trap(7, "a descriptor by a magic link", lambda alice, _: (alice / "work/l").symlink_to("/dev/fd"), "l/{fd}"),
    Trap(10, "a hard link of a file outside", lambda alice, root: os.link(root / "outside/file", alice / "work/l"), "l", reads=False),
    Trap(18, "the session's HOME", lambda alice, root: (alice / "work/l").symlink_to(root / "home/session_homes/alice/.token"), "l"),
    Trap(18, "HOME as a directory", lambda alice, root: (alice / "work/h").symlink_to("../../../session_homes/alice"), "h/.token"),
    Trap(21, "work itself is a link", _swap_work, "file"),
    Trap(21, "data itself is a link", _swap_data, "../data/MEMORY.md"),
    Trap(23, "up, behind a link", _down, "d/e/f/l/../../bob/MEMORY.md"),
    Trap(23, "up, behind two", _around, "up/on/../outside/file"),
    Trap(29, "a device by a link", lambda alice, _: (alice / "work/l").symlink_to("/dev/zero"), "l", reads=False, writes=False),
]  # fmt: skip


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
    workspace = Workspace.open(alice, write=WritePolicy(soul=True, skills=True), kernel=kernel)
    yield workspace
    workspace.close()


each_trap = pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: f"{trap.row} {trap.name}")


def every(files: Workspace) -> list[Callable[[str], object]]:
    """What a tool may do with a file's path."""
    return [
        lambda path: files.read(path).data,
        lambda path: files.open_media(path),
        lambda path: files.edit(path, SECRET, "evil"),
        lambda path: files.write(path, "evil"),
    ]


def told(act: Callable[[], object]) -> str:
    """What a tool's user sees of it."""
    try:
        return str(act())
    except ToolError as error:
        return f"{error.text} {error.remedy}"


@each_trap
def test_no_file_tool_falls_for_a_trap(tmp_path: Path, alice: Path, files: Workspace, trap: Trap) -> None:
    with open(tmp_path / "outside/file") as held:
        trap.set(alice, tmp_path)
        path = trap.path.format(fd=held.fileno())
        before = state(tmp_path, alice / "work")
        for act in (
            lambda: files.read(path).data if trap.row != 10 else "",  # it is in the session, by a name of its own
            lambda: files.open_media(path),
            lambda: files.list(path),
            lambda: files.list(os.path.dirname(path)),
            lambda: files.list("..", depth=8),
            lambda: files.edit(path, SECRET, "evil"),
            lambda: files.write(path, "evil"),
            lambda: files.write(f"{path}.new", "evil"),
            lambda: files.write(f"{path}/new", "evil"),
        ):
            assert SECRET not in told(act)
        after = state(tmp_path, alice / "work")
        assert {name for name in after if after[name] != before.get(name)} <= {str(alice / "data/l.new")}
        assert before.keys() <= after.keys()
        assert told(lambda: files.directory(path)).startswith((str(alice), path))


@each_trap
def test_the_usual_one_does_fall_for_it(tmp_path: Path, alice: Path, trap: Trap) -> None:
    usual = Usual(alice)
    with open(tmp_path / "outside/file") as held:
        trap.set(alice, tmp_path)
        path, before = trap.path.format(fd=held.fileno()), state(tmp_path, alice / "work")
        if trap.reads:
            assert SECRET in usual.read(path)
        if trap.writes:
            usual.write(path, "evil")
            assert state(tmp_path, alice / "work") != before
        assert trap.writes or usual.read(path)


OWN = ["config.json", "session.jsonl", "session.jsonl.broken-1", ".config.json.tmp"]


@pytest.mark.parametrize("name", ["../../config.json", "../../config.json.20261130", "../../chats.json", *OWN])
def test_9_a_protected_file_is_known_by_any_of_its_names(alice: Path, files: Workspace, name: str) -> None:
    (alice / name).write_text(f"{SECRET}\n")
    (alice / "work/d").mkdir()
    for link in ("work/l", "data/l", "skills/pdf/l", "work/d/config.txt"):
        os.link(alice / name, alice / link)
    (alice / "work/s").symlink_to("l")
    (alice / "work/up").symlink_to(f"../{name}")
    for path in ("l", "../data/l", "../skills/pdf/l", "d/config.txt", "s", "up", f"../{name}", str(alice / name)):
        for act in every(files):
            assert SECRET not in told(lambda act=act, path=path: act(path))
    assert (alice / name).read_text() == f"{SECRET}\n"
    listed = [entry.path for directory in ("", "../data", "..") for entry in files.list(directory, depth=8).entries]
    assert not {"l", "d/config.txt", *OWN} & set(listed)
    assert SECRET in Usual(alice).read("l")


@pytest.mark.parametrize("backend", ["local", "local_isolated"])
def test_9_a_hard_link_that_a_command_has_made_is_known(tmp_path: Path, alice: Path, files: Workspace, backend: str) -> None:
    lines = "ln ../config.json one; ln ../session.jsonl two; ln ../../../config.json ../data/three; ln ../HEARTBEATS.md four"
    (alice / "work/plant").write_text(lines)
    shell = sandboxes.open(backend, alice, tmp_path / "home/session_homes/alice", Settings())
    assert asyncio.run(shell.run("sh plant", Limits(timeout_s=60))).exit == 0
    for path in ("one", "two", "../data/three"):
        for act in every(files):
            with pytest.raises(Refused, match="own files"):
                act(path)
    files.write("four", "evil")  # in place of the link
    assert (alice / "HEARTBEATS.md").read_text() == "HEARTBEATS.md as it was\n"
    assert all((path / "config.json").read_text() == f"{SECRET}\n" for path in (alice, tmp_path / "home"))
    assert SECRET in Usual(alice).read("one") + Usual(alice).read("two") + Usual(alice).read("../data/three")


def test_9_what_lies_beside_a_session_s_known_files_is_not_read_by_its_name_either(alice: Path, files: Workspace) -> None:
    (alice / "later").mkdir()
    (alice / "later/file").write_text(SECRET)
    with pytest.raises(Refused, match="own files"):
        files.read("../later/file")
    assert files.read("../SOUL.md").data.startswith(b"SOUL.md")
    assert files.read("../skills/pdf/SKILL.md").data


@pytest.mark.parametrize("name", ["HEARTBEATS.md", "config.json", "session.jsonl"])
def test_36_to_40_what_rules_a_session_is_not_written_whether_it_is_there_or_not(alice: Path, files: Workspace, name: str) -> None:
    os.link(alice / name, alice / "work/l")
    (alice / "work/s").symlink_to(f"../{name}")
    (alice / "work/d").symlink_to("..")
    was = (alice / name).read_bytes()
    for path in (f"../{name}", "s", f"d/{name}", f"../work/../{name}", "l"):
        told(lambda path=path: files.write(path, "evil"))
    assert (alice / name).read_bytes() == was
    (alice / name).unlink()
    for path in (f"../{name}", "s", f"d/{name}"):
        assert "evil" not in told(lambda path=path: files.write(path, "evil"))
        assert not (alice / name).exists()
    Path(alice / "work/s").write_text("evil")  # so the usual one makes it
    assert (alice / name).read_text() == "evil"


def test_20_a_protected_file_that_is_replaced_while_it_is_asked_for_is_not_read(alice: Path, files: Workspace) -> None:
    program = """import os, sys
while True:
    for name in ("config.json", "session.jsonl"):
        with open(f"{sys.argv[1]}/{name}.new", "w") as file:
            file.write(sys.argv[2])
        os.replace(f"{sys.argv[1]}/{name}.new", f"{sys.argv[1]}/{name}")"""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", program, alice, SECRET]) as child:
        seen = {told(lambda path=path: files.read(path).data) for _ in range(1500) for path in ("../config.json", "../session.jsonl")}
        child.kill()
    assert not any(SECRET in text for text in seen)


def test_24_a_nul_does_not_cut_a_path(alice: Path, files: Workspace, kernel: bool) -> None:
    (alice / "work/a").write_text("mine")
    for act in (*every(files), lambda path: files.list(path), lambda path: files.stat(path)):
        with pytest.raises(ToolError, match="NUL"):
            act("a\0b")
    assert (alice / "work/a").read_text() == "mine"
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.open(os.fsencode(alice / "work/a\0b"), os.O_RDONLY)  # so it is opened where C is called without a look
    assert os.read(fd, 10) == b"mine"
    os.close(fd)


ODD = ["a\n[ok] done", "\x1b[2Jb", "c\u202ed", "\udcff\udcfe", "back\\slash", "e\u200bf", "\x9bg", "h\u2028i", "\r[ok]"]


def test_25_a_name_cannot_forge_a_line_wherever_it_is_shown(alice: Path, files: Workspace) -> None:
    for name in ODD:
        (alice / "work" / name).write_text("")
        (alice / "data" / name).symlink_to(name)
    listed = files.list().entries + files.list("../data").entries
    texts = [entry.path for entry in listed] + [entry.target for entry in listed]
    for name in ODD:
        texts += [told(lambda act=act, path=path: act(path)) for act in every(files)[1:] for path in (f"{name}/x", f"../{name}")]
    assert len(listed) == 2 * len(ODD)
    assert all(text.isprintable() for text in texts)
    assert len("\n".join(os.listdir(alice / "work")).splitlines()) > len(ODD)


def test_26_names_and_paths_of_any_length_are_answered(alice: Path, files: Workspace) -> None:
    levels = 1500
    at = os.open(alice / "work", os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)
    try:
        deep = "/".join(["d"] * levels)
        assert files.write(f"{deep}/file", "mine")
        assert files.read(f"{deep}/file").data == b"mine"
        assert [entry.path for entry in files.list(deep).entries] == ["file"]
        assert len(files.list("", depth=8).entries) == 8
        for path in ("x" * 300, f"{deep}/{deep}", f"{deep}/" + "y" * 255 + "/" + "y" * 1200, "d/" * 3000 + "x", "../" * 1300 + "x"):
            for act in (*every(files), files.list):
                with pytest.raises(ToolError):
                    act(path)
        with pytest.raises(RecursionError):
            shutil.rmtree(alice / "work/d")  # what goes down by calling itself
    finally:
        subprocess.run(["rm", "-rf", alice / "work"], check=True)


def test_27_twins_are_two_files_and_no_look_alike_is_a_separator(alice: Path, files: Workspace) -> None:
    twins = ["caf\u00e9", "cafe\u0301", "a\uff0fb", "a\u2215b", "\u2024\u2024", "\uff0e\uff0e", "A", "a"]
    for name in twins:
        files.write(name, name)
    files.write("..\uff0f..\uff0fbob", "here")
    assert [files.read(name).data.decode() for name in twins] == twins
    assert sorted(os.listdir(alice / "work")) == sorted([*twins, "..\uff0f..\uff0fbob"])
    assert len({unicodedata.normalize("NFKC", name) for name in twins}) < len(twins)
    assert unicodedata.normalize("NFKC", "..\uff0f..\uff0fbob") == "../../bob"


def test_28_a_fifo_holds_nobody(alice: Path, files: Workspace) -> None:
    os.mkfifo(alice / "work/fifo")
    (alice / "work/l").symlink_to("fifo")
    with subprocess.Popen(["cat", alice / "work/fifo"], stdout=subprocess.DEVNULL) as usual:
        for path in ("fifo", "l"):
            for act in every(files):
                with pytest.raises(ToolError):
                    act(path)
        assert usual.poll() is None  # it still waits
        usual.kill()
    assert stat.S_ISFIFO((alice / "work/fifo").lstat().st_mode)


@ROOT_ALONE
def test_29_a_device_is_not_read_wherever_it_lies(alice: Path, files: Workspace) -> None:
    try:
        os.mknod(alice / "work/zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        with open(alice / "work/zero", "rb") as file:
            assert file.read(2) == b"\0\0"
    except PermissionError:
        pytest.skip("no device can be made here")
    for act in every(files):
        with pytest.raises(ToolError, match="regular"):
            act("zero")
    assert files.list().entries[0].kind == "other"


SPARSE = """import resource, sys
from pathlib import Path
from bubbles.workspace import Workspace
files = Workspace.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print(len(files.read("huge").data), files.stat("huge").size)
try:
    files.edit("huge", "a", "b")
except Exception as error:
    print(type(error).__name__)
try:
    Path(sys.argv[1], "work/huge").read_text()
except Exception as error:
    print(type(error).__name__)"""


def test_30_a_sparse_file_of_a_terabyte_takes_no_memory(alice: Path) -> None:
    with open(alice / "work/huge", "wb") as file:
        file.truncate(1 << 40)
    done = subprocess.run([sys.executable, "-c", SPARSE, alice], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(16 << 20), str(1 << 40), "ToolError", "MemoryError"]


def test_31_a_circle_of_links_is_left(alice: Path, files: Workspace) -> None:
    for name, target in {"loop": "loop", "a": "b", "b": "a", "c": "d/c", "d": "."}.items():
        (alice / "work" / name).symlink_to(target)
    for path in ("loop", "a", "b", "c", "d/" * 60 + "x", "loop/x"):
        for act in (*every(files), files.list):
            with pytest.raises(ToolError):
                act(path)
    assert sorted(os.listdir(alice / "work")) == ["a", "b", "c", "d", "loop"]
    with pytest.raises(OSError, match="Too many levels"):
        Usual(alice).read("loop")


def _archive(path: Path, outside: Path) -> None:
    with tarfile.open(path, "w") as tar:
        for name, kind, target in (
            ("../../../../outside/climbed", tarfile.REGTYPE, ""),
            (f"{outside}/absolute", tarfile.REGTYPE, ""),
            ("way", tarfile.SYMTYPE, str(outside)),
            ("way/through", tarfile.REGTYPE, ""),
            ("hard", tarfile.LNKTYPE, f"{outside}/file"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"evil"))


_UNPACK = """import sys, tarfile
tar = tarfile.open(sys.argv[1])
for member in tar:
    try:
        tar.extract(member, sys.argv[2], filter="fully_trusted")
    except Exception as error:
        print(type(error).__name__)
"""


def test_32_an_archive_is_not_unpacked_by_a_file_tool_and_within_a_jail_it_does_no_harm(tmp_path: Path, alice: Path, files: Workspace) -> None:
    if not [one for one in binary.candidates() if not one.missing] or not hasattr(tarfile, "fully_trusted_filter"):
        pytest.skip("no bubblewrap here, or a Python that cannot be told to trust")
    _archive(alice / "work/evil.tar", tmp_path / "outside")
    before = state(tmp_path, alice / "work", tmp_path / "home/run")
    for act in (*every(files)[:2], files.list):
        told(lambda act=act: act("evil.tar"))
        told(lambda act=act: act("evil.tar/way/file"))
    assert os.listdir(alice / "work") == ["evil.tar"]
    jail = sandboxes.open("bwrap", alice, tmp_path / "home/session_homes/alice", Settings(), network="none")
    words = [os.path.realpath(sys.executable), "-I", "-S", "-c", _UNPACK, "evil.tar", "."]
    outcome = asyncio.run(jail.run(f"{shlex.join(words)}; cat way/file hard", Limits(timeout_s=60)))
    assert SECRET not in outcome.output
    assert "way" in os.listdir(alice / "work"), outcome
    assert state(tmp_path, alice / "work", tmp_path / "home/run") == before
    assert SECRET not in told(lambda: files.read("way/file").data) + told(lambda: files.list("way"))
    subprocess.run([sys.executable, "-c", _UNPACK, alice / "work/evil.tar", alice / "work"], check=True)
    assert {"absolute", "through"} <= set(os.listdir(tmp_path / "outside"))


def test_a_trap_in_a_workspace_that_is_lent_catches_nobody_either(tmp_path: Path, alice: Path, kernel: bool) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "l").symlink_to(tmp_path / "outside")
    (project / "d").symlink_to(alice)
    os.link(tmp_path / "home/config.json", project / "hard")
    os.link(alice / "session.jsonl", project / "history")
    before = state(tmp_path, project)
    files = Workspace.open(alice, grants=[Grant(project, "rw")], kernel=kernel)
    for name in ("l/file", "d/session.jsonl", "d/config.json", "hard", "history", "l/../outside/file"):
        for act in (*every(files), files.list):
            assert SECRET not in told(lambda act=act, name=name: act(f"{project}/{name}"))
    assert state(tmp_path, project) == before
    files.close()
