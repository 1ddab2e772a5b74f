"""A program of its own, for the user who runs it: plants links for the next jail's start to fall for, starts jails, and tells what happened outside.

    python -m tests.sandboxes.planting ROOT BWRAP

ROOT is an empty directory of this user's, BWRAP the bubblewrap that makes the jails. bubblewrap before 0.12 makes mount points along links
that lead to /oldroot, which is where the machine lies while it works.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bubbles.config.tools import Sandbox as Settings
from bubbles.errors import BubblesError
from bubbles.sandboxes.bwrap import Bwrap
from bubbles.sandboxes.furniture import Furniture
from bubbles.sandboxes.inside.jail import arguments
from bubbles.workspace import Grant
from tests.workspace.trees import SECRET, session, state

_SHELL = ["/bin/bash", "--noprofile", "--norc", "-c"]
_LOOK = "echo started; cat skills/* SOUL.md up/* ../data/* ~/.config/* 2>/dev/null; touch up/new ../data/skills/new ~/.config/new 2>/dev/null; true"
NAMES = ("skills", "SOUL.md", "MEMORY.md", "work", "data", "usr", "etc", "up", ".config", ".cache", "pdf", "sub")


class Scene:
    """A session and a victim beside it, and jails for the one that must not touch the other."""

    def __init__(self, root: Path, binary: str) -> None:
        self.root, self.binary = root, binary
        self.alice = session(root)
        self.home = root / "home/session_homes/alice"
        self.victim = root / "victim"
        (self.victim / "directory/deeper").mkdir(parents=True)
        for name in ("file", "directory/file"):
            (self.victim / name).write_text(f"{SECRET}\n")
        self.project = root / "project"
        (self.project / "sub").mkdir(parents=True)

    def jailer(self) -> Bwrap:
        grants = (Grant(self.project, "rw"), Grant(self.project / "sub"))
        return Bwrap(self.alice, self.home, Settings(), grants=grants, network="none")

    def started(self, command: str = _LOOK, *, weak: tuple[str, ...] = ()) -> str:
        """What a command in a jail printed, or why none was made; `weak` are arguments for mounts that no jail of ours has."""
        jailer = self.jailer()
        try:
            with Furniture() as furniture:
                shape = replace(jailer.jail(furniture, self.alice / "work", {}, False), extra=weak)
                argv = [self.binary, *arguments(shape), *_SHELL, command]
                done = subprocess.run(argv, env={}, cwd="/", pass_fds=furniture.fds, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                return done.stdout + done.stderr
        except (BubblesError, OSError) as error:
            return f"refused: {error}"

    def outside(self) -> dict[str, tuple[object, ...]]:
        """Everything that the session may not write."""
        own = (self.alice / "work", self.alice / "data", self.home, self.project, self.root / "home/run")
        return {path: found for path, found in state(self.root, *own).items() if path not in map(str, own)}


def _each(place: Path, target: str) -> None:
    place.mkdir(exist_ok=True)
    for name in NAMES:
        _instead(place / name, target)


def _instead(path: Path, target: str) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def plants(scene: Scene) -> dict[str, Callable[[], object]]:
    """What is planted, by a word for it."""
    old = f"/oldroot{scene.victim}"
    targets = {"file": f"{old}/file", "directory": f"{old}/directory", "new": f"{old}/new", "new below": f"{old}/directory/new"}
    places = {"work": scene.alice / "work", "data": scene.alice / "data", "HOME": scene.home, "a project": scene.project}
    found: dict[str, Callable[[], object]] = {
        f"{where}: links to a {what}": lambda place=place, target=target: _each(place, target)
        for where, place in places.items()
        for what, target in targets.items()
        if where != "a project" or what != "file"
    }
    whole = {
        "work": scene.alice / "work", "data": scene.alice / "data", "skills": scene.alice / "skills", "SOUL.md": scene.alice / "SOUL.md",
        "MEMORY.md": scene.alice / "MEMORY.md", "HOME": scene.home,
    }  # fmt: skip
    found |= {f"{what} itself": lambda path=path: _instead(path, f"{old}/directory") for what, path in whole.items()}
    return found | {"the session itself": lambda: _instead(scene.alice, f"{old}/directory")}


def main(root: Path, binary: str) -> None:
    told = {}
    for word in plants(Scene(root / "0", binary)):
        scene = Scene(root / word.replace(" ", "-"), binary)
        plants(scene)[word]()
        before = scene.outside()
        said = [scene.started()]
        after = scene.outside()
        told[word] = {"said": said, "touched": [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]}
    print(json.dumps({"told": told, "by itself": _by_a_command(Scene(root / "1", binary)), "weak": _weak(Scene(root / "2", binary))}))


def _by_a_command(scene: Scene) -> dict[str, object]:
    """The links are planted from within a jail, as an attack would; then a second jail is started."""
    before = scene.outside()
    lines = [f"ln -s /oldroot{scene.victim}/directory {place}/{name}" for place in (".", "../data", "~") for name in NAMES]
    first = scene.started("\n".join([*lines, "mv ../skills ../gone; rmdir ../work; ln -s /oldroot/x ../work; ls -d *"]))
    return {"planted": os.path.islink(scene.alice / "work/skills"), "said": [first, scene.started()], "touched": scene.outside() != before}


def _weak(scene: Scene) -> dict[str, object]:
    """The same links, where a file is mounted below a directory that the jail could write."""
    _each(scene.alice / "work", f"/oldroot{scene.victim}/directory")
    said = scene.started("echo started", weak=("--ro-bind", "/usr/bin/env", f"{scene.alice}/work/skills/planted"))
    return {"said": said, "hit": (scene.victim / "directory/planted").exists()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
