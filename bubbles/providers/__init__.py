"""The registry of providers: who can be asked for an answer. Listing it loads none of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bubbles.errors import Misconfigured

if TYPE_CHECKING:
    from bubbles.paths import Home
    from bubbles.providers.provider import Provider

DIRECT, GATEWAY, SELF_HOSTED, OAUTH, EMBEDDED = "direct", "gateway", "self-hosted", "oauth", "embedded"
_CUSTOM, _EMBEDDED = "bubbles.providers.custom:Custom", "bubbles.providers.embedded:Embedded"


@dataclass(frozen=True, slots=True)
class Entry:
    """One provider: its class in bubbles.config.providers, its code (None: not built yet), and the words in a model's name that mean it."""

    name: str
    title: str
    category: str
    settings: str
    implementation: str | None = None
    keywords: tuple[str, ...] = ()
    base_url: str = ""  # where the owner gives none


_ENTRIES = (
    Entry("anthropic", "Anthropic", DIRECT, "Anthropic", None, ("claude", "anthropic")),
    Entry("openai", "OpenAI", DIRECT, "OpenAI", None, ("gpt", "chatgpt", "openai", "o1", "o3", "o4")),
    Entry("gemini", "Google Gemini", DIRECT, "Gemini", None, ("gemini",)),
    Entry("deepseek", "DeepSeek", DIRECT, "DeepSeek", None, ("deepseek",)),
    Entry("groq", "Groq", DIRECT, "Groq", None, ("groq",)),
    Entry("moonshot", "Moonshot", DIRECT, "Moonshot", None, ("kimi", "moonshot")),
    Entry("minimax", "Minimax", DIRECT, "MiniMax", None, ("minimax", "abab")),
    Entry("zhipu", "Zhipu", DIRECT, "Zhipu", None, ("glm", "zhipu")),
    Entry("dashscope", "Dashscope", DIRECT, "DashScope", None, ("qwen", "qwq", "dashscope")),
    Entry("openrouter", "OpenRouter", GATEWAY, "OpenRouter", None, ("openrouter",)),
    Entry("aihubmix", "AiHubMix", GATEWAY, "AiHubMix", None, ("aihubmix",)),
    Entry("siliconflow", "SiliconFlow", GATEWAY, "SiliconFlow", None, ("siliconflow",)),
    Entry("volcengine", "VolcEngine", GATEWAY, "VolcEngine", None, ("doubao", "volcengine")),
    Entry("custom", "Custom", SELF_HOSTED, "Custom", _CUSTOM),
    Entry("ollama", "Ollama", SELF_HOSTED, "Ollama", _CUSTOM, ("ollama",), "http://127.0.0.1:11434/v1"),
    Entry("vllm", "vLLM", SELF_HOSTED, "Vllm", _CUSTOM, ("vllm",), "http://127.0.0.1:8000/v1"),
    Entry("openai_codex", "OpenAI Codex", OAUTH, "OpenAICodex"),
    Entry("github_copilot", "GitHub Copilot", OAUTH, "GitHubCopilot"),
    Entry("embedded", "embedded", EMBEDDED, "Embedded", _EMBEDDED, ("smollm",)),
)
REGISTRY: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def find(name: str) -> Entry:
    """The entry of a provider's name as a person writes it. Raises Misconfigured where there is none.

    >>> find("OpenAI-Codex").name
    'openai_codex'
    """
    folded = _fold(name)
    for entry in _ENTRIES:
        if folded in (_fold(entry.name), _fold(entry.title)):
            return entry
    raise Misconfigured(f"there is no provider {name!r}", remedy=f"agents.defaults.provider is one of: {', '.join(REGISTRY)}")


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def open(name: str, settings: Any, home: Home) -> Provider:
    """The provider `name`, set up by the section `providers`. Raises Misconfigured where it is not built yet, or its settings do not do."""
    entry = REGISTRY[name]
    if entry.implementation is None:
        built = ", ".join(e.name for e in _ENTRIES if e.implementation)
        raise Misconfigured(f"the provider {entry.title} is not built yet", remedy=f"set agents.defaults.provider to one of: {built}")
    module, _, cls = entry.implementation.partition(":")
    made: Provider = getattr(importlib.import_module(module), cls).open(entry, getattr(settings, name), home)
    return made


def revealed(secret: Any) -> str:
    """The text of a setting that may be wrapped as a secret."""
    return str(secret.get_secret_value() if hasattr(secret, "get_secret_value") else secret)
