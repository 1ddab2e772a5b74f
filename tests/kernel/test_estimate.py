"""Requests weighed as a turn weighs them, against real vocabularies: within a tenth once the model has reported how long the last one was.

What the bare estimate is off before that is told, and is no promise: a vocabulary may make twice as much of the same Chinese as another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles.kernel import context, prompt
from bubbles.kernel.events import ModelAnswered, ModelAsked, Said, UserSpoke
from bubbles.kernel.turn import Rules, Turn
from bubbles.messages import Address
from tests.kernel import vocabularies
from tests.kernel.vocabularies import Count
from tests.pains import estimate

_ROOT = Path(__file__).resolve().parents[2]
TOOLS = json.dumps(estimate.tools()[:7], separators=(",", ":"))
SYSTEM = {"role": "system", "content": prompt.BASE}
PARTS, LONGEST = 10, 1500  # characters of each


def _parts(text: str) -> list[str]:
    step = min(LONGEST, len(text) // PARTS)
    return [text[n * step : (n + 1) * step] for n in range(PARTS)]


KINDS = {
    "English": _parts((_ROOT / "bubbles" / "README.md").read_text().replace("|", " ")[12_000:]),
    "Chinese": _parts("".join(message["content"] for message in estimate.history())),
    "code": _parts((_ROOT / "bubbles" / "kernel" / "turn.py").read_text()),
    "JSON": _parts(json.dumps(estimate.tools()[10:40], indent=1)),
}


@pytest.fixture(scope="module", params=[*vocabularies.OPENAI, *vocabularies.OTHERS, "embedded"])
def vocabulary(request: pytest.FixtureRequest) -> Iterator[tuple[str, Count]]:
    name = str(request.param)
    if name != "embedded":
        yield name, vocabularies.openai(name) if name in vocabularies.OPENAI else vocabularies.other(name)
        return
    if (model := vocabularies.model()) is None:
        pytest.skip("no model file: run `make test`, or set BUBBLES_TEST_GGUF")
    with vocabularies.embedded(model) as count:
        yield name, count


@pytest.mark.parametrize("kind", KINDS)
def test_once_a_model_has_counted_a_request_is_estimated_within_a_tenth(
    vocabulary: tuple[str, Count], kind: str, record_property: Callable[[str, Any], None]
) -> None:
    name, count = vocabulary
    errors = []
    turn = Turn("t", rules=Rules(base_tokens=context.tokens([SYSTEM]) + context.tokens(TOOLS), window_tokens=128_000))
    for n, part in enumerate(KINDS[kind]):
        turn.apply(UserSpoke(f"m{n}", part, "", Address("cli", "s")))
        real = _real(turn.request(), count)
        errors.append(turn.request_tokens / real - 1)
        turn.apply(ModelAsked(f"t.{n}"))
        turn.apply(UserSpoke(f"more{n}", "and?", "", Address("cli", "s")))  # so that the turn goes on
        turn.apply(ModelAnswered("I see.", usage={"input": real, "output": 3}))
        turn.apply(Said(n))
    bare = context.tokens("".join(KINDS[kind])) / count("".join(KINDS[kind])) - 1
    widest = max(errors[1:], key=abs)
    record_property("told", f"estimate of {kind} against {name}: bare {bare:+.0%}, first request {errors[0]:+.0%}, after that {widest:+.1%}")
    assert max(map(abs, errors[1:])) <= 0.10


def _real(messages: list[dict[str, Any]], count: Count) -> int:
    """What the model would report: tools, and each message with its role and delimiters."""
    return count(TOOLS) + sum(count(message["content"]) + 4 for message in [SYSTEM, *messages])

