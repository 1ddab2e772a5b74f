"""What of a person's text is a command, and what is words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.agentd.spelling import ALIASES, COMMANDS, Command, parse


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/stop", ("stop", "")),
        ("  /status \n", ("status", "")),
        ("/Stop", ("stop", "")),
        ("/stop!", ("stop", "")),
        ("/stop。", ("stop", "")),
        ("／stop", ("stop", "")),
        ("/status@my_bot", ("status", "")),
        ("/config@bot model x", ("config", "model x")),
        ("<@U123> /stop", ("stop", "")),
        ("<@ou_1><@ou_2>，／stop", ("stop", "")),
        ("<@U123>: /model gpt", ("model", "gpt")),
        ("/config system_prompt Be\nbrief.", ("config", "system_prompt Be\nbrief.")),
        ("/config\tmodel\tx", ("config", "model\tx")),
        ("/session  two words ", ("session", "two words")),
        ("/stop please, at once", ("stop", "please, at once")),
        ("/start", ("help", "")),
        ("/cancel", ("stop", "")),
    ],
)
def test_a_command(text: str, wanted: tuple[str, str]) -> None:
    assert parse(text) == Command(*wanted)


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "//stop", "/ stop", "/etc/hosts is odd", "/etc", "/tmp", "/usr/bin/stop", "/home", "/2 of them", "what is /help?", "stop", "exit",
        "/stop-the-train", "/cancel my flight", "/start the engine", "/停止", "<@U123> what about /stop", "1/status", "/compare these two", "-/stop",
        "/hosts", "/opt is full", "/var", "/root",
    ],
)  # fmt: skip
def test_words(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [("/stpo", "stop"), ("/nwe", "new"), ("/stats", "status"), ("/modle x", "model"), ("/confg", "config"), ("/sesion a", "session"),
     ("/hlep", "help"), ("/compct", "compact"), ("/promt", "prompt"), ("/rety", "retry")],
)  # fmt: skip
def test_a_near_miss_names_what_was_meant(text: str, name: str) -> None:
    found = parse(text)
    assert found is not None
    assert (found.name, found.typed) == (name, text[1:].split()[0])


@given(st.text())
def test_any_text_is_one_or_the_other(text: str) -> None:
    for each in (text, f"/{text}", f"<@x> /{text}", f"/stop {text}", f"/config {text}"):
        found = parse(each)
        assert found is None or found.name in COMMANDS


@given(st.sampled_from(sorted(COMMANDS)), st.text(alphabet=st.characters(codec="utf-8"), max_size=40))
def test_a_name_with_anything_behind_it_is_that_command(name: str, rest: str) -> None:
    assert parse(f"/{name} {rest}") == Command(name, rest.strip())


@pytest.mark.parametrize(
    "lead", ["<@a> " * 50_000, " " * 500_000 + "x", "/" * 500_000, "/stop" + "." * 500_000 + "x", "/stop@" + "." * 500_000 + "#", "/" + "a" * 500_000]
)
def test_a_long_text_takes_no_long_time(lead: str) -> None:
    assert parse(lead) is None


def test_aliases_lead_to_commands_and_hide_none() -> None:
    assert set(ALIASES.values()) <= set(COMMANDS)
    assert not set(ALIASES) & set(COMMANDS)
