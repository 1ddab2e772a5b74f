"""bubbles/README.md: its walks are short and name files that exist, its links lead somewhere."""

from __future__ import annotations

import re

import pytest

from tests.test_layers import PACKAGE, page

WALKS = re.findall(r"^## (Walk \d: [^\n]*)\n(.*?)(?=^## |\Z)", page(), flags=re.M | re.S)


def test_there_are_three_walks() -> None:
    assert [re.sub(r"\D", "", title) for title, _ in WALKS] == ["1", "2", "3"]


@pytest.mark.parametrize(("title", "text"), WALKS, ids=[title for title, _ in WALKS])
def test_a_walk_is_short_and_its_steps_are_numbered(title: str, text: str) -> None:
    assert len(text.strip().splitlines()) <= 40
    steps = re.findall(r"^ *(\d+)  ", text, flags=re.M)
    assert steps == [str(n + 1) for n in range(len(steps))]


@pytest.mark.parametrize(("title", "text"), WALKS, ids=[title for title, _ in WALKS])
def test_the_places_of_a_walk_exist(title: str, text: str) -> None:
    for places in re.findall(r"^ *\d+  (\S+(?:(?:, | → )\S+)*)  ", text, flags=re.M):
        for place in re.split(r", | → ", places):
            if place not in ("model", "terminal"):  # whoever is outside
                assert (PACKAGE / f"{place}.py").exists() or (PACKAGE / place).is_dir() or (PACKAGE / "programs" / f"{place}.py").exists(), place


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page())
    assert links
    for link in links:
        assert (PACKAGE / link).exists(), link
