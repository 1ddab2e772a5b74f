"""What may be lent to a session's tools. Directories as they are on disk are tried in tests/workspace, whole environments in tests/sandboxes."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from bubbles import lending
from bubbles.lending import refused, withheld


def test_what_its_texts_show() -> None:
    assert doctest.testmod(lending).failed == 0


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "more than one"),
        ("/home", "more than one"),
        ("/etc/ssh", "the system"),
        ("/proc/self", "the system"),
        ("a/b", "absolute"),
        ("/x/../etc", "system"),
    ],
)
def test_a_directory_that_may_not_be_lent_says_why(path: str, why: str) -> None:
    assert why in refused(Path(path), None)


def test_the_home_is_lent_to_nobody_and_what_is_away_may_be(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "home" / "cron")
    (tmp_path / "file").touch()
    assert all("Bubbles" in refused(tmp_path / name, tmp_path / "home") for name in ("home", "home/sessions/x", "link", "."))
    assert "not a directory" in refused(tmp_path / "file", tmp_path / "home")
    assert refused(tmp_path / "away", tmp_path / "home") == refused(tmp_path / "away", None) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("GITHUB_TOKEN", "a key"),
        ("my_api_key", "a key"),
        ("LD_PRELOAD", "somebody else's code"),
        ("BASH_FUNC_ls%%", "somebody else's code"),
        ("SSH_AUTH_SOCK", "outside the sandbox"),
        ("BUBBLES_HOME", "Bubbles' own"),
        ("A=B", "no name"),
        ("A\n", "no name"),
    ],
)
def test_a_variable_that_is_withheld_says_why(name: str, why: str) -> None:
    assert why in withheld(name)


@pytest.mark.parametrize("name", ["LANG", "HTTP_PROXY", "EDITOR", "FOO", "OLD_PATH", "ENVIRONMENT"])
def test_a_harmless_variable_is_passed(name: str) -> None:
    assert withheld(name) == ""
