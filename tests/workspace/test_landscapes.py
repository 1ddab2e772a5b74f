"""Any session of links, hard links, mounts and odd names: a file tool touches what a command in the session's jail finds by that path, or nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bubbles.sandboxes import binary
from bubbles.workspace import beneath
from tests.disasters.soak import SOAK

REPOSITORY = Path(__file__).parents[2]


class Surveyor:
    """A landscape.py at work, in a mount namespace of its own."""

    def __init__(self, base: Path) -> None:
        as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        program = [sys.executable, "-m", "tests.workspace.landscape", str(base)]
        self._command = ["unshare", *as_root, "--mount", "--propagation", "private", "--", *program]
        self._child = self._started()
        self.used = 0

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wrong(self, **plan: Any) -> list[str]:
        """What is wrong in the landscape of `plan`."""
        assert self._child.stdin
        assert self._child.stdout
        self._child.stdin.write(json.dumps(plan) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            self.close()
            self._child = self._started()
            raise AssertionError("the program that builds landscapes failed; see stderr")
        told = json.loads(line)
        self.used += told["used"]
        return list(told["wrong"])

    def close(self) -> None:
        self._child.communicate()


@pytest.fixture(scope="module")
def surveyor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surveyor]:
    if not beneath.kernel_resolves() or not [one for one in binary.candidates() if not one.missing]:
        pytest.skip("no openat2 or no bubblewrap here")
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", *as_root, "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace here")
    made = Surveyor(tmp_path_factory.mktemp("land"))
    yield made
    made.close()


ODD = ["x\ny", "\x1b[2Jz", "\u202ebidi", "caf\u00e9", "cafe\u0301", "n" * 255, "\udcff\udcfe", "a (deleted)", " ", "...", "-rf", "\\"]
NAMES = st.sampled_from([*["a", "b", "c"] * 6, *ODD])
PARTS = st.sampled_from([*["a", "b", "c", ".."] * 6, ".", "", "work", "data", "alice", "bob", "MEMORY.md", "new", "chain3", "chain44", *ODD])
UP = ["../", "../../", "../../../", "../../../../", "../../../../../"]
STARTS = [
    "", "", "", "", *UP, "/", "{alice}/", "{alice}/work/", "{alice}/data/", "{root}/", "{root}/outside/", "{root}/home/session_homes/alice/",
    "/proc/self/root{alice}/work/", "/proc/self/cwd/", "/proc/1/root{root}/outside/", "/oldroot{root}/outside/", "/usr/", "/dev/fd/",
]  # fmt: skip
joined = st.builds("/".join, st.lists(PARTS, max_size=4))
leading = st.builds("".join, st.tuples(st.sampled_from(STARTS), joined))
places = st.builds("/".join, st.tuples(st.sampled_from(["work", "data"]), st.builds("/".join, st.lists(NAMES, min_size=1, max_size=3))))
inside = st.one_of(places, st.sampled_from(["work", "data", "skills", "skills/pdf", "MEMORY.md", "SOUL.md"]))
outside = st.sampled_from(["../../../outside", "../bob", "../../../outside/file", "../bob/MEMORY.md"])
nodes = st.one_of(
    st.tuples(st.just("directory"), places, st.just("")),
    st.tuples(st.just("file"), places, st.just("")),
    st.tuples(st.just("link"), places, leading.filter(bool)),
    st.tuples(st.just("link"), places, leading.filter(bool)),
    st.tuples(st.just("hard"), places, st.one_of(inside, outside)),
    st.tuples(st.just("chain"), places, leading.filter(bool)),
    st.tuples(st.just("fifo"), places, st.just("")),
    st.tuples(st.sampled_from(["bind", "tmpfs"]), places, st.one_of(inside, outside)),
)
CROWDED = [
    ("directory", "work/a", ""), ("file", "work/a/b", ""), ("link", "work/c", "a"), ("link", "work/b", "../data"), ("bind", "data/a", "work/a"),
    ("tmpfs", "work/x\ny", ""), ("link", "data/c", "{root}/outside/file"), ("link", "data/b", "../work/x\ny/a"), ("chain", "work/z", "a/b"),
    ("hard", "work/\udcff\udcfe", "work/a/b"), ("link", "work/caf\u00e9", "\udcff\udcfe"), ("hard", "data/ ", "../bob/MEMORY.md"),
]  # fmt: skip
CROSSINGS = [
    "a/b", "c/b", "b/c", "b/a/b", "b/b", "c/../b/a/b", "chain3", "chain44", "caf\u00e9", "../data/ ", "x\ny/a", "{alice}/work/c/b",
    "b/..", "b/../work/a",
]  # fmt: skip


@settings(max_examples=1500 if SOAK else 16)
@given(st.lists(nodes, max_size=14), st.lists(leading, min_size=1, max_size=14))
@example(CROWDED, CROSSINGS)
@example([("bind", "work/\udcff\udcfe", "data"), ("link", "work/a", "\udcff\udcfe"), ("file", "data/a", "")], ["a/a", "a/new"])
def test_a_file_tool_touches_what_the_jail_finds_there_or_nothing(surveyor: Surveyor, made: list[Any], paths: list[str]) -> None:
    assert surveyor.wrong(nodes=made, paths=paths) == []


def test_landscapes_are_crossed_and_a_tool_that_trusts_a_path_s_text_is_found_out(surveyor: Surveyor) -> None:
    before = surveyor.used
    assert surveyor.wrong(nodes=CROWDED, paths=CROSSINGS) == []
    assert surveyor.used - before > 30  # it is no landscape where everything is refused
    for made, path in (
        (("link", "work/a", "{root}/outside/file"), "a"),
        (("link", "work/a", "../../bob"), "a/MEMORY.md"),
        (("link", "data/a", "/proc/self/root{root}/outside"), "../data/a/file"),
        (("chain", "work/a", "../../../../outside/file"), "chain9"),
    ):
        assert surveyor.wrong(nodes=[made], paths=[path], usual=True) != []
        assert surveyor.wrong(nodes=[made], paths=[path]) == []
