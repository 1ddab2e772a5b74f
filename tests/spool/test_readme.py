"""The README's table is true."""

from __future__ import annotations

import doctest
import re
from contextlib import suppress
from pathlib import Path

import pytest

from bubbles import spool
from bubbles.errors import DataError
from bubbles.spool import STATES, Queue, disk, files, queue
from tests.spool.disks import Recording

README = Path(spool.__file__).parent / "README.md"


def test_doctests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(README), module_relative=False)
    assert found.attempted > 20
    assert found.failed == 0
    for module in (disk, files, queue):
        assert doctest.testmod(module).failed == 0


def test_the_table_names_each_state_and_each_rename(tmp_path: Path) -> None:
    table = README.read_text().split("## The five states")[1].split("```")[0]
    assert tuple(re.findall(r"^\| `(\w+)/`", table, re.MULTILINE)) == STATES
    assert set(re.findall(r"`(\w+)/ID\.json[\w.]*` → `(\w+)/ID\.json`", table)) == all_renames(tmp_path)


def all_renames(path: Path) -> set[tuple[str, str]]:
    """Each step once, with all its renames."""
    disk = Recording()
    subject = Queue(path, disk=disk)
    for id in "abcd":
        subject.put(id, {})
    subject.claim("a")
    subject.finish("a")
    for id in "bc":
        subject.claim(id)
        subject.defer(id, 0.0)
        subject.claim(id)
        subject.hold(id)
    subject.release("b")
    subject.drop("c")
    subject.drop("d")
    subject.recover()
    (path / "new" / "e.json").write_text("}\n")
    with suppress(DataError):
        subject.claim("e")
    return disk.renames
