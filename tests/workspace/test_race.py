"""A directory and a link exchanged without pause by another process, while files are read and written through their names."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bubbles.errors import ToolError
from bubbles.workspace import Workspace
from bubbles.workspace import beneath as below
from tests.workspace.trees import SECRET, everything, session


@contextlib.contextmanager
def exchanging(directory: Path, *names: str) -> Iterator[list[int]]:
    """Has the pairs of `names` exchanged while the block runs; the list then holds how often."""
    program = Path(__file__).with_name("exchanging.py")
    counts: list[int] = []
    with subprocess.Popen([sys.executable, program, directory, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield counts
        finally:
            said = child.communicate()[0]
    assert child.returncode == 0, "the exchanging program failed; see stderr"
    counts.append(int(said))


def furnish(root: Path) -> Path:
    """A session with three names in work/ that have a twin, a link that leads out: a directory, a directory on the way, and a file."""
    alice = session(root)
    work = alice / "work"
    for name in ("d", "s/deep"):
        (work / name).mkdir(parents=True)
        (work / name / "file").write_text("mine 0\n")
    (root / "outside/deep").mkdir()
    (root / "outside/deep/file").write_text(f"{SECRET}\n")
    (work / "f").write_text("mine 0\n")
    (work / "d-link").symlink_to(root / "outside")
    (work / "s-link").symlink_to("../../../../outside")
    (work / "f-link").symlink_to(root / "outside/file")
    return alice


TWINS = ("d", "d-link", "s", "s-link", "f", "f-link")


@pytest.mark.parametrize(("kernel", "seconds"), [(True, 5.0), (False, 2.0)])
def test_no_exchange_of_names_leads_a_file_tool_out(tmp_path: Path, kernel: bool, seconds: float) -> None:
    if kernel and not below.kernel_resolves():
        pytest.skip("no openat2 on this system")
    alice = furnish(tmp_path)
    outside = everything(tmp_path / "outside")
    files = Workspace.open(alice, kernel=kernel)
    done: Counter[tuple[str, bool]] = Counter()
    numbers = itertools.count(1)
    acts: dict[str, Callable[[str], object]] = {
        "read": lambda path: files.read(path).data,
        "write": lambda path: files.write(path, f"mine {next(numbers)}\n"),
        "edit": lambda path: files.edit(path, "mine", "mine still", replace_all=True),
        "make": lambda path: files.write(f"{path}-{next(numbers) % 50}", "mine\n"),
        "list": lambda path: files.list(path.rpartition("/")[0] or "d"),
    }
    with exchanging(alice / "work", *TWINS) as exchanged:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for (name, act), path in itertools.product(acts.items(), ("d/file", "s/deep/file", "f")):
                try:
                    told = act(path)
                except ToolError as error:
                    told = error.text + error.remedy
                    done[name, False] += 1
                else:
                    done[name, True] += 1
                assert SECRET not in str(told)
    files.close()
    assert everything(tmp_path / "outside") == outside
    assert sorted(os.listdir(tmp_path / "outside")) == ["deep", "file"]
    assert exchanged[0] > 1000
    for name in acts:  # both sides of the race were met
        assert done[name, True] > 0
        assert done[name, False] > 0


def test_the_race_is_one_that_a_checked_path_loses(tmp_path: Path) -> None:
    alice = furnish(tmp_path)
    root, path = os.path.realpath(alice), alice / "work/d/file"
    with exchanging(alice / "work", *TWINS):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if os.path.realpath(path).startswith(f"{root}/") and SECRET in path.read_text():
                    return
    pytest.fail("realpath and open never leaked: this machine does not show the race, so the other test proves nothing")
