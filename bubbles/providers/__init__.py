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
_CUSTOM, _EMBEDDED, _LITE = "bubbles.providers.custom:Custom", "bubbles.providers.embedded:Embedded", "bubbles.providers.lite:Lite"
_CODEX, _COPILOT = "bubbles.providers.codex:Codex", "bubbles.providers.copilot:Copilot"


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
    litellm: str = ""  # what LiteLLM calls it, where that is not `name`


_ENTRIES = (
    Entry("anthropic", "Anthropic", DIRECT, "Anthropic", _LITE, ("claude", "anthropic"), "https://api.anthropic.com"),
    Entry("openai", "OpenAI", DIRECT, "OpenAI", _LITE, ("gpt", "chatgpt", "openai", "o1", "o3", "o4"), "https://api.openai.com/v1"),
    Entry("gemini", "Google Gemini", DIRECT, "Gemini", _LITE, ("gemini",), "https://generativelanguage.googleapis.com/v1beta"),
    Entry("deepseek", "DeepSeek", DIRECT, "DeepSeek", _LITE, ("deepseek",), "https://api.deepseek.com"),
    Entry("groq", "Groq", DIRECT, "Groq", _LITE, ("groq",), "https://api.groq.com/openai/v1"),
    Entry("moonshot", "Moonshot", DIRECT, "Moonshot", _LITE, ("kimi", "moonshot"), "https://api.moonshot.ai/v1"),
    Entry("minimax", "Minimax", DIRECT, "MiniMax", _LITE, ("minimax", "abab"), "https://api.minimax.io/v1"),
    Entry("zhipu", "Zhipu", DIRECT, "Zhipu", _LITE, ("glm", "zhipu"), "https://open.bigmodel.cn/api/paas/v4", "zai"),
    Entry("dashscope", "Dashscope", DIRECT, "DashScope", _LITE, ("qwen", "qwq", "dashscope"), "https://dashscope.aliyuncs.com/compatible-mode/v1"),
    Entry("openrouter", "OpenRouter", GATEWAY, "OpenRouter", _LITE, ("openrouter",), "https://openrouter.ai/api/v1"),
    Entry("aihubmix", "AiHubMix", GATEWAY, "AiHubMix", _LITE, ("aihubmix",), "https://aihubmix.com/v1"),
    Entry("siliconflow", "SiliconFlow", GATEWAY, "SiliconFlow", _LITE, ("siliconflow",), "https://api.siliconflow.cn/v1", "custom_openai"),
    Entry("volcengine", "VolcEngine", GATEWAY, "VolcEngine", _LITE, ("doubao", "volcengine"), "https://ark.cn-beijing.volces.com/api/v3"),
    Entry("custom", "Custom", SELF_HOSTED, "Custom", _CUSTOM),
    Entry("ollama", "Ollama", SELF_HOSTED, "Ollama", _CUSTOM, ("ollama",), "http://127.0.0.1:11434/v1"),
    Entry("vllm", "vLLM", SELF_HOSTED, "Vllm", _CUSTOM, ("vllm",), "http://127.0.0.1:8000/v1"),
    Entry("openai_codex", "OpenAI Codex", OAUTH, "OpenAICodex", _CODEX, base_url="https://chatgpt.com/backend-api/codex"),
    Entry("github_copilot", "GitHub Copilot", OAUTH, "GitHubCopilot", _COPILOT, base_url="https://api.githubcopilot.com"),
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
