"""Where a model's name leads, and that the reason can be read from the name."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config import Settings, load
from bubbles.config.agents import Agents
from bubbles.config.providers import Providers
from bubbles.errors import Misconfigured
from bubbles.paths import Home
from bubbles.providers import DIRECT, GATEWAY, OAUTH, REGISTRY
from bubbles.providers.route import Route, is_set_up, route

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
    ({"custom": HERE}, "llama3", "custom", "custom", "llama3", "is named"),
    ({}, "llama3", "Ollama", "ollama", "llama3", "is named"),
    ({}, "ollama/llama3", "ollama", "ollama", "llama3", "is named"),
    ({}, "gpt-5", "openai_codex", "openai_codex", "gpt-5", "is named"),
    ({"openrouter": KEY}, "anthropic/claude-4", "openrouter", "openrouter", "anthropic/claude-4", "is named"),
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
    ({"vllm": {"models": {"only": {}}}}, "", "vllm", "vllm", "only", "is named"),
    ({"ollama": {"models": {"a": {}}}}, "b", "", "ollama", "b", "takes any model"),
    ({"anthropic": KEY, "openai": KEY}, "claude-4", "", "anthropic", "claude-4", '"claude"'),
    ({"anthropic": KEY, "openai": KEY}, "gpt-5", "", "openai", "gpt-5", '"gpt"'),
    ({"openai": KEY}, "o3-mini", "", "openai", "o3-mini", '"o3"'),
    ({"openai": {"headers": {"Authorization": "Bearer x"}}}, "gpt-5", "", "openai", "gpt-5", '"gpt"'),
    ({"deepseek": KEY, "dashscope": KEY}, "deepseek-r1-distill-qwen", "", "deepseek", "deepseek-r1-distill-qwen", '"deepseek"'),
    ({"dashscope": KEY, "custom": HERE}, "qwen3", "", "dashscope", "qwen3", '"qwen"'),
    ({"custom": HERE}, "qwen3", "", "custom", "qwen3", "takes any model"),
    ({"openai": KEY, "custom": HERE}, "turbo1", "", "custom", "turbo1", "takes any model"),
    ({"siliconflow": KEY}, "some/thing", "", "siliconflow", "some/thing", "takes any model"),
    ({"openrouter": KEY}, "openrouter/openai/gpt-5", "", "openrouter", "openai/gpt-5", 'begins with "openrouter/"'),
    ({"openrouter": KEY}, "openrouter/auto", "", "openrouter", "openrouter/auto", 'begins with "openrouter/"'),
    ({"openrouter": KEY}, "openrouter/auto", "openrouter", "openrouter", "openrouter/auto", "is named"),
    ({}, "GitHub-Copilot/gpt-5", "github copilot", "github_copilot", "gpt-5", "is named"),
    ({"custom": HERE, "siliconflow": KEY}, "custom/some/thing", "", "custom", "some/thing", 'begins with "custom/"'),
    ({"custom": HERE, "siliconflow": KEY}, "some/thing", "siliconflow", "siliconflow", "some/thing", "is named"),
    ({"custom": HERE, "openrouter": KEY, "deepseek": KEY}, "deepseek-chat", "", "deepseek", "deepseek-chat", '"deepseek"'),
    ({"custom": {**HERE, "models": {"m": {}}}, "ollama": {"models": {"n": {}}}}, "m", "", "custom", "m", "providers.custom.models"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "tiny", "", "embedded", "Tiny", "model_path"),
    ({"embedded": {"model_path": "/m/SmolLM2.gguf"}}, "smollm", "", "embedded", "SmolLM2", '"smollm"'),
    ({}, "embedded/anything", "", "embedded", "embedded", 'begins with "embedded/"'),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "", "", "embedded", "Tiny", "no model is named"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "", "embedded", "embedded", "Tiny", "is named"),
    ({"custom": {**HERE, "models": {"only": {}}}}, "", "", "custom", "only", "no model is named"),
]


@pytest.mark.parametrize(("providers", "model", "provider", "to", "name", "why"), CASES)
def test_a_route_and_its_reason(home: Home, providers: dict[str, Any], model: str, provider: str, to: str, name: str, why: str) -> None:
    found = route(settings(home, providers), model, provider)
    assert (found.provider, found.model) == (to, name)
    assert why in found.why


def test_the_defaults_stand_in_for_what_is_not_said(home: Home) -> None:
    found = route(settings(home, {}, model="llama3", provider="vllm"))
    assert (found.provider, found.model, found.why) == ("vllm", "llama3", "agents.defaults.provider is vllm")
    assert route(settings(home, {}, model="llama3", provider="vllm"), "", "ollama").provider == "ollama"


def test_a_model_that_stands_in_is_found_by_its_own_name_and_never_by_a_login(home: Home) -> None:
    ways = {"model": "gpt-5", "provider": "openai_codex", "fallbacks": ["claude-4", "glm", "gpt-5"]}
    found = settings(home, {"anthropic": KEY, "custom": HERE})
    agents = found.agents.model_copy(update={"defaults": found.agents.defaults.model_copy(update=ways)})
    found = Settings(home, {"agents": agents, "providers": found.providers})
    assert [route(found, model).provider for model in ("", "claude-4", "glm", "gpt-5", "another")] == [
        "openai_codex",
        "anthropic",
        "custom",
        "openai_codex",
        "openai_codex",
    ]
    assert route(found, "glm", "openai_codex").provider == "openai_codex"


REFUSED = [
    ({}, "gpt-5", "", "it is OpenAI's, which is not set up", "bubbles onboard --provider openai"),
    ({}, "claude-sonnet-4-5", "", "it is Anthropic's, which is not set up", "bubbles onboard --provider anthropic"),
    ({}, "nonsense-xyz", "", "no provider that is set up", "onboard"),
    ({}, "", "", "no model is set up", "onboard"),
    ({"embedded": {"model_path": "/m/Tiny.gguf"}}, "gpt-5", "", "no provider that is set up", "onboard"),
    ({}, "", "ollama", "no model is named", "agents.defaults.model"),
    ({}, "x", "nobody", "no provider 'nobody'", "anthropic"),
    ({}, "openai_codex/gpt-5", "", "only where it is chosen by name", "openai_codex"),
    ({}, "github_copilot/gpt-5", "", "only where it is chosen by name", "github_copilot"),
    ({}, "OpenAI-Codex/gpt-5", "", "only where it is chosen by name", "openai_codex"),
]


@pytest.mark.parametrize(("providers", "model", "provider", "text", "remedy"), REFUSED)
def test_what_leads_nowhere_is_refused_with_a_remedy(
    home: Home, providers: dict[str, Any], model: str, provider: str, text: str, remedy: str
) -> None:
    with pytest.raises(Misconfigured, match=text) as refused:
        route(settings(home, providers), model, provider)
    assert remedy in refused.value.remedy


TWO = [
    # set up, model → who may be meant
    ({"custom": HERE, "openrouter": KEY}, "some/thing", ["openrouter", "custom"]),
    ({"openrouter": KEY, "siliconflow": KEY}, "llama3", ["openrouter", "siliconflow"]),
    ({"openrouter": KEY, "aihubmix": KEY}, "anthropic/claude-4", ["openrouter", "aihubmix"]),
    ({"custom": HERE, "ollama": HERE, "vllm": HERE}, "llama3", ["custom", "ollama", "vllm"]),
    ({"custom": {**HERE, "models": {"m": {}}}, "vllm": {"models": {"m": {}}}}, "m", ["custom", "vllm"]),
    ({"ollama": {"models": {"tiny": {}}}, "embedded": {"model_path": "/m/Tiny.gguf"}}, "tiny", ["ollama", "embedded"]),
]


@pytest.mark.parametrize(("providers", "model", "names"), TWO)
def test_a_name_that_several_claim_alike_is_an_error_that_says_what_to_write(
    home: Home, providers: dict[str, Any], model: str, names: list[str]
) -> None:
    found = settings(home, providers)
    with pytest.raises(Misconfigured) as refused:
        route(found, model)
    assert all(name in refused.value.text for name in names)
    written = re.findall(r"\w+/[^ ,]+", refused.value.remedy)
    assert written == [f"{name}/{model}" for name in names]
    assert "agents.defaults.provider" in refused.value.remedy
    assert [route(found, each).provider for each in written] == names
    assert [route(found, model, each).provider for each in names] == names


# -- any configuration and any name --------------------------------------------------------------------

KEYED = [name for name, entry in REGISTRY.items() if entry.category in (DIRECT, GATEWAY)]
WORDS = [word for entry in REGISTRY.values() for word in entry.keywords]
names = st.one_of(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyz-_/:.0123456789", min_size=1, max_size=20),
    st.builds("{}{}{}".format, st.sampled_from([*REGISTRY, *WORDS]), st.sampled_from(["/", "-", "", "/x/"]), st.sampled_from(["m", "4", *WORDS])),
    st.sampled_from(["gpt-5-codex", "copilot", "openai codex", "tiny", "listed"]),
)
installations = st.builds(
    lambda keyed, hosted, listing, file: {
        **dict.fromkeys(keyed, KEY),
        **{name: HERE | ({"models": {"listed": {}}} if name in listing else {}) for name in hosted},
        **({"embedded": {"model_path": "/m/Tiny.gguf"}} if file else {}),
    },
    st.sets(st.sampled_from(KEYED), max_size=4),
    st.sets(st.sampled_from(["custom", "ollama", "vllm"])),
    st.sets(st.sampled_from(["custom", "ollama", "vllm"])),
    st.booleans(),
)


class Sections(dict[str, Any]):
    """Settings without a file: what the section providers says, and no defaults."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


BLANK = Providers()


def quick(providers: dict[str, Any]) -> Any:
    """What `settings` finds, without a file."""
    sections = {name: getattr(BLANK, name).model_copy(update=raw) for name, raw in providers.items()}
    return Sections(agents=Agents(), providers=BLANK.model_copy(update=sections))


def outcome(providers: dict[str, Any], model: str, provider: str = "") -> Route | Misconfigured:
    try:
        return route(quick(providers), model, provider)
    except Misconfigured as error:
        return error


@given(installations, names)
def test_a_route_leads_to_one_that_is_set_up_or_named_and_never_to_a_login(providers: dict[str, Any], model: str) -> None:
    found = outcome(providers, model)
    if isinstance(found, Misconfigured):
        assert found.text
        assert found.remedy
        return
    entry = REGISTRY[found.provider]
    assert entry.category != OAUTH
    assert found.why
    assert found.model
    assert is_set_up(entry, quick(providers)) or model.partition("/")[0].replace("-", "_") == entry.name


@given(installations, names)
def test_what_is_refused_as_unclear_says_two_ways_to_write_it_and_each_leads_where_it_says(providers: dict[str, Any], model: str) -> None:
    found = outcome(providers, model)
    if not isinstance(found, Misconfigured) or "may be that of" not in found.text:
        return
    written = re.findall(rf"(\w+)/(?={re.escape(model)})", found.remedy)
    assert len(written) >= 2
    for name in written:
        clear = outcome(providers, f"{name}/{model}")
        assert isinstance(clear, Route)
        assert clear.provider == name


@given(installations, names, st.sampled_from(list(REGISTRY)))
def test_the_provider_that_is_named_answers_whatever_else_is_set_up(providers: dict[str, Any], model: str, provider: str) -> None:
    found = outcome(providers, model, provider)
    assert isinstance(found, Route)
    assert found.provider == provider


@given(installations, names)
def test_the_order_in_which_providers_were_set_up_decides_nothing(providers: dict[str, Any], model: str) -> None:
    one, other = outcome(providers, model), outcome(dict(reversed(providers.items())), model)
    assert getattr(one, "text", one) == getattr(other, "text", other)


@given(installations, names, st.sampled_from(KEYED))
def test_another_key_never_moves_a_name_silently_between_two_others(providers: dict[str, Any], model: str, more: str) -> None:
    before, after = outcome(providers, model), outcome({**providers, more: KEY}, model)
    if isinstance(before, Route) and isinstance(after, Route):
        assert after.provider in (before.provider, more)
