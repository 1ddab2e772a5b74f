"""What is a command and what are words."""

from __future__ import annotations

import os
from typing import Any

import pytest

from bubbles.errors import Usage
from bubbles.programs.terminal.commands import COMMANDS, compacted, overview, parse, set_aside, settings, workspaces
from bubbles.programs.terminal.screen import Screen


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/session my", ("session", "my")),
        ("/session  two words ", ("session", "two words")),
        ("/config", ("config", "")),
        ("/config system_prompt Be\nbrief.", ("config", "system_prompt Be\nbrief.")),
        (" exit ", ("exit", "")),
        ("quit", ("exit", "")),
        ("/quit", ("exit", "")),
        ("/nope", ("nope", "")),
        ("exit the loop", None),
        ("/etc/passwd is what?", None),
        ("/2 of them", None),
        ("what is /help?", None),
        ("", None),
    ],
)
def test_lines(text: str, wanted: tuple[str, str] | None) -> None:
    assert parse(text) == wanted


def test_every_command_is_told_by_help_and_understood_by_the_screen() -> None:
    import inspect

    understood = inspect.getsource(Screen._command)
    assert all(f'case "{name}"' in understood for name in COMMANDS)
    assert all(f"  /{name}" in overview() for name in COMMANDS)
    assert max(map(len, overview().splitlines())) <= 90


def shown(own: list[dict[str, str]] | None, owners: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {"overrides": {} if own is None else {"workspaces": own}, "settings": {"workspaces": own if own is not None else owners or []}}


A, B = {"path": "/a", "mode": "ro"}, {"path": "/b b", "mode": "rw"}


@pytest.mark.parametrize(
    ("own", "text", "wanted"),
    [
        (None, "add /a", [A]),
        ([A], "add /b b rw", [A, B]),
        ([A], "add /b b  rw ", [A, B]),
        ([A, B], "add /a/../a rw", [B, {"path": "/a", "mode": "rw"}]),
        ([A, B], "add /b b", [A, {"path": "/b b", "mode": "ro"}]),
        ([A, B], "remove /b b", [A]),
        ([A], "remove /a", []),
        (None, "add ro", [{"path": os.path.abspath("ro"), "mode": "ro"}]),
        (None, "add ~/x", [{"path": os.path.expanduser("~/x"), "mode": "ro"}]),
    ],
)
def test_a_sessions_workspaces_are_its_own(own: list[dict[str, str]] | None, text: str, wanted: list[dict[str, str]]) -> None:
    assert workspaces(shown(own), text) == wanted


@pytest.mark.parametrize("text", ["", "add", "add ", "remove", "remove /a rw", "lend /a", "remove /c"])
def test_what_is_no_change_of_workspaces_is_a_wrong_call(text: str) -> None:
    with pytest.raises(Usage):
        workspaces(shown([A]), text)


def test_the_owners_workspaces_are_not_copied_into_a_session_and_that_is_said() -> None:
    assert workspaces(shown(None, [B]), "add /a") == [A]
    assert "/b b" in set_aside(shown(None, [B]))
    assert set_aside(shown(None)) == set_aside(shown([A])) == ""
    with pytest.raises(Usage) as refused:
        workspaces(shown(None, [B]), "remove /b b")
    assert "config.json" in refused.value.remedy


def test_what_compacting_did_is_told() -> None:
    assert compacted({"how": "nothing"}) == "  there is nothing to summarise yet"
    assert compacted({"how": "model", "before_tokens": 9, "after_tokens": 3}) == "  9 tokens before, 3 now"


def test_settings_mark_what_is_this_sessions_own() -> None:
    found = {"settings": {"model": "m", "temperature": 0.5, "workspaces": []}, "overrides": {"temperature": 0.5}}
    assert settings(found) == "  model          m\n  temperature    0.5   (this session)\n  workspaces     []"
    assert settings(found, "model") == "  model          m"
    assert settings(found, "nope") == ""
