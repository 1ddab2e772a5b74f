"""A canonical request as each vendor gets it: by the code that modeld has before LiteLLM, and by LiteLLM's own translation. Nothing is sent.

LiteLLM takes seconds to load, so it is loaded by the first request that is translated, and not where tests are only collected.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from bubbles.providers.lite_request import request
from bubbles.providers.lite_thoughts import Thoughts
from bubbles.providers.provider import Ask, Capabilities
from tests.kernel.histories import anthropic_rules, gemini_rules, openai_rules

Body = dict[str, Any]
ANTHROPIC, GEMINI, NEWER_GEMINI = "claude-sonnet-4-5", "gemini-2.5-pro", "gemini-3-pro-preview"


@functools.cache
def _library() -> Any:
    """LiteLLM, with everything switched off that modeld switches off."""
    return importlib.import_module("bubbles.providers.lite_library").litellm


def openai(lines: Sequence[bytes], tools: bytes, can: Capabilities) -> Body:
    """As OpenAI's chat interface gets it, and those modelled on it."""
    return {"model": "gpt-5", **_asked(lines, tools, can, marked=False)}


def anthropic(lines: Sequence[bytes], tools: bytes, can: Capabilities) -> Body:
    """As Anthropic gets it."""
    asked = _asked(lines, tools, can, marked=True)
    messages = asked.pop("messages")
    made: Body = _library().AnthropicConfig().transform_request(ANTHROPIC, messages, _options("AnthropicConfig", ANTHROPIC, asked), {}, {})
    return made


def gemini(lines: Sequence[bytes], tools: bytes, can: Capabilities, model: str = GEMINI) -> Body:
    """As Gemini gets it."""
    asked = _asked(lines, tools, can, marked=False, prefix="gemini")
    messages = asked.pop("messages")
    from litellm.llms.vertex_ai.gemini.transformation import transform_request_body

    return dict(transform_request_body(messages, model, _options("GoogleAIStudioGeminiConfig", model, asked), "gemini", {}, None))


def _options(config: str, model: str, asked: Body) -> Body:
    """What stands beside the messages, as the vendor calls it; made anew, for it is altered by what puts a request together."""
    made: Body = json.loads(_mapped(config, model, json.dumps(asked)))
    return made


@functools.cache
def _mapped(config: str, model: str, asked: str) -> str:
    """As JSON. The schemas of the tools take longer than all messages, and are the same in nearly every request."""
    return json.dumps(getattr(_library(), config)().map_openai_params(json.loads(asked), {}, model, False))


def _asked(lines: Sequence[bytes], tools: bytes, can: Capabilities, *, marked: bool, prefix: str = "") -> Body:
    ask = Ask(id="t.0", model="m", messages=list(lines), tools=tools, temperature=0.1, max_tokens=1024, timeout_s=1.0)
    return request(ask, can, Thoughts(), streamed=False, marked=marked, prefix=prefix)


def _plain(body: Any) -> Any:
    """What goes over the wire: JSON and nothing else."""
    return json.loads(json.dumps(body))


VENDORS: dict[str, Callable[[Sequence[bytes], bytes, Capabilities], list[str]]] = {
    "openai": lambda lines, tools, can: openai_rules.faults(openai(lines, tools, can)),
    "anthropic": lambda lines, tools, can: anthropic_rules.faults(_plain(anthropic(lines, tools, can))),
    "gemini": lambda lines, tools, can: gemini_rules.faults(_plain(gemini(lines, tools, can))),
    "gemini 3": lambda lines, tools, can: gemini_rules.faults(_plain(gemini(lines, tools, can, NEWER_GEMINI))),
}
