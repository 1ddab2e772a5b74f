"""The embedded model through the same door: it is no vendor's, speaks for itself, and can only be asked what it can fail at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bubbles.errors import ContextTooLong, Rejected
from bubbles.paths import Home
from tests.providers.conformance.hall import Hall
from tests.providers.conformance.sides import Side
from tests.providers.test_embedded import model_file

EMBEDDED = Side("embedded", "", server="")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    found = model_file()
    if found is None:
        why = "no model file: run `make test`, or set BUBBLES_TEST_GGUF"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    home = Home(tmp_path_factory.mktemp("alone"))
    home.prepare()
    hall = Hall(home, {}, model_path=str(found))
    yield hall
    hall.close()


def test_words_and_tokens_by_one_request(alone: Hall) -> None:
    told = alone.put(EMBEDDED)
    assert told.error is None, told.error
    assert (told.answer["attempts"], told.answer["provider"]) == (1, "embedded")
    assert told.heard == told.answer["text"]
    assert told.answer["text"]
    assert told.answer["usage"]["input"] > 5
    assert 0 < told.answer["usage"]["output"] <= 64


def test_what_does_not_fit_is_not_tried_again(alone: Hall) -> None:
    told = alone.put(EMBEDDED, {"role": "user", "content": "many words " * 600})
    assert isinstance(told.error, ContextTooLong)
    assert (told.error.attempts, told.slept) == (1, [])


def test_without_a_file_nothing_is_tried_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.prepare()
    hall = Hall(home, {}, model_path=str(tmp_path / "none.gguf"))
    told = hall.put(EMBEDDED)
    hall.close()
    assert isinstance(told.error, Rejected)
    assert (told.error.attempts, told.slept) == (1, [])
