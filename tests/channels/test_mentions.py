"""Mentions in words, and none in code."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.channels.mentions import escaped, found, replaced

BITS = ["<@7>", "<@ou_1>", "<@", ">", "`", "``", "```", "\n", "\n\n", "~~~\n", "```py\n", "word ", "<@a b>", "<@@x:y>", "@everyone"]
texts = st.lists(st.sampled_from(BITS), max_size=30).map("".join)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("hi <@7>", ["7"]),
        ("<@7><@7> <@8>", ["7", "8"]),
        ("`<@7>`", []),
        ("``a ` <@7>`` <@8>", ["8"]),
        ("a ` tick <@7>", ["7"]),
        ("a ` tick\n\n<@7> ` again", ["7"]),
        ("```\n<@7>\n```\n<@8>", ["8"]),
        ("~~~\n<@7>\n```\n<@8>", []),
        ("```not `a fence` <@7>", ["7"]),
        ("<@> <@a b> <@", []),
        ("<@" + "9" * 201 + ">", []),
        ("<@@user:example.org> <@1@s.example>", ["@user:example.org", "1@s.example"]),
    ],
)
def test_who_is_mentioned(text: str, ids: list[str]) -> None:
    assert found(text) == ids


@given(texts)
def test_what_is_replaced_by_itself_is_what_it_was(text: str) -> None:
    assert replaced(text, "<@{}>".format) == text


@given(texts)
def test_whoever_is_found_is_replaced_and_nobody_else(text: str) -> None:
    seen: list[str] = []
    replaced(text, lambda id: seen.append(id) or "")
    assert list(dict.fromkeys(seen)) == found(text)


@given(texts)
def test_words_of_a_person_mention_nobody(text: str) -> None:
    assert found(escaped(text)) == []
