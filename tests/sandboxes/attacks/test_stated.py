"""What is stated of the attacks elsewhere: in the table of sandbox/README.md, and in what a model may ask of `exec`."""

from __future__ import annotations

import re
from pathlib import Path

from bubbles.tools.exec import Exec
from tests.sandboxes.attacks.corpus import FOR_ROOT, NOT_HELD, corpus

README = Path(__file__).resolve().parents[3] / "sandbox" / "README.md"
COLUMNS = ("local", "local_isolated")


def tables() -> list[tuple[str, dict[str, set[str]]]]:
    """The rows of the table whose last columns are those of COLUMNS: the first cell, and the numbers of attacks in each column."""
    found, inside = [], False
    for line in README.read_text().splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if tuple(cells[-2:]) == COLUMNS:
            inside = True
        elif not cells:
            inside = False
        elif inside and not set(cells[0]) <= set("-: "):
            found.append((cells[0], dict(zip(COLUMNS, (set(re.findall(r"[A-Z]?\d+[a-z]?", cell)) for cell in cells[-2:]), strict=True))))
    return found


def stated(how: str, column: str) -> set[str]:
    return {attack.number for attack in corpus() if (attack.local if column == "local" else attack.isolated) == how}


def listed(column: str, *, as_root: bool) -> list[str]:
    """The numbers in a column, of the rows for a gateway that runs as root, or of the others."""
    return sorted(number for first, row in tables() if first.startswith("As root") == as_root for number in row[column])


def test_the_readme_lists_what_local_does_not_hold_and_nothing_else() -> None:
    for column in COLUMNS:
        assert listed(column, as_root=False) == sorted(stated(NOT_HELD, column)), column
        assert listed(column, as_root=True) == sorted(stated(FOR_ROOT, column)), column


def test_no_argument_of_exec_says_where_it_is_run() -> None:
    # 46: a model sets a "no sandbox" argument. What is not named here is refused.
    assert set(Exec.Arguments.model_fields) == {"command", "timeout_s", "cwd", "background"}
    assert Exec.Arguments.model_config.get("extra") == "forbid"
