"""Chats that were compacted over and over: of any of them a request is made that no vendor takes amiss, and nothing that was said is gone.

In the ordinary suite sixty chats, in the soak (BUBBLES_TEST_SOAK=1) 10 000; each is compacted up to 40 times.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bubbles.kernel import canonical, context
from bubbles.kernel.context import encode
from bubbles.kernel.events import Call
from bubbles.kernel.summary import HEAD, Kept, gather, whole
from bubbles.providers.provider import Capabilities
from bubbles.sessions.history import History, settled
from tests.disasters.soak import SOAK
from tests.kernel.histories import translate

CHATS = int(os.environ.get("BUBBLES_TEST_CHAINS", 10_000 if SOAK else 60))
MOST = 40  # compactions of one chat
SHAPES = (context.Shape(), context.Shape(after_tool="assistant_only"), context.Shape(tools=False), context.Shape(reasoning="require"))
_SEES = Capabilities(
    tools=True, vision=False, cache=True, window_tokens=200_000, output_tokens=0, reasoning="drop", after_tool="user_ok"
)  # fmt: skip


def _turn(random: Random, n: int) -> list[dict[str, Any]]:
    """A turn as a process leaves it: calls side by side, giant results, results that never came, words between, and turns that were stopped."""
    made = [
        canonical.user(
            random.choice((f"fact {n}: never use srv-{n:04d}", f"第{n}个问题：备份在哪里？", f"fact {n} " + "word " * random.randint(1, 60)))
        )
    ]
    for round in range(random.choice((0, 0, 1, 2, 5))):
        calls = [Call(f"c{n}_{round}_{k}", "exec", "{}") for k in range(random.choice((1, 1, 2, 4)))]
        made.append(canonical.assistant(random.choice(("", "I look.")), calls))
        known = calls if random.random() < 0.8 else random.sample(calls, random.randrange(len(calls)))
        made += [canonical.result(call.id, random.choice(("ok", "文" * 60, "line\n" * random.choice((3, 40, 1500))))) for call in known]
        if random.random() < 0.1:
            made.append(canonical.user(f"word {n} in between"))
    return [*made, canonical.assistant(f"done {n}")] if random.random() < 0.9 else made


def _requests(history: History, random: Random, told: Counter[str]) -> None:
    """What would leave now is well-formed, within its budget, and ends with the words that are to be answered."""
    messages = [*map(json.loads, history.lines), canonical.user("the last words")]
    budget = random.choice((1500, 6000, 30_000))
    for shape in random.sample(SHAPES, 2):
        dialect = "strict" if shape.after_tool == "assistant_only" else "anthropic"
        for sent in context.build(messages, shape), context.build(context.fit(messages, budget), shape):
            assert context.check(sent, "openai") == context.check(sent, dialect) == []
            assert sent[-1]["content"].endswith("the last words")
            told["requests"] += 1
    assert context.tokens(context.fit(messages, budget)) <= budget
    assert len({call["id"] for m in context.build(messages) for call in m.get("tool_calls", ())}) == sum(
        len(m.get("tool_calls", ())) for m in context.build(messages)
    )


def test_any_chain_of_compactions_is_sent_and_keeps_its_tail(tmp_path: Path, record_property: Callable[[str, Any], None]) -> None:
    told: Counter[str] = Counter()
    for seed in range(CHATS):
        random, path = Random(seed), tmp_path / "session.jsonl"
        path.unlink(missing_ok=True)
        history = History(path, session="s")
        said: list[dict[str, Any]] = []
        for n in range(random.randint(1, MOST)):
            for _ in range(random.randint(1, 2)):
                turn = settled(_turn(random, len(said)))
                said += [message for message in turn if message["role"] != "tool"]
                history.add_turn([*map(encode, turn)], {"turn": f"t{len(said)}", "outcome": "replied", "messages": [], "at": 0.0})
            before = list(history.lines)
            start = context.split([*map(json.loads, before)], random.choice((0, 200, 1000)))
            if start:
                copied = gather([*map(json.loads, before[:start])], Kept.of(history.copied))
                history.compact(whole(f"summary {n}", copied), len(before) - start, 0.0, copied=copied.body)
                told["compactions"] += 1
                assert history.lines[1:] == before[start + 1 :], "what is kept is kept byte for byte, and in order"
                assert json.loads(history.lines[0])["content"].startswith(f"{HEAD}summary {n}")
                assert json.loads(history.lines[0])["content"].endswith("\n\n" + json.loads(before[start])["content"])
        _requests(history, random, told)
        again = History(path, session="s")
        assert (again.lines, again.copied, again.generation) == (history.lines, history.copied, history.generation)
        again.close()
        in_file = [body for body in map(json.loads, history.file_lines()) if body.get("role") in ("user", "assistant")]
        assert in_file == said, "the file has every word, however often it was summarised"
        if seed % (1 if SOAK else 10) == 0:
            lines = [*map(encode, context.build([*map(json.loads, history.lines), canonical.user("the last words")]))]
            for vendor, faults in translate.VENDORS.items():
                assert faults(lines, b"", _SEES) == [], vendor
                told[f"requests to {vendor}"] += 1
        history.close()
        told["chats"] += 1
    record_property("told", ", ".join(f"{count} {name}" for name, count in told.items()))
    assert told["compactions"] > CHATS


@pytest.mark.parametrize("place", range(1, 6))
@pytest.mark.parametrize("kept", range(6))
def test_a_mark_of_another_hand_inside_a_pair_is_read_as_a_past_that_can_be_sent(tmp_path: Path, place: int, kept: int) -> None:
    """Old data, or a hand's: the mark stands between a call and its result, and keeps as much of it as it likes."""
    path = tmp_path / "session.jsonl"
    history = History(path, session="s")
    turn = [canonical.user("go"), canonical.assistant("", [Call("c1", "exec", "{}"), Call("c2", "exec", "{}")])]
    turn += [canonical.result("c1", "one"), canonical.result("c2", "two"), canonical.assistant("done")]
    history.add_turn([*map(encode, turn)], {"turn": "t", "outcome": "replied", "messages": [], "at": 0.0})
    history.close()
    lines = path.read_bytes().splitlines(keepends=True)
    mark = json.dumps({"meta": "compaction", "summary": "They talked.", "kept": kept, "at": 0.0}).encode() + b"\n"
    path.write_bytes(b"".join([*lines[: 1 + place], mark, *lines[1 + place :]]))
    found = History(path, session="s")
    messages = [*map(json.loads, found.lines), canonical.user("next")]
    for shape in SHAPES:
        assert context.check(context.build(messages, shape), "strict" if shape.after_tool == "assistant_only" else "anthropic") == []
    found.close()


def test_a_provider_that_counts_its_calls_from_nought_in_every_turn_is_paired_turn_by_turn() -> None:
    """call_0 and call_1 in every turn, results in any order: each stands right behind its own call, under an id that comes once."""
    messages: list[dict[str, Any]] = []
    for n in range(6):
        calls = [Call(f"call_{k}", "exec", json.dumps({"n": n, "k": k})) for k in range(2)]
        results = [canonical.result(f"call_{k}", f"result {n}.{k}") for k in range(2)]
        messages += [canonical.user(f"turn {n}"), canonical.assistant("", calls), *(results if n % 2 else results[::-1]), canonical.assistant("seen")]
    built = context.build([*messages, canonical.user("next")])
    asked = {call["id"]: json.loads(call["function"]["arguments"]) for m in built for call in m.get("tool_calls", ())}
    got = {m["tool_call_id"]: m["content"] for m in built if m["role"] == "tool"}
    assert len(asked) == len(got) == 12
    assert all(got[id] == f"result {given['n']}.{given['k']}" for id, given in asked.items())
    for vendor, faults in translate.VENDORS.items():
        assert faults([*map(encode, built)], b"", _SEES) == [], vendor
