"""The embedded model, for real: llama.cpp on a model file, in a child that nobody else can use and that never outlives its parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bubbles.errors import ContextTooLong, ModelDown, Rejected
from bubbles.providers.embedded import Embedded
from bubbles.providers.provider import Answer, Ask

T = TypeVar("T")
_ROOT = Path(__file__).resolve().parents[2]


def model_file() -> Path | None:
    """The small model that is tested with, where it is."""
    named = os.environ.get("BUBBLES_TEST_GGUF")
    return Path(named) if named else next(iter(sorted((_ROOT / ".demo" / "home" / "models").glob("*.gguf"))), None)


@pytest.fixture(scope="module")
def gguf() -> Path:
    """The model file that `make test` fetches."""
    found = model_file()
    if found is None:
        why = "no model file: run `make test`, or set BUBBLES_TEST_GGUF"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    return found


class Life:
    """An embedded model and the loop it lives on."""

    def __init__(self, path: Path | None, **more: Any) -> None:
        self.runner = asyncio.Runner()
        self.model = self.run(self._make(path, **more))

    async def _make(self, path: Path | None, **more: Any) -> Embedded:
        return Embedded(path, **more)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def ask(self, asked: Ask) -> Answer:
        return self.run(self.model.ask(asked, None))

    @property
    def pid(self) -> int:
        return int(self.model.state()["pid"])

    def __enter__(self) -> Life:
        return self

    def __exit__(self, *error: object) -> None:
        self.run(self.model.close())
        self.runner.close()


@pytest.fixture(scope="module")
def life(gguf: Path) -> Iterator[Life]:
    """One child for the tests that do not end it."""
    with Life(gguf, context_tokens=1024) as made:
        yield made


def ask(words: str = "Why is the sky blue?", **more: Any) -> Ask:
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": words}]
    return Ask("t.1", "", [json.dumps(m).encode() for m in messages], temperature=0.2, **{"max_tokens": 24, **more})


def status_of(url: str, key: str = "", body: dict[str, Any] | None = None) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not is_alive(pid)


def test_it_is_started_by_the_first_ask_and_answers_whole_and_streamed(life: Life, gguf: Path) -> None:
    assert life.pid == 0
    heard: list[str] = []
    answer = life.run(life.model.ask(ask(), heard.append))
    assert answer.text == "".join(heard)
    assert answer.model == gguf.stem
    assert len(answer.text.split()) > 5
    assert answer.usage["input"] > 10
    assert 0 < answer.usage["output"] <= 24
    pid = life.pid
    assert life.ask(ask("Say hello.")).text
    assert life.pid == pid > 0
    assert life.run(life.model.models()) == [gguf.stem]


def test_nobody_else_can_ask_it(life: Life) -> None:
    life.ask(ask(max_tokens=1))
    assert life.model._child
    root, pid = life.model._child.endpoint.state()["base_url"].removesuffix("/v1"), life.pid
    key = life.model._child.endpoint._headers["Authorization"].removeprefix("Bearer ")
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    paths = ["/v1/chat/completions", "/v1/models", "/props", "/slots", "/completion", "/tokenize", "/v1/embeddings", "/metrics"]
    assert {status_of(root + path, wrong, body) for path in paths for wrong in ("", "wrong")} == {401}
    assert status_of(root + "/v1/chat/completions", key, body) == 200
    assert root.startswith("http://127.0.0.1:")
    port = f"{int(root.rpartition(':')[2]):04X}"
    assert listening(port) == {f"0100007F:{port}"}
    assert key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    with contextlib.suppress(PermissionError):  # nobody but root may look
        assert key.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def listening(port: str) -> set[str]:
    """The addresses at which somebody listens on a port, as /proc writes them."""
    rows = [line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port}")}


def test_cancelled_it_is_free_for_the_next(life: Life) -> None:
    async def run() -> None:
        heard = asyncio.Event()
        asked = asyncio.create_task(life.model.ask(ask(max_tokens=1000), lambda text: heard.set()))
        await heard.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    life.run(run())
    assert life.ask(ask(max_tokens=4)).text


def test_too_long_is_said_so(life: Life) -> None:
    with pytest.raises(ContextTooLong):
        life.ask(ask("word " * 2000))


def test_what_it_can(gguf: Path) -> None:
    for configured, window in ((8192, 8192), (2048, 2048), (1_000_000, 8192)):
        with Life(gguf, context_tokens=configured) as made:
            if "smollm" in gguf.name.lower():
                found = made.model.capabilities("")
                assert (found["tools"], found["vision"], found["window_tokens"], found["reasoning"]) == (False, False, window, "drop")
            assert made.model.capabilities("")["window_tokens"] <= configured


def test_killed_in_the_middle_it_is_down_once_and_unloaded_when_idle(gguf: Path) -> None:
    async def run(model: Embedded) -> None:
        heard = asyncio.Event()
        asked = asyncio.create_task(model.ask(ask(max_tokens=2000), lambda text: heard.set()))
        await heard.wait()
        os.kill(model.state()["pid"], signal.SIGKILL)
        with pytest.raises(ModelDown):
            await asked
        assert (await model.ask(ask(max_tokens=4), None)).text
        assert await asyncio.to_thread(gone, model.state()["pid"])

    with Life(gguf, idle_s=0.05) as made:
        made.run(run(made.model))


PARENT = """
import asyncio, sys
from pathlib import Path
from bubbles.providers.embedded import Embedded
from bubbles.providers.provider import Ask

async def main():
    model = Embedded(Path(sys.argv[1]))
    await model.ask(Ask("t.1", "", [b'{"role":"user","content":"hi"}'], max_tokens=1), None)
    print(model.state()["pid"], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_it_never_outlives_its_parent_and_writes_to_no_terminal(gguf: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "BUBBLES_DEBUG"}
    with subprocess.Popen([sys.executable, "-c", PARENT, str(gguf)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout
        assert parent.stderr
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
        assert parent.stderr.read() == b""
        assert gone(pid)


# -- what is not there


def refused(path: Path | None) -> Rejected:
    with Life(path) as made, pytest.raises(Rejected) as caught:
        made.ask(ask())
    return caught.value


def test_no_file_is_answered_with_what_to_run(tmp_path: Path) -> None:
    for path in (None, tmp_path / "missing.gguf"):
        error = refused(path)
        assert error.remedy == "bubbles models fetch"
        assert error.attempts == 0


def test_a_broken_file_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + b"\3\0\0\0" + b"\xff" * 4096)
    error = refused(tmp_path / "broken.gguf")
    assert "cannot run" in error.text
    assert error.remedy == "bubbles models fetch"
