"""The tools for commands in the background, as a model calls them. What they do with real commands: tests/agentd/test_job_endings.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbles.config.tools import Tools
from bubbles.errors import ToolError
from bubbles.tools import Bench, call, load
from tests.tools.conftest import Ask

Call = Callable[..., tuple[str, bool]]


class Desk:
    """What was asked of it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def start(self, command: str, cwd: Path | None, timeout_s: float) -> str:
        self.asked.append((command, cwd, timeout_s))
        return "j1"

    async def result(self, id: str, offset: int, wait_s: float, most_tokens: int) -> str:
        self.asked.append((id, offset, wait_s, most_tokens))
        return "[job j1 runs for 1 s]"

    async def stop(self, id: str) -> str:
        raise ToolError(f"there is no job {id!r}", remedy="look")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def use(bench: Bench, desk: Desk) -> Call:
    settings = Tools.model_validate({"exec": {"job_timeout_s": 100}})

    def used(name: str, **arguments: Any) -> tuple[str, bool]:
        return asyncio.run(call(load(settings)[name], json.dumps(arguments), replace(bench, jobs=desk), 1000))

    return used


@pytest.mark.parametrize(("asked", "given"), [(0, 100.0), (7, 7.0), (500, 100.0)])
def test_a_job_gets_the_time_it_asks_for_up_to_the_most(use: Call, desk: Desk, asked: int, given: float) -> None:
    text, ok = use("exec", command="make", background=True, timeout_s=asked)
    assert ok
    assert text.startswith(f"[job j1 has begun in the background; time-out {given:g} s.")
    assert desk.asked == [("make", None, given)]


def test_it_starts_where_it_is_told_to_and_nowhere_outside(use: Call, desk: Desk, session: Path) -> None:
    (session / "work/sub").mkdir(parents=True)
    assert use("exec", command="make", background=True, cwd="sub")[1]
    assert desk.asked == [("make", session / "work/sub", 100.0)]
    assert not use("exec", command="make", background=True, cwd="../../bob")[1]


def test_a_page_is_asked_for_as_large_as_a_result_may_be(use: Call, desk: Desk, bench: Bench) -> None:
    assert use("job_result", id="j1", offset=-5, wait_s=60) == ("[job j1 runs for 1 s]", True)
    assert use("job_result", id="j1")[1]
    assert desk.asked == [("j1", -5, 60, bench.result_tokens), ("j1", 0, 0, bench.result_tokens)]


@pytest.mark.parametrize("wrong", [{"id": ""}, {"id": "j1", "wait_s": 61}, {"id": "j1", "wait_s": -1}, {"id": "j1", "offset": "x"}, {}])
def test_what_cannot_be_asked(use: Call, desk: Desk, wrong: dict[str, Any]) -> None:
    text, ok = use("job_result", **wrong)
    assert not ok
    assert text.startswith("Error: wrong arguments for job_result")
    assert desk.asked == []


def test_what_is_refused_says_what_would_be_right(use: Call) -> None:
    assert use("job_stop", id="j9") == ("Error: there is no job 'j9'\nlook", False)


@pytest.mark.parametrize(("name", "arguments"), [("exec", {"command": "true", "background": True}), ("job_result", {"id": "j1"})])
def test_where_nobody_keeps_jobs_there_are_none(ask: Ask, name: str, arguments: dict[str, Any]) -> None:
    assert ask(name, arguments) == ("Error: there is no background work here", False)
