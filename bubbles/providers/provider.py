"""A provider: who takes one request and gives one answer, or a ModelError that says which kind of failure it was.

It does not know sessions, turns or retries: one `ask` is one request. The wire format of a provider exists in this
package only; what comes in and goes out is canonical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict


class Capabilities(TypedDict):
    """What a model can do. 0 tokens: not known; `reasoning` and `after_tool` as in bubbles.kernel.context.Shape.

    `output_tokens`: of one answer at most; `vision`: it sees images; `cache`: the provider keeps the beginning of a request for the next.
    """

    tools: bool
    vision: bool
    cache: bool
    window_tokens: int
    output_tokens: int
    reasoning: str
    after_tool: str


def able(traits: Any) -> Capabilities:
    """What a model can do of which bubbles.providers.catalogue tells such traits."""
    return Capabilities(
        tools=traits.tools,
        vision=traits.vision,
        cache=traits.cache,
        window_tokens=traits.window_tokens,
        output_tokens=traits.output_tokens,
        reasoning=traits.reasoning,
        after_tool="user_ok",
    )


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. `messages` are canonical JSON objects as bytes, `tools` a JSON array or b"" for none.

    `timeout_s` bounds a whole answer and, of a stream, the wait for its first words; `idle_s` the waits between those and the next, where it is less.
    `marks`: which of bubbles.providers.body.MARKS the messages hold, where that is known already.
    """

    id: str
    model: str
    messages: Sequence[bytes]
    tools: bytes = b""
    temperature: float = 0.7
    max_tokens: int = 8192
    timeout_s: float = 120.0
    idle_s: float = 120.0
    marks: frozenset[bytes] | None = None

    @property
    def pause_s(self) -> float:
        """How long a stream that has begun may bring nothing of the answer."""
        return min(self.idle_s, self.timeout_s)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said. `calls` are {"id", "name", "arguments": JSON text as given}; `usage` counts tokens.

    `input` (`cached` and `cache_write` of them) and `output` (`reasoning` of them); what is missing is none, or was not told.
    """

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
