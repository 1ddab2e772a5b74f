"""How a model is told of tools, and what it gets back whatever it sends."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config.tools import Tools
from bubbles.errors import Refused
from bubbles.kernel.weight import tokens
from bubbles.tools import REGISTRY, Arguments, Bench, TurnInfo, call, load, schemas
from tests.tools.conftest import Ask


class Say:
    """A tool that answers with what it is given, or refuses with it."""

    name, description, free = "say", "Says it.", True

    class Arguments(Arguments):
        text: str
        fail: bool = False

    async def run(self, args: Any, bench: Bench) -> str:
        if args.fail:
            raise Refused(args.text, remedy="say something else")
        return str(args.text)


def say(arguments: str, result_tokens: int = 100) -> tuple[str, bool]:
    return asyncio.run(call(Say(), arguments, Bench(None, None, None, TurnInfo("s")), result_tokens))  # type: ignore[arg-type]


def test_schemas_are_complete_plain_and_the_same_bytes_each_time() -> None:
    made = [json.dumps(schemas(load(Tools()))) for _ in range(2)]
    assert made[0] == made[1]
    assert [tool["function"]["name"] for tool in json.loads(made[0])] == list(REGISTRY)
    for tool in json.loads(made[0]):
        parameters = tool["function"]["parameters"]
        assert tool["type"] == "function"
        assert parameters["type"] == "object"
        assert parameters["additionalProperties"] is False
        assert set(parameters["required"]) <= set(parameters["properties"])
        assert len(tool["function"]["description"]) < 600
        for field in parameters["properties"].values():
            assert field["description"]
            assert "title" not in field
    assert "$ref" not in made[0]
    assert tokens(json.loads(made[0])) < 1500


@pytest.mark.parametrize("name", REGISTRY)
def test_each_tool_is_what_its_registry_line_says(name: str) -> None:
    tool = load(Tools())[name]
    assert tool.name == name
    assert tool.free == (name in ("read_file", "list_dir", "job_result", "find_person"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("{", "not valid JSON"),
        ("[]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ("", "- path: is required"),
        ("{}", "- path: is required"),
        ('{"file": "x"}', "- file: is not an argument; there are: path, offset, limit, line_numbers"),
        ('{"path": 5}', "- path: input should be a valid string, got 5"),
        ('{"path": "x", "offset": "ten"}', "- offset: input should be a valid integer"),
        ('{"path": "x", "offset": 0}', "- offset: input should be greater than or equal to 1, got 0"),
        ('{"path": "x", "limit": 1e9}', "less than or equal to 5000"),
    ],
)
def test_wrong_arguments_are_told_field_by_field(ask: Ask, arguments: str, told: str) -> None:
    text, ok = ask("read_file", arguments)
    assert not ok
    assert told in text
    assert "nothing was done" in text


def test_numbers_sent_as_text_are_understood(ask: Ask) -> None:
    assert ask("read_file", {"path": "../MEMORY.md", "offset": "1"}) == ("remembered", True)


def test_a_tools_error_is_told_with_its_remedy() -> None:
    assert say('{"text": "no", "fail": true}') == ("Error: no\nsay something else", False)


def test_a_result_is_clean_and_never_empty() -> None:
    assert say('{"text": ""}') == ("(empty)", True)
    assert say('{"text": "\\u001b[31mred\\u001b[0m \\u202eodd\\ud83d"}') == ("red odd\ufffd", True)


@given(st.text(max_size=3000), st.integers(24, 400))
def test_a_result_fits_its_cap_and_can_be_sent(text: str, most: int) -> None:
    told, ok = say(json.dumps({"text": text}), most)
    assert ok
    assert told
    assert tokens(told) <= most
    assert told.encode()


def test_a_bug_in_a_tool_is_not_told_as_if_the_model_could_mend_it(tmp_path: Path) -> None:
    class Broken(Say):
        async def run(self, args: Any, bench: Bench) -> str:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(call(Broken(), '{"text": ""}', Bench(None, None, None, TurnInfo("s")), 100))  # type: ignore[arg-type]
