"""What is kept of a question that was answered: its outcome, and nothing of the way to it."""

from __future__ import annotations

import gc

import httpx
import pytest

from tests.providers.conformance.hall import Hall
from tests.providers.conformance.sides import WIRES, Side

_ASKS = 6


def _responses() -> int:
    gc.collect()
    return sum(isinstance(each, httpx.Response) for each in gc.get_objects())


@pytest.mark.parametrize("side", WIRES, ids=str)
@pytest.mark.parametrize("script", [{"default": {"reply": "yes"}}, {"default": {"fault": "invalid"}}], ids=["answered", "refused"])
def test_no_question_leaves_what_came_back_over_the_network(hall: Hall, side: Side, script: dict[str, object]) -> None:
    hall.play(side, script)
    hall.put(side)
    before = _responses()
    for _ in range(_ASKS):
        hall.put(side)
    assert _responses() <= before + _ASKS // 2
