"""Who is heard and when: a table a row a case, and what holds for any message whatever."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.policy import EDIT_S, Rules, Verdict, judge
from bubbles.config.channels import Email, Mochat, Slack, Telegram
from bubbles.messages import Inbound, Sender

NOW = 1_000_000.0
OWNER, GUEST, STRANGER = Sender("1", "Ann"), Sender("2", "Bo"), Sender("3", "小明")
KNOWN = Rules(owners=frozenset({"1"}), guests=frozenset({"2"}))
OPEN = replace(KNOWN, group_policy="open")
LISTED = replace(KNOWN, group_policy="allowlist", groups=frozenset({"g"}))
PUBLIC = replace(KNOWN, groups=frozenset({"g"}))


def said(sender: Sender, *, group: bool = False, mentioned: bool = False, chat: str = "", age_s: float = 0, edit_of: str = "") -> Inbound:
    chat = chat or ("g" if group else sender.id)
    return Inbound("t-1", NOW - age_s, "telegram", chat, "hi", is_group=group, mentioned=mentioned, sender=sender, edit_of=edit_of)


BOT = Sender("1", "Bot", bot=True)
LATE = {"edit_of": "m1", "age_s": EDIT_S + 1}
ROWS: list[tuple[Inbound, Rules, Verdict]] = [
    # private chats
    (said(OWNER), KNOWN, Verdict.TAKE),
    (said(GUEST), KNOWN, Verdict.TAKE),
    (said(STRANGER), KNOWN, Verdict.PAIR),
    (said(STRANGER), Rules(), Verdict.PAIR),
    (said(STRANGER), replace(KNOWN, pairs=False), Verdict.DROP),
    (said(STRANGER), replace(KNOWN, everybody=True), Verdict.TAKE),
    (said(STRANGER), replace(KNOWN, direct="open"), Verdict.TAKE),
    (said(OWNER), replace(KNOWN, direct="off"), Verdict.DROP),
    (said(BOT), KNOWN, Verdict.DROP),
    (said(BOT), replace(KNOWN, everybody=True), Verdict.DROP),
    (said(Sender()), KNOWN, Verdict.DROP),
    (said(Sender()), replace(KNOWN, guests=frozenset({""})), Verdict.DROP),
    (said(OWNER, age_s=86_400), KNOWN, Verdict.TAKE),  # it waited while we were down
    (said(OWNER, edit_of="m1", age_s=EDIT_S - 1), KNOWN, Verdict.TAKE),
    (said(OWNER, **LATE), KNOWN, Verdict.OVERHEAR),
    (said(STRANGER, edit_of="m1"), KNOWN, Verdict.DROP),
    # groups, by default
    (said(OWNER, group=True, mentioned=True), KNOWN, Verdict.TAKE),
    (said(GUEST, group=True, mentioned=True), KNOWN, Verdict.TAKE),
    (said(OWNER, group=True), KNOWN, Verdict.DROP),
    (said(OWNER, group=True), replace(KNOWN, overhear=True), Verdict.OVERHEAR),
    (said(STRANGER, group=True, mentioned=True), KNOWN, Verdict.DROP),
    (said(STRANGER, group=True, mentioned=True), replace(KNOWN, overhear=True), Verdict.OVERHEAR),
    (said(BOT, group=True, mentioned=True), KNOWN, Verdict.DROP),
    (said(BOT, group=True, mentioned=True), replace(OPEN, overhear=True), Verdict.OVERHEAR),
    (said(OWNER, group=True, mentioned=True, **LATE), KNOWN, Verdict.DROP),
    (said(OWNER, group=True, mentioned=True, **LATE), replace(KNOWN, overhear=True), Verdict.OVERHEAR),
    (said(OWNER, group=True, mentioned=True), replace(KNOWN, direct="off"), Verdict.TAKE),
    (said(STRANGER, group=True, mentioned=True), replace(KNOWN, direct="open"), Verdict.DROP),
    # a group in which everybody may speak
    (said(STRANGER, group=True, mentioned=True), PUBLIC, Verdict.TAKE),
    (said(STRANGER, group=True), PUBLIC, Verdict.DROP),
    (said(STRANGER, group=True, mentioned=True, chat="h"), PUBLIC, Verdict.DROP),
    (said(Sender(), group=True, mentioned=True), PUBLIC, Verdict.TAKE),  # who writes for the group, without a name
    # open: no mention is needed
    (said(OWNER, group=True), OPEN, Verdict.TAKE),
    (said(STRANGER, group=True), OPEN, Verdict.DROP),
    (said(STRANGER, group=True), replace(OPEN, groups=frozenset({"g"})), Verdict.TAKE),
    # allowlist: no other group is heard, and a mention is needed
    (said(STRANGER, group=True, mentioned=True), LISTED, Verdict.TAKE),
    (said(OWNER, group=True), LISTED, Verdict.DROP),
    (said(OWNER, group=True, mentioned=True, chat="h"), LISTED, Verdict.DROP),
    (said(OWNER, group=True, mentioned=True, chat="h"), replace(LISTED, overhear=True), Verdict.DROP),
    (said(OWNER), LISTED, Verdict.TAKE),
]


@pytest.mark.parametrize(("inbound", "rules", "wanted"), ROWS)
def test_what_becomes_of_a_message(inbound: Inbound, rules: Rules, wanted: Verdict) -> None:
    assert judge(inbound, rules, NOW) is wanted


def test_a_group_where_nobody_who_may_speak_ever_spoke_is_not_kept() -> None:
    stranger = said(STRANGER, group=True, mentioned=True)
    rules = replace(KNOWN, overhear=True)
    assert [judge(stranger, rules, NOW, known=known) for known in (False, True)] == [Verdict.DROP, Verdict.OVERHEAR]
    assert judge(said(OWNER, group=True), rules, NOW, known=False) is Verdict.OVERHEAR


_ids = st.sampled_from(["", "1", "2", "3", "*"])
_rules = st.builds(
    Rules,
    owners=st.frozensets(_ids),
    guests=st.frozensets(_ids),
    direct=st.sampled_from(["open", "allowlist", "off"]),
    group_policy=st.sampled_from(["mention", "open", "allowlist"]),
    groups=st.frozensets(st.sampled_from(["g", "h"])),
    overhear=st.booleans(),
    pairs=st.booleans(),
)
_said = st.builds(
    said,
    st.builds(Sender, id=_ids, owner=st.booleans(), bot=st.booleans()),
    group=st.booleans(),
    mentioned=st.booleans(),
    chat=st.sampled_from(["g", "h"]),
    age_s=st.floats(-1e6, 1e6),
    edit_of=st.sampled_from(["", "m"]),
)


@given(_said, _rules, st.booleans())
def test_no_message_wakes_anything_unless_somebody_was_named_for_it(inbound: Inbound, rules: Rules, known: bool) -> None:
    verdict = judge(inbound, rules, NOW, known=known)
    if verdict is Verdict.TAKE:
        assert not inbound.sender.bot
        by_place = inbound.chat in rules.groups if inbound.is_group else rules.direct == "open"
        assert by_place or (inbound.sender.id and inbound.sender.id in rules.owners | rules.guests)
        assert not inbound.is_group or inbound.mentioned or rules.group_policy == "open"
    if verdict is Verdict.PAIR:
        assert inbound.sender.id
        assert not inbound.is_group
    if verdict is Verdict.OVERHEAR:
        assert rules.overhear or inbound.edit_of


@given(_said, _rules)
def test_what_a_message_says_of_its_own_rights_changes_nothing(inbound: Inbound, rules: Rules) -> None:
    claimed = replace(inbound, sender=replace(inbound.sender, owner=not inbound.sender.owner))
    assert judge(claimed, rules, NOW) is judge(inbound, rules, NOW)


def test_the_settings_of_a_section() -> None:
    Telegram.not_built, Slack.not_built, Mochat.not_built, Email.not_built = before = [""] * 4
    try:
        telegram = Telegram(owners=["1"], allow_from=["2", "*", 3], group_policy="open", group_allow_from=["g"], overhear=True)
        slack = Slack(dm={"policy": "open"})
        mochat, email = Mochat(mention={"require_in_groups": False}), Email(allow_from=["Ann@Example.org"], owners=["ME@example.org"])
    finally:
        for cls in (Telegram, Slack, Mochat, Email):
            del cls.not_built
    assert before
    assert Rules.of(telegram) == Rules(frozenset({"1"}), frozenset({"2", "3"}), True, "allowlist", "open", frozenset({"g"}), True)
    assert (Rules.of(slack).direct, Rules.of(Slack()).direct, Rules.of(Telegram()).direct) == ("open", "allowlist", "allowlist")
    assert (Rules.of(mochat).group_policy, Rules.of(Mochat()).group_policy) == ("open", "mention")
    assert (Rules.of(email, pairs=False).guests, Rules.of(email).owners) == (frozenset({"ann@example.org"}), frozenset({"me@example.org"}))
    assert Rules.of(Telegram()) == Rules()
