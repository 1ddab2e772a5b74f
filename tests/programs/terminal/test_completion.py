"""What Tab offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbles import config
from bubbles.agentd.configuring import LANGUAGES
from bubbles.config.providers import built
from bubbles.programs.terminal.completion import KEYS, VALUES, offers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/st", ["/status", "/stop"]),
        ("/e", ["/exit"]),
        ("/config t", ["temperature", "timezone"]),
        ("/config w", ["workspace", "workspaces"]),
        ("/config sandbox ", ["local", "local_isolated", "bwrap", "-"]),
        ("/config language z", ["zh"]),
        ("/config provider cu", ["custom"]),
        ("/config workspace ", ["add", "remove", "-"]),
        ("/config model ", ["-"]),
        ("/config workspace add ", []),
        ("/session m", ["mine", "my session"]),
        ("/session my s", ["my session"]),
        ("/status ", []),
        ("words", []),
        ("", []),
    ],
)
def test_words(tmp_path: Path, text: str, words: list[str]) -> None:
    for name in ("mine", "my session", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "my.file").touch()
    found = offers(text, tmp_path)
    assert [word for word, _ in found] == words
    assert all(text[len(text) - length :] == word[:length] for word, length in found)


def test_it_offers_what_there_is() -> None:
    assert set(KEYS) == set(config.SESSION_KEYS)
    assert VALUES["provider"] == built()
    assert VALUES["language"] == list(LANGUAGES)
