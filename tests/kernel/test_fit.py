"""Messages made lighter: what is shortened first, what is left out, and what never is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.kernel.context import build, check, fit, shrink, split, tokens
from tests.kernel.test_dialects import SYSTEM, call, calls, result, said, user
from tests.kernel.weighing import weighing

TURNS = st.lists(
    st.one_of(
        st.integers(1, 400).map(lambda n: [user("word " * n), said("fine")]),
        st.integers(1, 400).map(lambda n: [user("look"), calls(call()), result(content="line\n" * n), said("seen")]),
        st.integers(1, 99).map(lambda n: [user("write"), calls(call(arguments='{"text":"' + "x " * n + '"}')), result(), user("and?"), said("done")]),
        st.just([user("stop"), calls(call()), result(content="Stopped by the user.")]),
        st.just([user("no answer")]),
    ),
    max_size=8,
).map(lambda turns: [message for turn in turns for message in turn] + [user("last")])


def spoken(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


@given(TURNS, st.integers(0, 3000))
def test_fit_keeps_to_the_budget_and_the_last_words(messages: list[dict[str, Any]], budget: int) -> None:
    kept = fit(messages, budget)
    assert spoken(kept)[-1] == "last"
    assert tokens(kept) <= max(budget, 160)
    assert check(build(kept)) == []
    if tokens(messages) <= budget:
        assert kept == messages


@given(TURNS, st.integers(0, 3000))
def test_shrink_leaves_out_no_message_and_no_words(messages: list[dict[str, Any]], budget: int) -> None:
    kept = shrink(messages, budget)
    assert [message["role"] for message in kept] == [message["role"] for message in messages]
    assert spoken(kept) == spoken(messages)
    assert tokens(kept) <= tokens(messages)
    assert check(build(kept)) == []


@given(TURNS, st.integers(0, 3000))
def test_split_is_at_the_beginning_of_words(messages: list[dict[str, Any]], keep: int) -> None:
    place = split(messages, keep)
    assert place == 0 or (messages[place]["role"] == "user" and messages[place - 1]["role"] != "user")
    assert spoken(messages[place:])[-1] == "last"
    if tokens(messages[place:]) > keep:  # then nothing could be split off that stretch
        roles = [message["role"] for message in messages[place:]]
        assert all(before == "user" for before, role in zip(roles, roles[1:], strict=False) if role == "user")


def test_the_oldest_results_are_shortened_first() -> None:
    big = "line of output\n" * 1000
    history = [user(), *(message for n in range(8) for message in (calls(call(f"c{n}")), result(f"c{n}", big)))]
    kept = shrink(history, tokens(history) // 2)
    sizes = [len(message["content"]) for message in kept if message["role"] == "tool"]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1] == len(big)
    assert tokens(kept) <= tokens(history) // 2


def test_arguments_and_thoughts_are_shortened_too() -> None:
    long = '{"path":"a","text":"' + "word " * 5000 + '"}'
    odd = '{"rows":[' + "1," * 5000 + "1]}"
    history = [
        user(),
        calls(call("c1", arguments=long), call("c2", arguments=odd)) | {"reasoning_content": "hm " * 5000},
        result("c1"),
        result("c2"),
        *[user(), said()] * 4,
        user(),
    ]
    kept = shrink(history, 600)
    assert tokens(kept) <= 600
    first, second = (one["function"]["arguments"] for one in kept[1]["tool_calls"])
    assert first.startswith('{"path":"a","text":"word')
    assert second == '{"left_out":"10012 characters"}'
    assert check(build(kept)) == []


def test_turns_are_left_out_whole_from_the_oldest() -> None:
    history = [SYSTEM, user("one " * 100), said(), user("two " * 100), calls(call()), result(), said(), user("three")]
    assert fit(history, 150) == [SYSTEM, *history[3:]]
    assert fit(history, 60) == [SYSTEM, user("three")]


def test_words_too_long_for_any_window_are_cut_visibly() -> None:
    kept = fit([user("old"), said(), user("word " * 100_000)], 1000)
    assert len(kept) == 1
    assert tokens(kept) <= 1000
    assert "characters left out" in kept[0]["content"]


def test_split_keeps_whole_turns_by_weight() -> None:
    history = [message for n in range(10) for message in (user(f"{n} " + "word " * 90), said("fine"))]
    place = split(history, 500)
    assert place == 12
    assert split(history, 10**6) == 0
    assert split(history, 1) == 18
    assert split([], 5) == split([said()], 5) == 0


def test_split_does_not_cut_a_turn_where_somebody_joined_it() -> None:
    turn = [user("task"), calls(call()), result(), user("joined"), said("done")]
    history = [user("before " * 50), said(), *turn]
    assert split(history, tokens(turn)) == 2
    assert split(history, tokens(turn) - 1) == 5


@pytest.mark.parametrize("budget", [100, 20_000, 100_000])
@pytest.mark.parametrize("text", ["some words here\n", "文", "x", "\u0301"])
def test_what_is_large_is_fitted_by_looking_at_a_part_of_it(text: str, budget: int) -> None:
    huge = text * (1_000_000 // len(text))
    worked = [user("look"), calls(call()), result(content=huge), said("seen"), user("go on")]
    for messages in ([user(huge)], worked, [user("a"), said("b"), user(huge)]):
        with weighing() as count:
            kept = fit(messages, budget)
        assert tokens(kept) <= budget
        assert count.characters < 400_000
        with weighing() as count:
            split(messages, budget)
        assert count.characters < 50_000


def test_what_is_large_is_cut_and_what_is_small_beside_it_stays() -> None:
    kept = fit([user("small"), user("word " * 200_000), user("small too")], 1000)
    assert [kept[0], kept[2]] == [user("small"), user("small too")]
    assert 900 < tokens(kept) <= 1000


def test_one_turn_of_three_hundred_calls_is_cut_inside_at_a_closed_pair() -> None:
    work = [m for n in range(300) for m in (calls(call(f"c{n}", arguments=f'{{"command":"ping host-{n:03d}"}}')), result(f"c{n}", "out " * 60))]
    history = [user("before"), said("yes"), user("Check all hosts."), *work]
    for budget in (2000, 6000, 12_000, 20_000):
        kept = fit(history, budget)
        assert 0.9 * budget < tokens(kept) <= budget
        assert check(build(kept), "anthropic") == []
        assert kept[0]["content"].startswith("Check all hosts.\n\n(Earlier calls of this turn and their results are left out: exec ")
        newest = len(kept) - 1
        assert [message["role"] for message in kept[1:]] == ["assistant", "tool"] * (newest // 2)
        assert kept[-2] == history[-2]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 400), st.booleans()), min_size=1, max_size=30), st.integers(600, 6000))
def test_a_turn_of_calls_is_within_the_budget_and_whole_in_its_words(rounds: list[tuple[int, int, bool]], budget: int) -> None:
    history = [user("task")]
    for n, (count, size, joined) in enumerate(rounds):
        ids = [f"c{n}_{k}" for k in range(count)]
        history += [calls(*map(call, ids)), *(result(id, "out " * size) for id in ids), *([user(f"word {n}")] if joined else [])]
    kept = fit(history, budget)
    assert tokens(kept) <= max(budget, 900)
    assert check(build(kept), "anthropic") == []
    said_of = "\n".join(spoken(kept))
    last = next(n for n, message in reversed([*enumerate(history)]) if message["role"] == "user")
    assert history[last]["content"] in said_of
    if tokens(history) <= budget:
        assert kept == history
