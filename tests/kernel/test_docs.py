"""The README and the examples in docstrings are what the code does."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import bubbles.kernel

ROOM = Path(bubbles.kernel.__file__).parent


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOM.glob("*.py") if path.stem != "__init__"))
def test_docstrings(name: str) -> None:
    assert doctest.testmod(import_module(f"bubbles.kernel.{name}")).failed == 0


def test_readme() -> None:
    done = doctest.testfile(str(ROOM / "README.md"), module_relative=False)
    assert done.attempted > 20
    assert done.failed == 0


def test_every_file_is_on_the_map() -> None:
    text = (ROOM / "README.md").read_text()
    assert not [path.name for path in ROOM.glob("*.py") if path.stem != "__init__" and f"`{path.name}`" not in text]


def test_every_rule_has_a_transcript() -> None:
    told = {path.stem[:6] for path in (Path(__file__).parent / "cases").glob("rule*.txt")}
    assert told == {f"rule{n:02}" for n in range(1, 12)}
