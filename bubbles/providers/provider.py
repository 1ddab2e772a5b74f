"""A provider: who takes one request and gives one answer, or a ModelError that says which kind of failure it was.

It does not know sessions, turns or retries: one `ask` is one request. The wire format of a provider exists in this
package only; what comes in and goes out is canonical.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict


class Capabilities(TypedDict):
    """What a model can do. `window_tokens` 0: not known; `reasoning` and `after_tool` as in bubbles.kernel.context.Shape."""

    tools: bool
    window_tokens: int
    reasoning: str
    after_tool: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. `messages` are canonical JSON objects as bytes, `tools` a JSON array or b"" for none."""

    id: str
    model: str
    messages: list[bytes]
    tools: bytes = b""
    temperature: float = 0.7
    max_tokens: int = 8192
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said. `calls` are {"id", "name", "arguments": JSON text as given}; `usage` counts tokens: input, output, cached."""

    text: str
    calls: tuple[dict[str, str], ...] = ()
    reasoning: str = ""
    usage: dict[str, int] = field(default_factory=dict)
    stop: str = ""
    model: str = ""


class Provider(Protocol):
    """One party that can be asked."""

    async def ask(self, ask: Ask, on_text: Callable[[str], None] | None) -> Answer:
        """One request, one answer. `on_text`, if given, is handed the text as it comes. Raises ModelError; cancelled, the request is dropped."""
        ...

    def capabilities(self, model: str) -> Capabilities:
        """What is known of a model. Never asks anybody."""
        ...

    async def learn(self, model: str) -> None:
        """Find out what can be known of a model before it is asked; what cannot be had stays unknown. Never raises."""
        ...

    async def models(self) -> list[str]:
        """The models that can be asked for by name. Raises ModelError."""
        ...

    def state(self) -> dict[str, Any]:
        """What `bubbles status` shows."""
        ...

    async def close(self) -> None:
        """Let go of connections and processes."""
        ...
