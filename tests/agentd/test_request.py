"""A request goes by reference: what modeld puts together from the pieces it was told is the request, whatever happened to the history meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.agentd.request import Past, Prefix, Request, compose
from bubbles.kernel import context
from bubbles.kernel.context import encode
from bubbles.sessions.history import History

DROP, KEEP = context.Shape(), context.Shape(reasoning="keep")
STEPS = st.lists(
    st.sampled_from(["turn", "ask", "failed", "thoughts", "compact", "anew", "system", "restart", "keep", "window"]), min_size=1, max_size=30
)


def user(n: int) -> dict[str, Any]:
    return {"role": "user", "content": f"question {n} 你好"}


def turn(n: int, *, answered: bool = True, reasoning: str = "") -> list[dict[str, Any]]:
    answer = {"role": "assistant", "content": f"answer {n}"} | ({"reasoning_content": reasoning} if reasoning else {})
    return [user(n), answer] if answered else [user(n)]


@settings(max_examples=150)
@given(STEPS)
def test_what_modeld_holds_and_is_told_makes_the_request(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    history = History(tmp_path_factory.mktemp("history") / "session.jsonl", session="s")
    past, prefix, held = Past(), Prefix("s"), list[bytes]()
    shape, system, window = DROP, b'{"role":"system","content":"0"}', 0
    for n, step in enumerate(steps):
        match step:
            case "turn" | "failed" | "thoughts":
                messages = turn(n, answered=step != "failed", reasoning="hm" if step == "thoughts" else "")
                history.add_turn([encode(m) for m in messages], {"turn": f"t{n}", "messages": [{"id": f"m{n}"}], "at": 0.0})
            case "compact":
                history.compact(f"summary {n}", len(history.lines) // 2, 0.0)
            case "anew":
                history.begin_anew(0.0)
            case "system":
                system = encode({"role": "system", "content": str(n)})
            case "restart":
                prefix.sent, held = None, []
            case "keep":
                shape = KEEP if shape == DROP else DROP
            case "window":
                window = 0 if window else 3
        taken = past.of(history, thoughts=shape.reasoning != "drop").within(window)
        for asked in ([user(1000 + n)], [*turn(1000 + n), user(2000 + n)]):
            tail = f"[jobs at {n}]" if n % 2 else ""
            request = compose(system, taken, asked, shape, 0, tail)
            keep = prefix.keep(request)
            assert keep <= len(held)
            held = [*held[:keep], *request.after(keep)]
            prefix.sent = request
            assert held == request.after(0)
            assert not context.check([json.loads(line) for line in held], "strict")
            plain = compose(system, taken, asked, shape, 0).after(0)
            assert held[:-1] == plain[:-1], "what stands behind a request changes nothing before its last message"
            assert json.loads(held[-1])["content"] == json.loads(plain[-1])["content"] + (f"\n\n{tail}" if tail else "")
            assert plain[-1] == encode(asked[-1]) or plain[-1].endswith(encode(asked[-1])[-20:])


def test_a_long_past_is_neither_looked_at_again_nor_told_again(tmp_path: Path) -> None:
    history = History(tmp_path / "session.jsonl", session="s")
    for n in range(50):
        history.add_turn([encode(m) for m in turn(n)], {"turn": f"t{n}", "messages": [], "at": 0.0})
    past, prefix = Past(), Prefix("s")
    first = compose(b"{}", past.of(history, thoughts=False), [user(100)], DROP, 0)
    prefix.sent = first
    history.add_turn([encode(m) for m in turn(100)], {"turn": "t", "messages": [], "at": 0.0})
    second = compose(b"{}", past.of(history, thoughts=False), [user(101)], DROP, 0)
    assert second.past is first.past
    assert prefix.keep(second) == 1 + 100 + 1, "the prompt, the past, and the words that were asked about"
    assert second.after(prefix.keep(second)) == [encode(turn(100)[1]), encode(user(101))]
    assert past.tokens == sum(context.tokens(line.decode()) for line in history.lines)
    assert past.size == sum(map(len, history.lines))


@given(upto=st.integers(0, 6), tail=st.integers(0, 4), keep=st.integers(0, 12))
def test_after_is_a_slice(upto: int, tail: int, keep: int) -> None:
    lines = [b"h", *(b"p%d" % n for n in range(upto)), *(b"t%d" % n for n in range(tail))]
    request = Request(b"h", [*lines[1 : 1 + upto], b"not of it"], upto, lines[1 + upto :])
    assert request.after(keep) == lines[keep:]
