"""Each method killed after each of its system calls, and on a disk that is full: the old content or the new, and nothing odd to be seen."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbles.workspace import Workspace
from bubbles.workspace.names import is_litter
from tests.crashing import crashes
from tests.workspace.trees import session

OLD, NEW = "old\n" * 5000, "new\n" * 6000
METHODS: dict[str, Callable[[Workspace], object]] = {
    "write over": lambda files: files.write("kept/file", NEW),
    "write through a link": lambda files: files.write("link", NEW),
    "write new": lambda files: files.write("kept/fresh", NEW),
    "write new in new directories": lambda files: files.write("made/of/late/fresh", NEW),
    "write the memory": lambda files: files.write("../MEMORY.md", NEW),
    "edit": lambda files: files.edit("kept/file", "old\n" * 10, "new\n" * 12, replace_all=True),
    "read": lambda files: files.read("kept/file"),
    "list": lambda files: files.list("..", depth=4),
    "stat": lambda files: files.stat("kept/file"),
    "directory": lambda files: files.directory("kept"),
    "open_media": lambda files: files.open_media("picture"),
}
FILES = {"work/kept/file", "data/x", "work/kept/fresh", "work/made/of/late/fresh", "MEMORY.md", "work/picture"}
DIRECTORIES = {"work", "data", "skills", "skills/pdf", "work/kept", "work/made", "work/made/of", "work/made/of/late"}


@pytest.mark.parametrize(("method", "kernel"), [*((name, True) for name in METHODS), ("write over", False), ("edit", False)])
def test_killed_after_any_system_call_the_content_is_old_or_new(tmp_path: Path, method: str, kernel: bool) -> None:
    alice = session(tmp_path)
    files = Workspace.open(alice, kernel=kernel)

    def furnish() -> None:
        for name in ("made", "kept"):
            shutil.rmtree(alice / "work" / name, ignore_errors=True)
        (alice / "work/kept").mkdir()
        for name in ("work/kept/file", "MEMORY.md", "data/x"):
            (alice / name).write_text(OLD)
            (alice / name).chmod(0o640)
        (alice / "work/picture").write_bytes(b"GIF89a")
        (alice / "work/link").unlink(missing_ok=True)
        (alice / "work/link").symlink_to("kept/file")

    seen = set()
    for _ in crashes(lambda: METHODS[method](files), furnish):
        seen.add(_look(files, alice))
    seen.add(_look(files, alice))
    assert seen == ({"old", "new"} if method.startswith(("write", "edit")) else {"old"})
    files.close()


def _look(files: Workspace, alice: Path) -> str:
    """ "old" or "new"; fails for anything between, for litter that shows, and for whatever else has changed."""
    found = {}
    for path in alice.rglob("*"):
        name = str(path.relative_to(alice))
        if path.is_file() and not path.is_symlink() and not is_litter(path.name) and name in FILES:
            found[name] = path.read_text()
    for name, text in found.items():
        assert text in (OLD, NEW, "GIF89a"), f"{name} is torn"
    for name in ("work/kept/file", "MEMORY.md"):
        assert stat.S_IMODE((alice / name).stat().st_mode) == 0o640
    listed = files.list("..", depth=8).entries
    others = {e.path for e in listed} - FILES - DIRECTORIES - {"SOUL.md", "HEARTBEATS.md", "skills/pdf/SKILL.md", "work/link"}
    assert others == set()
    assert found["data/x"] == OLD
    return "new" if NEW in found.values() else "old"


def test_after_a_crash_the_same_write_goes_through(tmp_path: Path) -> None:
    alice = session(tmp_path)
    files = Workspace.open(alice)
    for _ in crashes(lambda: files.write("file", NEW), lambda: files.write("file", OLD)):
        files.write("file", "again")
        assert files.read("file").data == b"again"
    files.close()


NO_MOUNT = 77
FULL = textwrap.dedent(
    """
    import json, pathlib, subprocess, sys
    from bubbles.errors import ToolError
    from bubbles.workspace import Workspace
    from tests.workspace.trees import session

    root = pathlib.Path(sys.argv[1])
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "bubbles-test", root]).returncode:
        sys.exit(NO_MOUNT)
    files = Workspace.open(session(root))
    files.write("kept", "old\\n")
    told = {}
    for name, act in {
        "over": lambda: files.write("kept", "x" * 1_000_000),
        "new": lambda: files.write("a/b/fresh", "x" * 1_000_000),
        "edit": lambda: files.edit("kept", "old", "x" * 1_000_000),
    }.items():
        try:
            act()
        except ToolError as error:
            told[name] = [error.text, error.remedy]
    names = [entry.path for entry in files.list(depth=3).entries]
    litter = [str(path) for path in root.rglob(".bubbles-*")]
    files.write("kept", "room again\\n")
    print(json.dumps({"told": told, "names": names, "litter": litter, "kept": files.read("kept").data.decode()}))
    """
)


def test_a_full_disk_is_told_and_changes_nothing(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for unshare in (["unshare", "--user", "--map-root-user", "--mount"], ["unshare", "--mount"]):
        command = [*unshare, sys.executable, "-c", FULL.replace("NO_MOUNT", str(NO_MOUNT)), str(tmp_path)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(root)}, check=False)
        if "unshare: " not in done.stderr and done.returncode != NO_MOUNT:
            break
    else:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip().splitlines()[-1:]}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found["told"]) == {"over", "new", "edit"}
    for text, remedy in found["told"].values():
        assert "No space left on device" in text
        assert "unchanged" in text
        assert "space" in remedy
    assert found["names"] == ["a", "a/b", "kept"]
    assert found["litter"] == []
    assert found["kept"] == "room again\n"
