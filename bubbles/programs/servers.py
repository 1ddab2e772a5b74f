"""The model servers that run on this machine, found by asking the ports where they usually are, and told apart by their answers.

Nothing but loopback is asked, all at once, and for a second at most each.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

PLACES = (("Ollama", 11434), ("vLLM", 8000), ("llama.cpp", 8080))

_PATIENCE_S = 1.0
_MOST = 1 << 20  # bytes of a list of models


_PROVIDERS = {"Ollama": "ollama", "vLLM": "vllm"}
_OWNERS = {"vllm": "vLLM", "llamacpp": "llama.cpp"}  # by what stands in `owned_by` of a model


@dataclass(frozen=True, slots=True)
class Server:
    """One that speaks OpenAI's protocol. `locked`: it wants a key before it tells its models.

    `title` is what it says that it is (`sure`), or else what usually runs at its port.
    """

    title: str
    base_url: str
    models: tuple[str, ...] = ()
    locked: bool = False
    sure: bool = False

    @property
    def provider(self) -> str:
        """The provider that asks it."""
        return _PROVIDERS.get(self.title, "custom") if self.sure else "custom"


def look(places: Iterable[tuple[str, int]] = PLACES) -> list[Server]:
    """The servers among `places` (title, port), in their order."""
    places = list(places)
    with ThreadPoolExecutor(max(1, len(places))) as threads:
        return [server for server in threads.map(lambda place: _ask(*place), places) if server is not None]


def _ask(usual: str, port: int) -> Server | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    answer = _get(port, "/v1/models")
    if answer is None:
        return None
    status, told, maker = answer
    if not isinstance(told, dict):
        return None
    if status == 401 and "error" in told:
        return Server(usual, base_url, locked=True)
    models = told.get("data", ...)
    models = [] if models is None else models  # so Ollama writes that it has none
    if status != 200 or not isinstance(models, list):
        return None
    models = [model for model in models if isinstance(model, dict)]
    title = _title(port, models, maker)
    names = [name for model in models if isinstance(name := model.get("id"), str) and name.isprintable() and " " not in name]
    return Server(title or usual, base_url, tuple(names), sure=bool(title))


def _title(port: int, models: list[dict[str, Any]], maker: str) -> str:
    """What the server says that it is; "" where it does not."""
    if "llama.cpp" in maker:
        return "llama.cpp"
    if owned := next((_OWNERS[owner] for model in models if (owner := str(model.get("owned_by"))) in _OWNERS), ""):
        return owned
    version = _get(port, "/api/version")  # only Ollama has that
    return "Ollama" if version and version[0] == 200 and isinstance(version[1], dict) and isinstance(version[1].get("version"), str) else ""


def _get(port: int, path: str) -> tuple[int, Any, str] | None:
    """(status, the JSON, what the server calls itself); None: nobody, or nothing of that kind."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read(_MOST)), response.headers.get("Server", "")
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None
    finally:
        connection.close()
