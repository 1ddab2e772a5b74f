"""The registry is the promise: its list, and its settings classes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bubbles.config import load
from bubbles.config import providers as sections
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.providers import REGISTRY, find, open
from bubbles.providers.provider import Capabilities, Provider

PROMISED = {
    "direct": "Anthropic, OpenAI, Google Gemini, DeepSeek, Groq, Moonshot, Minimax, Zhipu, Dashscope",
    "gateway": "OpenRouter, AiHubMix, SiliconFlow, VolcEngine",
    "self-hosted": "Custom, Ollama, vLLM",
    "oauth": "OpenAI Codex, GitHub Copilot",
    "embedded": "embedded",
}


@pytest.mark.parametrize("category", PROMISED)
def test_the_list_is_the_promised_one(category: str) -> None:
    assert ", ".join(e.title for e in REGISTRY.values() if e.category == category) == PROMISED[category]


def test_each_entry_has_its_settings_and_each_setting_its_entry() -> None:
    fields = {name: field.annotation for name, field in sections.Providers.model_fields.items()}
    assert fields == {entry.name: getattr(sections, entry.settings) for entry in REGISTRY.values()}


def test_what_is_built_is_the_same_in_the_settings() -> None:
    assert sections.built() == [name for name, entry in REGISTRY.items() if entry.implementation]
    for entry in REGISTRY.values():
        if entry.implementation:
            assert find(sections.known(entry.name)) is find(entry.title) is entry


@pytest.mark.parametrize("name", ["custom", "ollama", "vllm"])
def test_the_owner_says_what_a_model_can(name: str, home: Home) -> None:
    traits = {"models": {"m": {"tools": False, "context_tokens": 9000, "reasoning": "require"}}, "base_url": "http://127.0.0.1:1/v1"}
    home.config.write_text(json.dumps({"providers": {name: traits}}))
    home.config.chmod(0o600)
    can = open(name, load(home, "providers").providers, home).capabilities
    assert (can("m")["tools"], can("m")["window_tokens"], can("m")["reasoning"]) == (False, 9000, "require")
    assert can("other")["tools"] is True


@pytest.mark.parametrize("name", ["ollama", "vllm", "embedded", "openai_codex", "github_copilot"])
def test_what_is_built_opens_with_its_defaults(name: str, home: Home) -> None:
    provider: Provider = open(name, load(home, "providers").providers, home)
    assert set(provider.capabilities("x")) == Capabilities.__required_keys__


def test_custom_needs_an_address(home: Home) -> None:
    with pytest.raises(Misconfigured, match=r"providers\.custom has no base_url"):
        open("custom", load(home, "providers").providers, home)


@pytest.mark.parametrize("written", ["openai_codex", "OpenAI Codex", "openai-codex", "OPENAI_CODEX"])
def test_a_name_is_found_as_people_write_it(written: str) -> None:
    assert find(written).name == "openai_codex"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(Misconfigured, match="no provider 'gpt5'") as refused:
        find("gpt5")
    assert all(name in refused.value.remedy for name in REGISTRY)


def test_listing_loads_nothing() -> None:
    heavy = "('httptools', 'pydantic', 'xllamacpp', 'litellm')"
    code = f"import sys, bubbles.providers.route; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
