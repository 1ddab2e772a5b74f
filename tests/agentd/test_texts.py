"""The table of what a chat is told: whole, in both languages, and used."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from bubbles import agentd, config, errors, lending
from bubbles.agentd import alerts, apology
from bubbles.agentd.spelling import COMMANDS
from bubbles.agentd.texts import TEXTS, told

PACKAGE = Path(agentd.__path__[0])
SPEAKERS = [*(path for path in PACKAGE.glob("*.py") if path.name != "texts.py"), *(PACKAGE.parent / "programs" / "terminal").glob("*.py")]


def fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("key", sorted(TEXTS))
def test_both_languages_say_the_same_of_the_same_things(key: str) -> None:
    english, chinese = TEXTS[key]
    assert fields(english) >= fields(chinese)
    assert fields(english) - fields(chinese) <= {"names"}
    assert not re.search("[\u4e00-\u9fff]", english)
    assert re.search("[\u4e00-\u9fff]", chinese) or key in ("unset", "setting")


def strings(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_each_text_is_told_somewhere() -> None:
    made = {f"help {name}" for name in COMMANDS} | {f"allowed {key}" for key in config.SESSION_KEYS} | set(apology.CATEGORIES) | refusals()
    made |= {f"alert {kind}" for kind in alerts.KINDS}
    assert made <= set(TEXTS)
    said = set[str]().union(*(strings(ast.parse(path.read_text())) for path in SPEAKERS))
    assert set(TEXTS) - made - said == set()


def refusals() -> set[str]:
    """What `bubbles.lending` says of a directory that may not be lent."""
    tree = ast.parse(Path(lending.__file__).read_text())
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "refused")
    return set[str]().union(*(strings(node) for node in ast.walk(function) if isinstance(node, ast.Return))) - {""}


def test_every_reason_against_a_workspace_is_known_in_both_languages() -> None:
    assert len(refusals()) == 5
    assert refusals() <= set(TEXTS)


def test_no_text_shows_a_path_or_the_name_of_an_error() -> None:
    names = {name for name in dir(errors) if isinstance(getattr(errors, name), type)}
    for english, chinese in TEXTS.values():
        assert not any(name in english + chinese for name in names)
        assert "~/" not in english + chinese
        assert not re.search(r"sessions/|\.json|\.jsonl", english + chinese)


def test_values_are_put_in_as_they_are() -> None:
    assert told("near", "en", typed="{0}", name="{x}").startswith("There is no /{0}.")
