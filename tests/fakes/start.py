"""Starting the fakes, each in a process of its own that ends with the test."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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
        connection = http.client.HTTPConnection(self._netloc, timeout=30)
        try:
            connection.request(method, path, body)
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            return found
        finally:
            connection.close()


@contextmanager
def model(script: dict[str, Any] | None = None) -> Iterator[FakeModel]:
    """A fake model that plays `script` (see tests/fakes/script.py) until the block ends."""
    argv = [sys.executable, "-m", "tests.fakes.model", "--with-parent"]
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
