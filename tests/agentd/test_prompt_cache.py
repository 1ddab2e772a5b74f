"""A request begins with the bytes of the one before it, which is what a provider's cache lives on; and the first is small.

The bytes are those of tools and messages in the order in which a model reads them, tools first; where they stand in the body is JSON's affair.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from os.path import commonprefix
from typing import Any

from bubbles.paths import Home
from bubbles.tools import REGISTRY
from tests.agentd.test_chain import call
from tests.agentd.world import world

TURNS = 50
LEAST = 0.95  # of a request's bytes are the one's before it
FIRST_MOST = 10_240  # bytes of the first request of a session
SAID = ("How large is it now?", "第{n}个问题：备份在哪里？", "Add a line to the notes, please.", "And the one before? 😀", "Look again: changes?")


def _read(body: dict[str, Any]) -> bytes:
    """What a model reads of a request."""
    parts = [body.get("tools", []), *body["messages"]]
    return b"\n".join(json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode() for part in parts)


def test_in_fifty_turns_a_request_is_nearly_all_the_one_before(home: Home, record_property: Callable[[str, Any], None]) -> None:
    works = [
        {"when": "notes", "times": 10, "reasoning": "hm", "calls": [call("exec", command="echo line >> notes.md; wc -l notes.md")]},
        {"when": "Look again", "times": 10, "calls": [call("list_dir", path="."), call("exec", command="date +%s")]},
    ]
    script = {"rules": works, "default": {"reply": "It is as it was, and that is what you wanted to know.", "usage": _usage(3000)}}
    with world(home, script) as w:
        w.start()
        bodies: list[dict[str, Any]] = []
        first = 0
        for n in range(TURNS):
            assert w.say(f"{n}: {SAID[n % len(SAID)].format(n=n)}").outcome == "replied"
            seen = w.fake.seen()
            first = first or len(seen["raw"][0].encode())
            bodies = [*bodies, *(body for body in seen["bodies"] if body not in bodies)]
    requests = [_read(body) for body in bodies]
    assert len(requests) == TURNS + 20
    shares = [len(commonprefix([before, now])) / len(now) for before, now in zip(requests, requests[1:], strict=False)]
    told = f"{len(requests)} requests of {TURNS} turns: of each at least {min(shares):.1%} are the request before; the first has {first} bytes"
    record_property("told", told)
    assert min(shares) >= LEAST
    assert {tool["function"]["name"] for tool in bodies[0]["tools"]} == set(REGISTRY)
    assert first <= FIRST_MOST


def _usage(count: int) -> dict[str, int]:
    return {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count + 1}
