"""A message from its JSON object, and how an older form of any file is brought up to date."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import messages
from bubbles.config import version as of_config
from bubbles.cron import jobs
from bubbles.errors import DataError, ProtocolError
from bubbles.messages import Inbound, Outbound, from_dict, migrate, to_dict

LEAST = {"id": "a", "at": 1.0, "channel": "cli", "chat": "c"}


def test_what_its_texts_show() -> None:
    assert doctest.testmod(messages).failed == 0


@pytest.mark.parametrize("cls", [Inbound, Outbound])
def test_a_message_survives_its_object(cls: Any) -> None:
    message = from_dict(cls, LEAST)
    assert from_dict(cls, to_dict(message)) == message
    assert message.version == messages.VERSION


@pytest.mark.parametrize("cls", [Inbound, Outbound])
@pytest.mark.parametrize("found", [99, 0, -1, "1", 1.0, True, None])
def test_a_message_of_another_version_is_refused(cls: Any, found: Any) -> None:
    with pytest.raises(ProtocolError if found == 99 else DataError, match="version"):
        from_dict(cls, {**LEAST, "version": found})


@given(st.integers(1, 6), st.integers(1, 6))
def test_every_step_is_taken_once_and_in_order(found: int, known: int) -> None:
    steps = {n: lambda body, n=n: {**body, "steps": [*body["steps"], n]} for n in range(1, known)}
    body = {"version": found, "steps": []}
    if found > known:
        with pytest.raises(ProtocolError, match=f"a list is of version {found}; this program knows {known}") as refused:
            migrate(body, known, steps, "a list")
        assert "update Bubbles" in refused.value.remedy
    else:
        assert migrate(body, known, steps, "a list") == {"version": known, "steps": list(range(found, known))}
    assert body == {"version": found, "steps": []}


@pytest.mark.parametrize("table", [messages, of_config, jobs])
def test_every_kind_of_file_has_a_step_for_each_older_version(table: Any) -> None:
    assert sorted(table.MIGRATIONS) == list(range(1, table.VERSION))
