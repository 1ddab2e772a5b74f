"""What a terminal does itself, and what it sends."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.agentd.spelling import parse
from bubbles.programs.terminal.commands import is_command, is_help, local, sent


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (" exit ", ("exit", "")),
        ("quit", ("exit", "")),
        ("/quit", ("exit", "")),
        ("/exit", ("exit", "")),
        ("/session my", ("session", "my")),
        ("／session  two words ", ("session", "two words")),
        ("/session", None),
        ("/sesion my", None),
        ("/config", None),
        ("exit the loop", None),
        ("what is /help?", None),
        ("", None),
    ],
)
def test_what_is_the_terminals_own(text: str, wanted: tuple[str, str] | None) -> None:
    assert local(text) == wanted


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/config workspace add site rw", "site rw"),
        ("/config workspace add ./two words", "./two words"),
        ("／config  workspaces  remove  ../x", "../x"),
        ("/config workspace add . rw", ". rw"),
    ],
)
def test_a_path_is_meant_where_it_is_typed(text: str, path: str) -> None:
    there = sent(text)
    assert there.endswith(f" {os.getcwd()}/{path}")
    assert sent(there) == there


@pytest.mark.parametrize(
    "text", ["/config workspace add /a rw", "/config workspace add ~/a", "/config workspace add", "/config model x", "words", "/stpo", ""]
)
def test_all_else_is_sent_as_it_is(text: str) -> None:
    assert sent(text) == text


@given(st.text())
def test_no_text_is_too_odd_to_send(text: str) -> None:
    for each in (text, f"/{text}", f"/config {text}", f"/config workspace add {text}"):
        local(each)
        assert (parse(sent(each)) is None) == (parse(each) is None)


def test_near_misses_are_commands_too_and_answered_as_such() -> None:
    assert is_command("/stpo")
    assert is_command("<@bot> /status")
    assert not is_command("/etc/hosts")
    assert is_help("/help")
    assert not is_help("/hlep")
