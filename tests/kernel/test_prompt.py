"""The prompt: short, the same from turn to turn, bounded whatever people and models let grow; and headers that nobody can forge."""

from __future__ import annotations

from datetime import timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.kernel import prompt
from bubbles.kernel.context import tokens
from tests.kernel.test_dialects import call, calls, result, said, user

ANY = st.text(st.characters(exclude_categories=()))


def whole(**changed: object) -> str:
    given = {
        "base": None,
        "language": "auto",
        "soul": "You are dry.",
        "memory": "- Ann lives in Rome",
        "skills": [("pdf", "Make and read PDF")],
        "context": {"session": "work"},
        "tools": True,
        "extra": "",
    }
    return prompt.system(**(given | changed))  # type: ignore[arg-type]


def test_the_base_is_short() -> None:
    assert tokens(prompt.BASE) < 700
    assert tokens(prompt.BASE_WITHOUT_TOOLS) < 150


def test_the_parts_stand_in_their_order() -> None:
    text = whole(extra="Be brief.")
    parts = ["You are Bubbles", "Be brief.", "You are dry.", "- Ann lives in Rome", "- pdf: Make and read PDF", "- session: work"]
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)


def test_what_is_empty_is_not_there() -> None:
    text = whole(soul=" \n", memory="", skills=[], context={}, extra="")
    assert "#" not in text.replace(prompt.BASE, "")


def test_the_owner_may_replace_the_base() -> None:
    assert whole(base="You are Max.").startswith("You are Max.\n\nAnswer in the language")


def test_a_model_without_tools_is_not_told_of_any() -> None:
    text = whole(tools=False)
    assert text.startswith(prompt.BASE_WITHOUT_TOOLS)
    assert "pdf" not in text
    assert "stay_silent" not in text


def test_the_language_is_told() -> None:
    assert "中文" in whole(language="zh")
    assert "Answer in English" in whole(language="en")
    assert whole(language="klingon") == whole(language="auto")


@pytest.mark.parametrize("room", [2000, 12_000])
def test_what_grows_is_bounded(room: int) -> None:
    text = whole(memory="fact\n" * 50_000, soul="I am\n" * 50_000, skills=[(f"skill{n}", "does " * 200) for n in range(500)], room_tokens=room)
    assert tokens(text) <= room + 200
    assert text.count("characters left out") == 3


@given(ANY, ANY, ANY)
def test_the_prompt_can_always_be_sent(soul: str, memory: str, name: str) -> None:
    text = whole(soul=soul, memory=memory, skills=[(name, name)], context={name: name})
    text.encode()
    assert "\0" not in text


def test_a_stamp_tells_when_where_and_who() -> None:
    at = 1796038800.0
    assert prompt.stamp(at, ZoneInfo("Europe/Berlin"), "telegram", "Ann", False, True) == "[Mon 2026-11-30 12:40 CET · telegram · Ann]"
    assert prompt.stamp(at, ZoneInfo("Asia/Shanghai"), "feishu", "小王", True, False) == "[Mon 2026-11-30 19:40 CST · feishu group · 小王 · guest]"
    assert prompt.stamp(at, timezone(timedelta(hours=5, minutes=30)), "cli", "", False, True) == "[Mon 2026-11-30 17:10 UTC+05:30 · cli]"


@given(ANY, st.floats(0, 4e9), st.booleans(), st.booleans())
def test_no_name_breaks_out_of_its_stamp(name: str, at: float, is_group: bool, owner: bool) -> None:
    stamp = prompt.stamp(at, None, "telegram", name, is_group, owner)
    assert stamp.count("[") == stamp.count("]") == 1
    assert stamp.splitlines() == [stamp]
    assert stamp.count("·") <= 3
    assert owner or stamp.endswith("· guest]")
    assert prompt.unstamped(stamp) == f"> {stamp}"


def test_a_summary_without_a_model_says_who_said_what() -> None:
    history = [user("How large is work?"), calls(call(), content="I look."), result(content="12K"), said("12 kB."), user("word " * 500)]
    text = prompt.deterministic_summary(history)
    assert "user: How large is work?" in text
    assert "you: 12 kB." in text
    assert "exec 1 times" in text
    assert "12K" not in text
    assert tokens(prompt.deterministic_summary(history * 500)) <= prompt.SUMMARY_TOKENS
    assert prompt.deterministic_summary([])


@pytest.mark.parametrize("network", ["none", "public", "host"])
@pytest.mark.parametrize("unattended", ["none", "public", "host"])
def test_a_jail_is_told_in_one_line_that_is_not_cut(network: str, unattended: str) -> None:
    told = prompt.sandbox("bwrap", network, unattended)
    assert ("no person began" in told) == (network != unattended)
    assert f"- sandbox: {told}" in prompt.system(None, "en", "", "", [], {"sandbox": told}, True, "").splitlines()


def test_a_small_window_gets_a_prompt_of_half_the_weight_that_says_what_matters() -> None:
    small, whole = (prompt.system(base, "auto", "", "", [], {}, True, "") for base in (prompt.BASE_SMALL, None))
    assert tokens(small) < tokens(whole) * 0.6
    for word in ("work/", "../data/", "../MEMORY.md", "SKILL.md", "Interrupted", "bracketed line", "stay_silent", "data"):
        assert word in small
        assert word in whole
