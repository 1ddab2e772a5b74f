"""Where a model's name leads, and that the reason can be read from the name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config import Settings, load
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.providers import OAUTH, REGISTRY
from bubbles.providers.route import route

KEY = {"api_key": "sk-0123456789"}
HERE = {"base_url": "http://127.0.0.1:1/v1"}


def settings(home: Home, providers: dict[str, Any], **defaults: Any) -> Any:
    """What the file says; and of a provider that is not built, what it will say once it is: the rules are there already."""
    to_come = {name: raw for name, raw in providers.items() if REGISTRY[name].implementation is None}
    now = {name: raw for name, raw in providers.items() if name not in to_come}
    home.config.write_text(json.dumps({"version": 1, "agents": {"defaults": defaults}, "providers": now}))
    home.config.chmod(0o600)
    found = load(home, "agents", "providers")
    sections = {name: getattr(found.providers, name).model_copy(update=raw) for name, raw in to_come.items()}
    return Settings(home, {"agents": found.agents, "providers": found.providers.model_copy(update=sections)})


CASES = [
    # set up, model, provider → provider, model, a word of the reason
    ({"custom": HERE}, "llama3", "custom", "custom", "llama3", "named in the settings"),
    ({}, "llama3", "Ollama", "ollama", "llama3", "named in the settings"),
    ({}, "ollama/llama3", "ollama", "ollama", "llama3", "named in the settings"),
    ({}, "gpt-5", "openai_codex", "openai_codex", "gpt-5", "named in the settings"),
    ({"openrouter": KEY}, "anthropic/claude-4", "openrouter", "openrouter", "anthropic/claude-4", "named in the settings"),
    ({}, "ollama/qwen3:8b", "", "ollama", "qwen3:8b", 'begins with "ollama/"'),
    ({"custom": HERE}, "custom/a/b", "", "custom", "a/b", 'begins with "custom/"'),
    ({"anthropic": KEY}, "anthropic/claude-4", "", "anthropic", "claude-4", 'begins with "anthropic/"'),
    ({"anthropic": KEY, "openrouter": KEY}, "anthropic/claude-4", "", "anthropic", "claude-4", 'begins with "anthropic/"'),
    ({"openrouter": KEY}, "anthropic/claude-4", "", "openrouter", "anthropic/claude-4", "anthropic has no key; openrouter"),
    ({}, "anthropic/claude-4", "", "anthropic", "claude-4", 'begins with "anthropic/"'),
    ({"custom": {**HERE, "models": {"openai/gpt-oss": {}}}, "openai": KEY}, "openai/gpt-oss", "", "custom", "openai/gpt-oss", "models"),
    ({"custom": HERE}, "openai/gpt-oss", "", "custom", "openai/gpt-oss", "openai has no key; custom"),
    ({"custom": {**HERE, "models": {"gpt-x": {}}}, "openai": KEY}, "gpt-x", "", "custom", "gpt-x", "providers.custom.models"),
    ({"ollama": {"models": {"gpt-x": {}}}, "openai": KEY}, "gpt-x", "", "ollama", "gpt-x", "providers.ollama.models"),
    ({"vllm": {"models": {"only": {}}}}, "", "vllm", "vllm", "only", "named in the settings"),
    ({"ollama": {"models": {"a": {}}}}, "b", "", "ollama", "b", "takes any model"),
    ({"anthropic": KEY, "openai": KEY}, "claude-4", "", "anthropic", "claude-4", '"claude"'),
    ({"anthropic": KEY, "openai": KEY}, "gpt-5", "", "openai", "gpt-5", '"gpt"'),
    ({"openai": KEY}, "o3-mini", "", "openai", "o3-mini", '"o3"'),
    ({"deepseek": KEY, "dashscope": KEY}, "deepseek-r1-distill-qwen", "", "deepseek", "deepseek-r1-distill-qwen", '"deepseek"'),
    ({"dashscope": KEY, "custom": HERE}, "qwen3", "", "dashscope", "qwen3", '"qwen"'),
    ({"custom": HERE}, "qwen3", "", "custom", "qwen3", "takes any model"),
    ({"openai": KEY, "custom": HERE}, "turbo1", "", "custom", "turbo1", "takes any model"),
    ({"custom": HERE, "siliconflow": KEY}, "some/thing", "", "siliconflow", "some/thing", "takes any model"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "tiny", "", "embedded", "Tiny", "model_path"),
    ({"embedded": {"model_path": "/m/SmolLM2.gguf"}}, "smollm", "", "embedded", "SmolLM2", '"smollm"'),
    ({}, "embedded/anything", "", "embedded", "embedded", 'begins with "embedded/"'),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "", "", "embedded", "Tiny", "no model is named"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "", "embedded", "embedded", "Tiny", "named in the settings"),
    ({"custom": {**HERE, "models": {"only": {}}}}, "", "", "custom", "only", "no model is named"),
]


@pytest.mark.parametrize(("providers", "model", "provider", "to", "name", "why"), CASES)
def test_a_route_and_its_reason(home: Home, providers: dict[str, Any], model: str, provider: str, to: str, name: str, why: str) -> None:
    found = route(settings(home, providers), model, provider)
    assert (found.provider, found.model) == (to, name)
    assert why in found.why


def test_the_defaults_stand_in_for_what_is_not_said(home: Home) -> None:
    found = route(settings(home, {}, model="llama3", provider="vllm"))
    assert (found.provider, found.model) == ("vllm", "llama3")
    assert route(settings(home, {}, model="llama3", provider="vllm"), "", "ollama").provider == "ollama"


REFUSED = [
    ({}, "gpt-5", "", "no provider that is set up", "onboard"),
    ({}, "", "", "no model is set up", "onboard"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "gpt-5", "", "no provider that is set up", "onboard"),
    ({}, "", "ollama", "no model is named", "agents.defaults.model"),
    ({}, "x", "nobody", "no provider 'nobody'", "anthropic"),
    ({}, "openai_codex/gpt-5", "", "only where it is chosen by name", "openai_codex"),
    ({}, "github_copilot/gpt-5", "", "only where it is chosen by name", "github_copilot"),
]


@pytest.mark.parametrize(("providers", "model", "provider", "text", "remedy"), REFUSED)
def test_what_leads_nowhere_is_refused_with_a_remedy(
    home: Home, providers: dict[str, Any], model: str, provider: str, text: str, remedy: str
) -> None:
    with pytest.raises(Misconfigured, match=text) as refused:
        route(settings(home, providers), model, provider)
    assert remedy in refused.value.remedy


def test_a_login_is_never_found_by_matching(home: Home) -> None:
    everything = settings(home, {n: KEY for n, e in REGISTRY.items() if e.category in ("direct", "gateway")} | {"custom": HERE})

    @given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz-_/:.0123456789", min_size=1) | st.sampled_from(["gpt-5-codex", "copilot", "openai codex"]))
    def check(model: str) -> None:
        try:
            found = route(everything, model)
        except Misconfigured:
            return
        assert REGISTRY[found.provider].category != OAUTH
        assert found.why

    check()
