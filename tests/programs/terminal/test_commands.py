"""What is a command and what are words."""

from __future__ import annotations

import pytest

from bubbles.programs.terminal.commands import COMMANDS, overview, parse, settings
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


def test_settings_mark_what_is_this_sessions_own() -> None:
    shown = {"settings": {"model": "m", "temperature": 0.5, "workspaces": []}, "overrides": {"temperature": 0.5}}
    assert settings(shown) == "  model          m\n  temperature    0.5   (this session)\n  workspaces     []"
    assert settings(shown, "model") == "  model          m"
    assert settings(shown, "nope") == ""
