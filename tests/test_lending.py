"""What may be lent to a session's tools. Directories as they are on disk are tried in tests/workspace, whole environments in tests/sandboxes."""

from __future__ import annotations

import doctest
import os
import socket
from pathlib import Path

import pytest

from bubbles import lending
from bubbles.lending import misplaced, refused, unbindable, unpassable, withheld


def test_what_its_texts_show() -> None:
    assert doctest.testmod(lending).failed == 0


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "more than one"),
        ("/home", "more than one"),
        ("/etc/ssh", "the system"),
        ("/proc/self", "the system"),
        ("/proc/1/root", "the system"),
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


def shown(path: Path, to: Path | None, mode: str, home: Path | None) -> str:
    return unbindable(path, mode, home) or misplaced(to or path, moved=to is not None, home=home)


@pytest.mark.parametrize(
    ("path", "to", "mode", "why"),
    [
        ("/", None, "ro", "more than one"),
        ("/home", None, "ro", "more than one"),
        ("/tmp", None, "ro", "more than one"),
        ("~", None, "ro", "more than one"),
        ("~/..", None, "ro", "more than one"),
        ("/opt", None, "rw", "more than one"),
        ("/run/user/1000/bus", None, "ro", "the system"),
        ("/var/run/docker.sock", None, "ro", "the system"),
        ("/proc/1/root", None, "ro", "the system"),
        ("/sys/kernel", None, "ro", "the system"),
        ("/dev/sda", None, "ro", "the system"),
        ("/srv/app.sock", None, "ro", "socket"),
        ("srv", None, "ro", "absolute"),
        ("/srv/x", "/data", "ro", "not below /mnt"),
        ("/srv/x", "/mnt", "ro", "not below /mnt"),
        ("/srv/x", "/mnt/../etc", "ro", "not an absolute path"),
        ("/usr/share/x", None, "ro", "the jail has itself"),
        ("/tmp/x", None, "ro", "the jail has itself"),
        (str(Path(lending.__file__).parent.parent), None, "rw", "runs Bubbles"),
    ],
)
def test_what_may_not_be_shown_in_a_jail_says_why(path: str, to: str | None, mode: str, why: str) -> None:
    assert why in shown(Path(path).expanduser(), Path(to) if to else None, mode, Path("/srv/home/.bubbles"))


def test_what_a_jail_may_show(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    home = tmp_path / "home"
    beside = Path("/mnt/x")
    assert shown(tmp_path / "file", beside, "ro", home) == shown(Path("/opt"), None, "ro", home) == ""
    assert shown(Path("/srv/away"), None, "rw", home) == ""
    assert "neither" in shown(tmp_path / "pipe", beside, "ro", home)
    assert "the system" in shown(tmp_path / "link", beside, "ro", home)
    assert all("Bubbles" in shown(tmp_path / name, beside, "ro", home) for name in ("home", "home/sessions/x", "."))


def test_a_socket_is_shown_to_nobody_whatever_its_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "link").symlink_to("s")
        assert all("socket" in shown(tmp_path / name, Path("/mnt/x"), "ro", None) for name in ("s", "link"))


def test_nothing_is_shown_where_commands_can_write() -> None:
    work = Path("/b/s/work")
    assert "can write" in misplaced(work / "x", moved=False, home=None, writable=[work])
    assert misplaced(Path("/b/s/skills"), moved=False, home=None, writable=[work]) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("GITHUB_TOKEN", "a key"),
        ("my_api_key", "a key"),
        ("GITHUB_PAT", "logs somebody in"),
        ("NPM_CONFIG_AUTH", "logs somebody in"),
        ("COOKIE", "logs somebody in"),
        ("aws_session", "logs somebody in"),
        ("PHP_SESSION_ID", "logs somebody in"),
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


@pytest.mark.parametrize("name", ["LANG", "EDITOR", "FOO", "OLD_PATH", "ENVIRONMENT", "COLORTERM", "PATTERN", "GIT_AUTHOR_NAME", "DESKTOP_SESSION"])
def test_a_harmless_variable_is_passed(name: str) -> None:
    assert withheld(name) == unpassable(name) == ""


@pytest.mark.parametrize(("name", "why"), [("PATH", "path_append"), ("http_proxy", "network"), ("ALL_PROXY", "network"), ("HOME", "its own")])
def test_what_a_command_has_of_its_own_is_not_passed_on(name: str, why: str) -> None:
    assert why in unpassable(name)
