"""The judge sees each kind of problem, and none where there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.judge import Evidence, judge
from tests.crash.town import Word

TOKEN = "plaina-0001.0.0123abcd"


def _turn(word: str, id: str, said: str) -> list[dict[str, Any]]:
    end = {"meta": "turn", "turn": id, "outcome": "replied", "messages": [{"id": id}], "says": [said], "at": 2.0, "end": True}
    return [{"role": "user", "content": f"please {word}"}, {"role": "assistant", "content": said}, end]


def _evidence() -> Evidence:
    """Two messages of one person on a platform, both answered."""
    words = [Word(f"plaina-000{n}", "plaina", "plain", f"plain-{n}", "plain-plaina", float(n)) for n in (1, 2)]
    call = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": f'{{"command": "echo {TOKEN}"}}'}}
    first, second = (_turn(word.word, word.id, f"DONE {word.word}") for word in words)
    first[1:1] = [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c1", "content": f"ran-{TOKEN}"}]
    return Evidence(
        words=words,
        shown={word.word: [n, n, 1] for n, word in enumerate(words)},
        complaints=[],
        requests=3,
        histories={"plain-plaina": [{"format": "bubbles.history", "version": 1}, *first, *second]},
        torn=[],
        tokens=Counter([TOKEN]),
        sent={"plain": [{"chat": "plaina", "text": f"DONE {word.word}", "key": f"{word.id}.0.0.0"} for word in words]},
        keyed=set(),
        receipts={f"{word.id}.0.0": [{"begun": 0}, {"delivered": 0}] for word in words},
        outbound={f"{word.id}.0.0": "done" for word in words},
        waiting=[],
        given_up=[],
        bugs=[],
        kills=[],
    )


def _swap(shown: dict[str, list[int]]) -> None:
    shown["plaina-0001"] = shown.pop("plaina-0001")


def _see_again(seen: Evidence, *, keyed: bool = False) -> None:
    seen.sent["plain"].append(seen.sent["plain"][1])
    seen.keyed = {"plain"} if keyed else set()
    seen.receipts["plain-2.0.0"] += [{"uncertain": 0}] if keyed else []


WRONG: dict[str, tuple[str, Callable[[Evidence], Any]]] = {
    "a turn is missing": ("lost", lambda seen: seen.histories["plain-plaina"].__delitem__(slice(5, None))),
    "a turn is there twice": ("doubled", lambda seen: seen.histories["plain-plaina"].extend(seen.histories["plain-plaina"][5:])),
    "a message nobody wrote": ("doubled", lambda seen: seen.words.pop()),
    "never shown": ("unshown", lambda seen: seen.shown.pop("plaina-0002")),
    "shown in another order": ("disorder", lambda seen: _swap(seen.shown)),
    "answered in another order": ("disorder", lambda seen: seen.sent["plain"].reverse()),
    "a tool ran twice": ("tool twice", lambda seen: seen.tokens.update([TOKEN])),
    "told of a tool that did not run": ("tool twice", lambda seen: seen.tokens.clear()),
    "a refused request": ("malformed", lambda seen: seen.complaints.append("request 2 was refused")),
    "a reply to nobody": ("malformed", lambda seen: seen.histories["plain-plaina"][3].update(tool_call_id="")),
    "the answer names nobody": ("unanswered", lambda seen: seen.histories["plain-plaina"][-1].update(says=["DONE"])),
    "the answer never arrived": ("unanswered", lambda seen: seen.sent["plain"].pop()),
    "seen twice, and no receipt says why": ("shown twice", _see_again),
    "seen twice on a keyed platform": ("shown twice", lambda seen: _see_again(seen, keyed=True)),
    "something waits": ("stuck", lambda seen: seen.waiting.append("spool/inbound/cli/cur/cli-1.json")),
    "held, and was sent once": ("stuck", lambda seen: seen.waiting.append("spool/outbound/plain/held/plain-1.0.0.json")),
    "a bug": ("bug", lambda seen: seen.bugs.append("agentd.log: daemon.bug")),
}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert judge(_evidence()).problems == []


@pytest.mark.parametrize("what", WRONG)
def test_each_problem_is_found(what: str) -> None:
    kind, spoil = WRONG[what]
    seen = _evidence()
    spoil(seen)
    assert kind in judge(seen).kinds(), str(judge(seen))


def test_a_send_that_is_receipted_as_uncertain_may_be_seen_twice_and_one_in_doubt_twice_may_be_held() -> None:
    seen = _evidence()
    _see_again(seen)
    seen.receipts["plain-2.0.0"] = [{"begun": 0}, {"uncertain": 0}, {"begun": 0}, {"delivered": 0}]
    assert judge(seen).problems == []
    seen = _evidence()
    seen.sent["plain"].pop()
    seen.receipts["plain-2.0.0"] = [{"begun": 0}, {"uncertain": 0}] * 2
    seen.outbound["plain-2.0.0"] = "held"
    seen.waiting.append("spool/outbound/plain/held/plain-2.0.0.json (it is uncertain whether it was delivered)")
    assert judge(seen).problems == []


def test_an_offender_is_named_with_its_traces() -> None:
    seen = _evidence()
    seen.sent["plain"].pop()
    seen.kills.append({"name": "agentd", "hop": "say", "side": "before", "at": 2.0})
    told = str(judge(seen))
    for trace in ("plaina never saw the answer to plaina-0002", "plain-2", "shown in requests [1, 1, 1]", "killed meanwhile: agentd say before"):
        assert trace in told
