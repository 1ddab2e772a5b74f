"""Starting the fakes, each in a process of its own that ends with the test."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_ROOT = Path(__file__).resolve().parents[2]


class FakeModel:
    """A running fake model: `url` is what a configuration's `base_url` wants."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._netloc = urlsplit(url).netloc

    def seen(self) -> dict[str, Any]:
        """`requests` (counted), `bodies` (parsed, oldest first), `raw`, `headers`, `at`, `aborted` (client hung up), `open`, `connections`."""
        return self._call("GET", "/_seen")

    def play(self, script: dict[str, Any]) -> None:
        """Put another script in place and forget what was seen."""
        self._call("POST", "/_script", json.dumps(script))

    def _call(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = _called(self._netloc, method, path, body)
        return found


def _called(netloc: str, method: str, path: str, body: str | None = None) -> Any:
    connection = http.client.HTTPConnection(netloc, timeout=30)
    try:
        connection.request(method, path, body)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@contextmanager
def model(script: dict[str, Any] | None = None, *, port: int = 0) -> Iterator[FakeModel]:
    """A fake model that plays `script` (see tests/fakes/script.py) until the block ends; at `port`, if it is to be at a certain one."""
    with _served(["tests.fakes.model", "--port", str(port)], script) as fake:
        yield fake


@contextmanager
def vendor(name: str, script: dict[str, Any] | None = None) -> Iterator[FakeModel]:
    """The server of a vendor (one of those in tests/fakes/vendors/__main__.py), until the block ends; `url` is what its official client wants."""
    with _served(["tests.fakes.vendors", name], script) as fake:
        yield fake


@contextmanager
def _served(module: list[str], script: dict[str, Any] | None) -> Iterator[FakeModel]:
    argv = [sys.executable, "-m", *module, "--with-parent"]
    with subprocess.Popen(argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            fake = FakeModel(process.stdout.readline().strip())
            fake.play(script or {})
            yield fake
        finally:
            process.stdin.close()
            process.wait(timeout=10)


class FakePlatform:
    """A running fake platform (tests/fakes/platform.py): `url` is what a channel wants. It may be killed, and comes back where it was."""

    def __init__(self, state: Path, keyed: bool) -> None:
        self._state, self._keyed = state, keyed
        self._process: subprocess.Popen[str] | None = None
        self.url = self._control = ""

    def start(self) -> None:
        """Begin, or come back on the same ports with all that was said, sent and confirmed, and without faults."""
        ports = [str(urlsplit(url).port or 0) for url in (self.url, self._control)]
        argv = [sys.executable, "-m", "tests.fakes.platform", "--with-parent", "--state", str(self._state), *(["--keyed"] if self._keyed else [])]
        argv += ["--port", ports[0], "--control-port", ports[1]]
        self._process = subprocess.Popen(argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url, self._control = (self._process.stdout.readline().strip() for _ in range(2))

    def kill(self, number: int = signal.SIGKILL) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.communicate(timeout=10)

    def restart(self) -> None:
        """Killed, and back."""
        self.kill()
        self.start()

    def say(self, text: str, chat: str = "42", **more: Any) -> int:
        """A person writes; the update's id."""
        return int(self._call("POST", "/_say", {"text": text, "chat": chat, **more})["id"])

    def faults(self, **wanted: Any) -> None:
        """These faults and no others, from now on."""
        self._call("POST", "/_faults", wanted)

    def sent(self, chat: str | None = None) -> list[dict[str, Any]]:
        """What people see (in one chat), in order."""
        found: list[dict[str, Any]] = self._call("GET", "/_sent")
        return [one for one in found if chat in (None, one["chat"])]

    def shown(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("GET", "/_shown")
        return found

    def state(self) -> dict[str, Any]:
        """`offset`, `pending`, `said`, `sent`, `polls`, `sends`, `logins`, `open`."""
        found: dict[str, Any] = self._call("GET", "/_state")
        return found

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _called(urlsplit(self._control).netloc, method, path, None if body is None else json.dumps(body))


@contextmanager
def platform(*, state: Path | None = None, keyed: bool = False, **faults: Any) -> Iterator[FakePlatform]:
    """A fake platform with these faults until the block ends. `state`: the file where it keeps what it knows, else one of its own."""
    with ExitStack() as stack:
        if state is None:
            state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="platform-"))) / "state.jsonl"
        fake = FakePlatform(state, keyed)
        stack.callback(fake.kill)
        fake.start()
        fake.faults(**faults)
        yield fake
