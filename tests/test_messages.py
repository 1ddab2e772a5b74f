"""A message from its JSON object, and how an older form of any file is brought up to date."""

from __future__ import annotations

import doctest
from datetime import timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import messages
from bubbles.config import version as of_config
from bubbles.cron import jobs
from bubbles.errors import DataError, ProtocolError
from bubbles.kernel import prompt
from bubbles.messages import Inbound, Outbound, from_dict, from_line, migrate, to_dict, to_line

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


IMPOSSIBLE = [
    *[("at", value) for value in (float("nan"), float("inf"), -float("inf"), 1e300, -1e18, -1, 10**400, 253402300800, "1", True, None, [1])],
    *[("sender", value) for value in (None, [], "Ann", 7)],
    *[(f"sender.{name}", {name: value}) for name, value in (("id", 7), ("name", ["Ann"]), ("name", None), ("owner", 1), ("owner", "yes"))],
    *[("media", value) for value in (None, {}, "f.png")],
    *[(r"media\[0\]", [value]) for value in (None, "f.png", ["f.png"])],
    *[(r"media\[1\].path", [{"path": "a"}, value]) for value in ({"path": 5}, {"name": "x"}, {}, {"path": ""}, {"path": None})],
    *[(r"media\[0\]." + name, [{"path": "a", name: value}]) for name, value in (("name", 1), ("type", []), ("size", 1.5))],
    *[(r"media\[0\].size", [{"path": "a", "size": value}]) for value in (-1, True, 10**400)],
    *[(name, value) for name in ("id", "channel", "chat", "text", "thread", "session", "job", "origin") for value in (7, None, ["x"], {})],
]


@pytest.mark.parametrize("cls", [Inbound, Outbound])
@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE, ids=lambda value: repr(value)[:30])
def test_a_field_that_cannot_be_is_refused_by_its_name(cls: Any, name: str, value: Any) -> None:
    body = {**LEAST, name.partition(".")[0].partition("\\")[0]: value}
    if name.startswith("sender") and cls is Outbound:
        assert from_dict(cls, body) == from_dict(cls, LEAST)  # it has no such field
        return
    with pytest.raises(DataError, match=name):
        from_dict(cls, body)


@pytest.mark.parametrize("character", ["x", "é", "文", "😀"])
@pytest.mark.parametrize("name", ["text", "quote"])
def test_what_is_too_long_to_be_said_is_refused(character: str, name: str) -> None:
    most = character * (messages.TEXT_MOST // len(character.encode()))
    assert getattr(from_dict(Inbound, {**LEAST, name: most}), name) == most
    with pytest.raises(DataError, match="put it in a file"):
        from_dict(Inbound, {**LEAST, name: most + character})
    if name == "text":
        assert from_dict(Outbound, {**LEAST, "text": most + character}).text == most + character  # a channel cuts it into pieces


parts = st.sampled_from(["id", "name", "path", "owner", "size", "type"]) | st.text()
any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([10**400, "\ud800", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(parts, inner, max_size=4),
    max_leaves=8,
)
bodies = st.dictionaries(st.sampled_from(sorted(Inbound.__dataclass_fields__)) | st.text(), any_json, max_size=6)
files = st.fixed_dictionaries({"path": st.text(min_size=1)}, optional={"name": st.text(), "size": st.integers(0, 2**63 - 1)})
good = st.fixed_dictionaries(
    {"id": st.text(), "at": st.floats(0, messages.LATEST) | st.sampled_from([0, messages.LATEST]), "channel": st.text(), "chat": st.text()},
    optional={
        "text": st.text(),
        "sender": st.fixed_dictionaries({}, optional={"id": st.text(), "name": st.text(), "owner": st.booleans(), "bot": st.booleans()}),
        "media": st.lists(files, max_size=2),
    },
)
zones = st.none() | st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(good | bodies | st.tuples(good, bodies).map(lambda two: two[0] | two[1]), zones)
def test_any_object_is_a_message_that_can_be_stamped_and_written_or_is_refused(body: Any, zone: Any) -> None:
    for cls in (Inbound, Outbound):
        try:
            message: Any = from_dict(cls, body)
        except (DataError, ProtocolError):
            continue
        assert from_dict(cls, from_line(to_line(to_dict(message)))) == message
        assert "\ud800" not in str(message)
        if cls is Inbound:
            stamp = prompt.stamp(message.at, zone, message.channel, message.sender.name, message.is_group, message.sender.owner)
            stamp.encode()
