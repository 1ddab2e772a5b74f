"""Whose session a chat's words enter, and where that is written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles import config
from bubbles.agentd.chats import Chats
from bubbles.errors import Misconfigured
from bubbles.messages import Address, Inbound, Sender
from bubbles.paths import Home

PEOPLE = {"ann": ["telegram:42", "feishu:ou_ann"]}


def chats(home: Home, mode: str, people: dict[str, list[str]] | None = None) -> Chats:
    config.save(home, {"channels.session_mode": mode, "channels.people": people or {}})
    return Chats(home, config.load(home, "channels").channels)


def message(channel: str = "telegram", chat: str = "42", *, sender: str = "", owner: bool = False, is_group: bool = False) -> Inbound:
    return Inbound(id="m", at=0.0, channel=channel, chat=chat, text="hi", is_group=is_group, sender=Sender(sender, owner=owner))


def test_a_chat_has_a_session_of_its_own(home: Home) -> None:
    own = chats(home, "channel")
    assert own.key(message()) == "telegram-42"
    assert own.key(message(owner=True)) == "telegram-42"
    assert own.key(message("feishu", "oc_1", is_group=True)) == "feishu-oc_1"


def test_a_person_has_one_everywhere_and_groups_keep_theirs(home: Home) -> None:
    own = chats(home, "user", PEOPLE)
    assert own.key(message()) == own.key(message("feishu", "oc_7", sender="ou_ann")) == "ann"
    assert own.key(message("feishu", "oc_1", sender="ou_ann", is_group=True)) == "feishu-oc_1"
    assert own.key(message("slack", "D1", sender="U1")) == "slack-D1", "a stranger"
    assert own.key(message("slack", "D2", sender="U2", owner=True)) == "main", "the owner enters by himself, and meets his terminal there"


def test_one_for_all(home: Home) -> None:
    own = chats(home, "global")
    assert own.key(message()) == own.key(message("feishu", "oc_1", is_group=True)) == "main"


def test_a_binding_outlives_the_program_and_binds_no_group(home: Home) -> None:
    own = chats(home, "channel")
    own.bind(Address("telegram", "42"), "work/东京")
    for each in (own, chats(home, "channel")):
        assert each.session_of(Address("telegram", "42")) == "work/东京"
        assert each.key(message()).startswith("work_")
        assert each.key(message(is_group=True)) == "telegram-42"
    own.bind(Address("telegram", "42"), None)
    assert chats(home, "channel").key(message()) == "telegram-42"
    assert home.chats.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"chats": {"a:b": 1}}', '{"version": 99, "chats": {}}\n', "\xff\n"])
def test_a_broken_file_is_named_and_left_alone(home: Home, text: str) -> None:
    home.chats.write_text(text)
    with pytest.raises(Misconfigured, match="chats.json"):
        chats(home, "channel")
    assert home.chats.read_text() == text


@given(channel=st.from_regex(r"[a-z]{1,8}", fullmatch=True), chat=st.text(min_size=1, max_size=60), name=st.text(min_size=1, max_size=60))
def test_any_name_of_a_session_comes_back(tmp_path_factory: pytest.TempPathFactory, channel: str, chat: str, name: str) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    own = chats(home, "channel")
    own.bind(Address(channel, chat), name)
    assert chats(home, "channel").session_of(Address(channel, chat)) == name
