"""A loan lasts as long as its lender, stands in no settings, and takes nothing from anybody."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.sessions.lent import lend, lent, together
from bubbles.workspace.grant import Grant

LENDER = """
import sys, time
from pathlib import Path
from bubbles.paths import Home
from bubbles.sessions.lent import lend
from bubbles.workspace.grant import Grant
with lend(Home.find(), "s", Grant(Path(sys.argv[1]), "rw")):
    print("lent", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def lender(path: Path):
    process = subprocess.Popen([sys.executable, "-c", LENDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"lent\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_it_is_there_while_the_block_lasts_and_only_for_its_session(home: Home, tmp_path: Path) -> None:
    with lend(home, "s", Grant(tmp_path / "run", "rw")):
        assert lent(home, "s") == [Grant(tmp_path / "run", "rw")]
        assert lent(home, "other") == []
        assert not home.session("s").exists()
    assert lent(home, "s") == []
    assert list((home.run / "lent" / "s").iterdir()) == []


def test_it_ends_with_its_process_however_that_ends(home: Home, tmp_path: Path) -> None:
    with lender(tmp_path / "run") as process:
        assert lent(home, "s") == [Grant(tmp_path / "run", "rw")]
        process.kill()
        process.wait()
        assert lent(home, "s") == []
    with lend(home, "s", Grant(tmp_path / "run")):
        assert len(list((home.run / "lent" / "s").iterdir())) == 1  # what the killed one left is gone


def test_who_leaves_first_takes_nothing_from_who_stays(home: Home, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    with lender(directory) as stays:
        with lend(home, "s", Grant(directory, "rw")), lend(home, "s", Grant(directory, "ro")):
            assert lent(home, "s") == [Grant(directory, "rw")]
        assert lent(home, "s") == [Grant(directory, "rw")]
        stays.kill()
        stays.wait()
    assert lent(home, "s") == []


@pytest.mark.parametrize("path", ["/", "~", "/etc", "missing"])
def test_what_may_not_be_lent_is_refused_and_leaves_nothing(home: Home, path: str) -> None:
    with pytest.raises(Misconfigured), lend(home, "s", Grant(Path(path), "rw")):
        pass
    assert lent(home, "s") == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"path": 3, "mode": "rw"}', "\xff"])
def test_a_file_that_is_no_loan_is_nothing(home: Home, tmp_path: Path, text: str) -> None:
    with lend(home, "s", Grant(tmp_path / "run")):
        (loan,) = (home.run / "lent" / "s").iterdir()
        loan.write_text(text, "latin-1")
        assert lent(home, "s") == []


GRANTS = st.lists(st.builds(Grant, st.sampled_from([Path("/a"), Path("/b"), Path("/c")]), st.sampled_from(["ro", "rw"])), max_size=4)


@given(own=GRANTS, loans=GRANTS)
def test_a_loan_takes_nothing_from_a_grant(own: list[Grant], loans: list[Grant]) -> None:
    had = {grant.path: grant.mode for grant in own}  # the last of a path counts, as without a loan
    found = {grant.path: grant.mode for grant in together(own, loans)}
    assert set(found) == {grant.path for grant in [*own, *loans]}
    for path, mode in found.items():
        writable = had.get(path) == "rw" or Grant(path, "rw") in loans
        assert mode == ("rw" if writable else "ro")
