"""The model servers that run on this machine, found by asking the ports where they usually are. Nothing but loopback is asked."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from dataclasses import dataclass

PLACES = (("Ollama", 11434), ("vLLM", 8000), ("llama.cpp", 8080))

_PATIENCE_S = 1.0
_MOST = 1 << 20  # bytes of a list of models


@dataclass(frozen=True, slots=True)
class Server:
    """One that speaks OpenAI's protocol. `title` is what usually runs at its port; `locked`: it wants a key before it tells its models."""

    title: str
    base_url: str
    models: tuple[str, ...] = ()
    locked: bool = False


def look(places: Iterable[tuple[str, int]] = PLACES) -> list[Server]:
    """The servers among `places` (title, port)."""
    return [server for title, port in places if (server := _ask(title, port)) is not None]


def _ask(title: str, port: int) -> Server | None:
    base_url = f"http://127.0.0.1:{port}/v1"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        told = json.loads(response.read(_MOST))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None  # nobody, or not one of these
    finally:
        connection.close()
    if response.status == 401 and isinstance(told, dict) and "error" in told:
        return Server(title, base_url, locked=True)
    models = told.get("data") if response.status == 200 and isinstance(told, dict) else None
    if not isinstance(models, list):
        return None
    names = [model.get("id") for model in models if isinstance(model, dict)]
    return Server(title, base_url, tuple(name for name in names if isinstance(name, str) and name.isprintable() and " " not in name))
