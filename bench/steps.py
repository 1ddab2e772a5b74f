"""What a job of 200 steps costs in tokens, by what is done with its past: nothing, the oldest cut off, summaries, summaries with copies.

    python bench/steps.py

No model and no process: the kernel's own functions on a job made by rule, and a summariser that keeps its last lines. Each turn lays one rule
down, changes one file and needs one number from an earlier turn; a number that is not in view is looked up again, which is one more step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from row import Row, main

from bubbles.kernel import context
from bubbles.kernel.summary import HEAD, KEPT_TOKENS, Kept, gather, own_words, whole

TURNS, CALLS = 40, 5
WINDOW, SOFT = 16_000, 0.6
_FIXED = 2500  # prompt and schemas
_LINES = 6  # that the summariser keeps

Messages = list[dict[str, Any]]


class Past:
    """What is sent of the past, as one way of handling it has it."""

    def __init__(self, summarises: bool, copies: bool, cuts: bool) -> None:
        self.summarises, self.copies, self.cuts = summarises, copies, cuts
        self.messages: Messages = []
        self.kept, self.prose = Kept(), ""
        self.tokens = self.steps = self.missed = self.most = 0

    def ask(self) -> Messages:
        """A step: what the model gets."""
        sent = context.fit(self.messages, WINDOW - _FIXED) if self.cuts else self.messages
        weight = _FIXED + context.tokens(sent)
        self.tokens, self.steps, self.most = self.tokens + weight, self.steps + 1, max(self.most, weight)
        return sent

    def between_turns(self) -> None:
        if not self.summarises or _FIXED + context.tokens(self.messages) <= SOFT * WINDOW:
            return
        start = context.split(self.messages, WINDOW // 4)
        if not start:
            return
        head, tail = self.messages[:start], self.messages[start:]
        self.tokens += _FIXED + context.tokens(head)  # to ask for the summary
        said = [own_words(str(one["content"])) for one in head if one["role"] != "tool"]
        self.prose = "\n".join("\n".join([self.prose, *said]).split("\n")[-_LINES:])
        self.kept = gather(head, self.kept, KEPT_TOKENS) if self.copies else Kept()
        first = {**tail[0], "content": f"{HEAD}{whole(self.prose, self.kept)}\n\n{tail[0]['content']}"}
        self.messages = [first, *tail[1:]]


def job(past: Past) -> None:
    """Do it."""
    random = Random(3)
    for turn in range(TURNS):
        wanted = f"RX-{random.randrange(turn or 1):04d}"
        words = f"[Sun 2025-11-30 11:00 UTC · cli · Ann]\nNever touch host h{turn:02d}. Case RX-{turn:04d}: mend part {turn} as in {wanted}."
        past.messages.append({"role": "user", "content": words})
        asked = words.rpartition(" as in ")[0]
        view = json.dumps([*past.ask()[:-1], {"content": asked}])
        if wanted not in view:
            past.missed += 1
            _call(past, f"m{turn}", "exec", f"grep -r {wanted} .", "found: " + "line of a file that was read before\n" * 40)
            past.ask()
        for step in range(CALLS - 1):
            tool, told = ("edit_file", f"src/part{turn}.py") if step == 3 else ("exec", f"make part{turn}")
            _call(past, f"c{turn}_{step}", tool, told, "line of output, as a build has them\n" * 50)
            past.ask()
        past.messages.append({"role": "assistant", "content": f"Part {turn} is mended."})
        past.between_turns()


def _call(past: Past, id: str, name: str, told: str, result: str) -> None:
    given = json.dumps({"path" if name == "edit_file" else "command": told})
    past.messages.append(
        {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": given}}]}
    )
    past.messages.append({"role": "tool", "tool_call_id": id, "content": result})


WAYS: dict[str, Callable[[], Past]] = {
    "nothing": lambda: Past(summarises=False, copies=False, cuts=False),
    "the oldest cut off": lambda: Past(summarises=False, copies=False, cuts=True),
    "summaries alone": lambda: Past(summarises=True, copies=False, cuts=True),
    "summaries and copies": lambda: Past(summarises=True, copies=True, cuts=True),
}


def measure() -> list[Row]:
    rows = []
    for name, make in WAYS.items():
        past = make()
        job(past)
        view = json.dumps(past.ask())
        rules = sum(f"host h{turn:02d}" in view for turn in range(TURNS))
        beside = f"{past.steps} requests, the largest {past.most}; {past.missed} look-ups again; {rules} of {TURNS} rules in view at the end"
        rows.append(Row(f"{TURNS * CALLS} steps, with a past that grows: {name}", past.tokens / 1000, "k tokens", beside=beside))
    return rows


if __name__ == "__main__":
    main(measure)
