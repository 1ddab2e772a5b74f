"""What a file tool is on its way through, exchanged without pause by another process: a directory and a link, a file and a link, work/ itself."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bubbles.errors import ToolError
from bubbles.workspace import Grant, Workspace
from bubbles.workspace import beneath as below
from tests.disasters.soak import SOAK
from tests.workspace.trees import SECRET, session, state

SECONDS = 5.0 if SOAK else 0.4
HUGE = 4242  # bytes of each file outside, so that a stat of one is known


@contextlib.contextmanager
def exchanging(directory: Path, *names: str) -> Iterator[list[int]]:
    """Has the pairs of `names` exchanged while the block runs; the list then holds how often."""
    program = Path(__file__).with_name("exchanging.py")
    counts: list[int] = []
    with subprocess.Popen([sys.executable, "-I", "-S", program, directory, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            yield counts
        finally:
            said = child.communicate()[0]
    assert child.returncode == 0, "the exchanging program failed; see stderr"
    counts.append(int(said))


@dataclass(frozen=True)
class Scene:
    """Pairs of names below a session's directory that are exchanged, and the paths that lead through them."""

    pairs: tuple[str, ...]
    paths: tuple[str, ...]


SCENES = {
    "in work": Scene(
        ("work/d", "work/d-link", "work/s", "work/s-link", "work/f", "work/f-link", "work/g", "work/g-link"),
        ("d/file", "s/deep/file", "f", "g/../d/file", "g/link/deep/file"),
    ),
    "work itself": Scene(("work", "work-link", "data", "data-link"), ("d/file", "file", "../data/file", "../data/deep/file")),
    "what was lent": Scene(("../../../project/d", "../../../project/d-link"), ("{root}/project/d/file", "{root}/project/d/deep/file")),
}


def furnish(root: Path) -> Path:
    """A session where each name that a scene exchanges has a twin, a link that leads out to a tree of the same names with SECRET in all."""
    alice = session(root)
    for place in ("work", "work/d", "work/s/deep", "work/g", "data", "data/deep", "../../../project/d/deep"):
        (alice / place).mkdir(parents=True, exist_ok=True)
    for name in ("work/d/file", "work/file", "work/s/deep/file", "work/f", "data/file", "data/deep/file"):
        (alice / name).write_text("mine 0\n")
    for name in ("d/file", "d/deep/file"):
        (root / "project" / name).write_text("mine 0\n")
    (alice / "work/g/link").symlink_to("../s")
    for place in ("outside", "home/sessions/bob"):
        for name in ("file", f"{SECRET}-name", "deep/file", "d/file", "d/deep/file", "link/deep/file"):
            (root / place / name).parent.mkdir(parents=True, exist_ok=True)
            (root / place / name).write_text(f"{SECRET}\n".ljust(HUGE))
    links = {
        "work/d-link": str(root / "outside"),
        "work/s-link": "../../../../outside",
        "work/f-link": str(root / "outside/file"),
        "work/g-link": "../../bob/d",
        "work-link": "../../../outside",
        "data-link": "../bob",
        "../../../project/d-link": "../outside",
    }
    for name, target in links.items():
        (alice / name).symlink_to(target)
    return alice


def outside(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything that no tool may touch, as it is now."""
    places = (root / "outside", root / "home/sessions/bob", root / "home/session_homes", root / "home/config.json")
    return {name: found for place in places for name, found in state(place).items()}


@pytest.mark.parametrize("kernel", [True, False], ids=["openat2", "walk"])
@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_no_exchange_of_names_leads_a_file_tool_out(tmp_path: Path, scene: Scene, kernel: bool, record_property: Callable[..., None]) -> None:
    if kernel and not below.kernel_resolves():
        pytest.skip("no openat2 on this system")
    alice = furnish(tmp_path)
    before = outside(tmp_path)
    files = Workspace.open(alice, grants=[Grant(tmp_path / "project", "rw")], kernel=kernel)
    numbers = itertools.count(1)
    acts: dict[str, Callable[[str], object]] = {
        "read": lambda path: files.read(path).data,
        "write": lambda path: files.write(path, f"mine {next(numbers)}\n"),
        "edit": lambda path: files.edit(path, "mine", "mine still", replace_all=True),
        "make": lambda path: files.write(f"{path}-{next(numbers) % 50}", "mine\n"),
        "make deep": lambda path: files.write(f"{os.path.dirname(path)}/made-{next(numbers) % 50}/here/file", "mine\n"),
        "list": lambda path: files.list(os.path.dirname(path) or ".", depth=3),
        "stat": lambda path: f"{SECRET} by its size" if files.stat(path).size == HUGE else "",
        "directory": lambda path: _inside(files.directory(os.path.dirname(path) or "."), alice, tmp_path / "project"),
        "picture": lambda path: files.open_media(path),
    }
    done: Counter[tuple[str, bool]] = Counter()
    with exchanging(alice, *scene.pairs) as exchanged:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or (len(done) < 2 * len(acts) - 1 and time.monotonic() < end + 60):
            for (name, act), path in itertools.product(acts.items(), scene.paths):
                try:
                    told = str(act(path.format(root=tmp_path)))
                except ToolError as error:
                    told = error.text + error.remedy
                    done[name, False] += 1
                else:
                    done[name, True] += 1
                assert SECRET not in told, f"{name} {path}"
    files.close()
    assert outside(tmp_path) == before
    assert exchanged[0] > 1000
    for name in acts:  # both sides of the race were met
        assert done[name, False] > 0, done
        assert done[name, True] > 0 or name == "picture", done
    record_property("told", f"{sum(done.values())} uses of file tools, {exchanged[0]} exchanges meanwhile, no leak")


def _inside(path: Path, *roots: Path) -> str:
    return "" if any(path.is_relative_to(root) for root in roots) else f"{SECRET} at {path}"


@pytest.mark.parametrize("scene", SCENES.values(), ids=list(SCENES))
def test_the_race_is_one_that_a_checked_path_loses(tmp_path: Path, scene: Scene) -> None:
    alice = furnish(tmp_path)
    roots = (f"{os.path.realpath(alice)}/", f"{os.path.realpath(tmp_path / 'project')}/")
    paths = [alice / "work" / path.format(root=tmp_path) for path in scene.paths]
    with exchanging(alice, *scene.pairs):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            for path in paths:
                with contextlib.suppress(OSError):
                    if os.path.realpath(path).startswith(roots) and SECRET in path.read_text():
                        return
    pytest.fail("realpath and open never leaked: this machine does not show the race, so the other test proves nothing")
