"""A workbench as agentd makes one: a real session's files and a real shell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bubbles import sandboxes
from bubbles.config.tools import Tools
from bubbles.tools import Bench, TurnInfo, call, load
from bubbles.workspace import Workspace

Ask = Callable[..., tuple[str, bool]]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    made = tmp_path / "home/sessions/alice"
    made.mkdir(parents=True, mode=0o700)
    (made / "MEMORY.md").write_text("remembered\n")
    (made / "config.json").write_text('{"model": "m"}\n')
    return made


@pytest.fixture
def bench(session: Path) -> Iterator[Bench]:
    settings = Tools()
    sandbox = sandboxes.open("local_isolated", session, session.parents[1] / "session_homes/alice", settings.sandbox)
    workspace = Workspace.open(session)
    yield Bench(lambda: workspace, sandbox, settings, TurnInfo("alice"))
    workspace.close()


@pytest.fixture
def ask(bench: Bench) -> Ask:
    """ask("read_file", {...}): the result that the model would get, and whether the call went well."""
    tools = load(bench.settings)

    def asked(name: str, arguments: Any, result_tokens: int = bench.result_tokens) -> tuple[str, bool]:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return asyncio.run(call(tools[name], text, bench, result_tokens))

    return asked
