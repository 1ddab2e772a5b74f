"""The table of pains names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
GROUPS = {"lost, doubled", "context", "tool pairs", "dialects", "control", "storage"}  # whose every kind has a test, or says what is not built


def rows() -> list[tuple[str, str, list[str], str]]:
    """(kind, fault, tests, the cell as it stands)."""
    found = []
    for line in (HERE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "kind":
            found.append((cells[0], cells[1], re.findall(r"`(tests/[^`]+)`", cells[2]), cells[2]))
    return found


@pytest.mark.parametrize(("kind", "fault", "tests", "cell"), rows(), ids=[row[1] for row in rows()])
def test_each_named_test_is_there(kind: str, fault: str, tests: list[str], cell: str) -> None:
    assert tests or cell.startswith("not built: ")
    for test in tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        if name:
            assert f"\ndef {name}(" in (ROOT / path).read_text(), test


def test_every_group_has_its_rows() -> None:
    assert {kind for kind, *_ in rows()} >= GROUPS


def test_every_test_of_this_directory_is_in_the_table() -> None:
    named = {test for *_, tests, _ in rows() for test in tests}
    for path in HERE.glob("test_*.py"):
        names = re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE) if path.name != "test_table.py" else []
        for name in names:
            assert f"tests/pains/{path.name}::{name}" in named, name
