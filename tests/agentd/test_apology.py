"""Who is told what: every case of the policy on errors."""

from __future__ import annotations

import pytest

from bubbles.agentd.apology import language_of, notice


def told(outcome: str, **changed: object) -> str:
    usual: dict[str, object] = {"awaited": True, "retries": 2, "steps": 40, "language": "en", "last_at": float("-inf"), "now": 1000.0}
    return notice(outcome, **{**usual, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("category", ["rate_limited", "model_down", "context_too_long", "not_authorized", "rejected"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_model_error_names_its_category_and_the_retries_and_nothing_more(category: str, language: str) -> None:
    text = told(f"failed:{category}", language=language)
    assert "2" in text
    assert text != told("failed:bug", language=language)
    assert text not in {told(f"failed:{other}", language=language) for other in ("rate_limited", "rejected", "model_down") if other != category}


def test_a_failure_without_retries_does_not_speak_of_any() -> None:
    assert "retr" not in told("failed:not_authorized", retries=0)
    assert "1 retry" in told("failed:rate_limited", retries=1)


def test_every_other_error_has_one_fixed_text() -> None:
    assert told("failed:bug") == told("failed:gave_up") == told("failed:anything at all")


@pytest.mark.parametrize("outcome", ["failed:rate_limited", "failed:bug", "failed:empty"])
def test_nobody_is_told_of_a_turn_that_nobody_asked_for(outcome: str) -> None:
    assert told(outcome, awaited=False) == ""


@pytest.mark.parametrize(("last_at", "silent"), [(1000.0, True), (940.1, True), (940.0, False), (0.0, False), (1500.0, False)])
def test_one_notice_a_minute(last_at: float, silent: bool) -> None:
    assert (told("failed:bug", last_at=last_at) == "") is silent


def test_the_iteration_limit_is_no_error() -> None:
    assert "40" in told("limit", last_at=999.0)
    assert "40" in told("limit", awaited=False)


@pytest.mark.parametrize("outcome", ["replied", "silent"])
def test_an_answer_needs_no_notice(outcome: str) -> None:
    assert told(outcome) == ""


def test_the_language_is_the_setting_or_that_of_the_words() -> None:
    assert language_of("auto", "今天天气怎么样") == "zh"
    assert language_of("auto", "how are you") == "en"
    assert language_of("en", "你好") == "en"
