"""exec as a model uses it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from bubbles.config.tools import Tools
from bubbles.kernel.weight import tokens
from bubbles.tools import Bench, call, load
from tests.sandboxes.processes import alive, tag
from tests.tools.conftest import Ask


def without_time(text: str) -> str:
    return re.sub(r"; \d+ ms", "", text)


def test_output_comes_with_the_exit_code(ask: Ask) -> None:
    text, ok = ask("exec", {"command": "echo one; echo two >&2; exit 3"})
    assert (without_time(text), ok) == ("one\ntwo\n[exit code 3]", True)
    assert without_time(ask("exec", {"command": "true"})[0]) == "[exit code 0]"
    assert without_time(ask("exec", {"command": "kill -9 $$"})[0]) == "[ended by signal 9, SIGKILL]"
    assert without_time(ask("exec", {"command": "sh -c 'kill -11 $$'; exit $?"})[0]).endswith("[exit code 139 (signal 11, SIGSEGV)]")


def test_it_starts_in_work_or_where_it_is_told_to(ask: Ask, session: Path) -> None:
    (session / "work/sub").mkdir()
    assert ask("exec", {"command": "pwd"})[0].startswith(f"{session}/work\n")
    assert ask("exec", {"command": "pwd", "cwd": "sub"})[0].startswith(f"{session / 'work' / 'sub'}\n")
    for cwd in ("../../bob", "/", "missing", "~"):
        text, ok = ask("exec", {"command": "pwd", "cwd": cwd})
        assert not ok
        assert text.startswith("Error: ")


def test_a_time_out_is_an_error_that_keeps_what_was_printed(ask: Ask) -> None:
    tagged = tag()
    text, ok = ask("exec", {"command": f"echo begun; setsid sleep {tagged} & sleep {tagged}", "timeout_s": 3})
    assert not ok
    assert text.startswith("Error: timed out after 3 s")
    assert "begun" in text
    assert "timeout_s" in text
    assert alive(tagged) == []


def test_background_processes_are_ended_and_it_says_so(ask: Ask) -> None:
    tagged = tag()
    text, ok = ask("exec", {"command": f"sleep {tagged} & echo started"})
    assert ok
    assert "1 background process that it left running was ended" in text
    assert alive(tagged) == []


def test_long_output_is_clipped_and_keeps_its_end_and_the_exit_code(ask: Ask) -> None:
    text, ok = ask("exec", {"command": "seq 1 200000; echo the end"}, 500)
    assert ok
    assert tokens(text) <= 500
    assert text.startswith("1\n2\n")
    assert "left out" in text
    assert re.search(r"the end\n\[exit code 0; \d+ ms\]$", text)


def test_escapes_and_binary_do_not_reach_the_model(ask: Ask) -> None:
    text, _ = ask("exec", {"command": "printf '\\033]52;c;ZXZpbA==\\a\\033[31mred\\033[0m\\n'"})
    assert text.startswith("red\n")
    assert "\x1b" not in text
    assert "binary output, 5000 bytes" in ask("exec", {"command": "head -c 5000 /dev/urandom"})[0]


@pytest.mark.parametrize("command", ["rm -rf /", "cat ../../bob/MEMORY.md", "echo \0"])
def test_what_is_refused_says_why(ask: Ask, command: str) -> None:
    text, ok = ask("exec", {"command": command})
    assert not ok
    assert text.startswith("Error: the command ")


@pytest.mark.parametrize(
    "arguments",
    [{"command": ""}, {"command": "true", "timeout_s": -1}, {"command": ["ls"]}, {"command": "echo \ud83d"}],
)
def test_arguments_out_of_bounds_are_told(ask: Ask, arguments: dict) -> None:
    text, ok = ask("exec", arguments)
    assert not ok
    assert "wrong arguments for exec" in text


def test_the_settings_bound_it_and_its_description_says_so(bench: Bench) -> None:
    settings = Tools.model_validate({"exec": {"timeout_s": 1.0, "output_bytes": 10_000}})
    tool = load(settings)["exec"]
    assert "Time-out 1 s" in tool.description
    text, ok = asyncio.run(call(tool, '{"command": "sleep 60"}', bench, 1000))
    assert not ok
    assert "timed out after 1 s" in text
    text, ok = asyncio.run(call(tool, '{"command": "yes"}', bench, 1000))
    assert "it printed more than 10000 bytes" in text


@pytest.mark.parametrize(("asked", "said"), [(0, ""), (1, ""), (2, ""), (3, "timeout_s was 2, the most that is allowed"), (10**400, "was 2")])
def test_a_call_gets_the_time_it_asks_for_up_to_the_most(bench: Bench, asked: int, said: str) -> None:
    tool = load(Tools.model_validate({"exec": {"timeout_s": 1.5, "timeout_max_s": 2}}))["exec"]
    assert "2 s at most" in tool.description
    text, ok = asyncio.run(call(tool, f'{{"command": "true", "timeout_s": {asked}}}', bench, 1000))
    assert ok
    assert said in text
    assert ("timeout_s" in text) == bool(said)


def test_a_call_that_outlasts_the_most_is_not_told_to_ask_for_more(bench: Bench) -> None:
    tool = load(Tools.model_validate({"exec": {"timeout_s": 1, "timeout_max_s": 1}}))["exec"]
    text, ok = asyncio.run(call(tool, '{"command": "sleep 60", "timeout_s": 9}', bench, 1000))
    assert not ok
    assert text.startswith("Error: timed out after 1 s, the most that is allowed")
    assert "give more time" not in text


def test_a_cancelled_call_leaves_nothing_behind(bench: Bench, session: Path) -> None:
    tagged = tag()
    tool = load(bench.settings)["exec"]

    async def scenario() -> None:
        task = asyncio.create_task(call(tool, f'{{"command": "setsid sleep {tagged} & sleep {tagged}"}}', bench, 1000))
        while len(alive(tagged)) < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert alive(tagged) == []

    asyncio.run(scenario())
