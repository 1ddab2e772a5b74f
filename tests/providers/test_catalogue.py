"""What is known of models, and what a request costs: exact, or not told at all."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbles.config import load
from bubbles.config.providers import Traits as Own
from bubbles.paths import Home
from bubbles.providers import DIRECT, GATEWAY, REGISTRY, price_list
from bubbles.providers.catalogue import cost_micros, known, names, traits, with_own
from bubbles.providers.price_list import Index
from bubbles.providers.traits import FREE, UNKNOWN, UNPRICED, Prices, Traits


@pytest.fixture(scope="module")
def raw() -> dict[str, Any]:
    """The list as it lies there, read in one piece."""
    spec = importlib.util.find_spec("litellm")
    assert spec, "LiteLLM is a dependency"
    assert spec.submodule_search_locations
    found: dict[str, Any] = json.loads(Path(spec.submodule_search_locations[0], "model_prices_and_context_window_backup.json").read_bytes())
    return found


SPELLED = [
    # provider, name, the entry that it is
    ("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5"),
    ("anthropic", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929"),
    ("anthropic", "anthropic/Claude-Sonnet-4-5", "claude-sonnet-4-5"),
    ("openai", "gpt-4o", "gpt-4o"),
    ("openai", "ft:gpt-4o-2024-08-06:me::Ab1", "ft:gpt-4o-2024-08-06"),
    ("gemini", "gemini-2.5-pro", "gemini/gemini-2.5-pro"),
    ("gemini", "models/gemini-2.5-pro", "gemini/gemini-2.5-pro"),
    ("deepseek", "deepseek-chat", "deepseek/deepseek-chat"),
    ("groq", "openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
    ("minimax", "MiniMax-M2", "minimax/MiniMax-M2"),
    ("minimax", "minimax-m2", "minimax/MiniMax-M2"),
    ("moonshot", "kimi-k2.5", "moonshot/kimi-k2.5"),
    ("aihubmix", "claude-sonnet-5", "aihubmix/claude-sonnet-5"),
]


@pytest.mark.parametrize(("provider", "name", "key"), SPELLED)
def test_a_name_as_its_vendor_spells_it_is_the_entry_of_the_list(raw: dict[str, Any], provider: str, name: str, key: str) -> None:
    entry, found = raw[key], known(provider, name)
    assert (found.window_tokens, found.output_tokens) == (entry["max_input_tokens"], entry["max_output_tokens"])
    assert found.tools == entry.get("supports_function_calling", False)
    assert found.vision == entry.get("supports_vision", False)
    assert found.cache == entry.get("supports_prompt_caching", False)
    assert found.prices.input == pytest.approx(entry["input_cost_per_token"] * 1e6)
    assert found.prices.output == pytest.approx(entry["output_cost_per_token"] * 1e6)
    assert "in LiteLLM's list" in found.source


@pytest.mark.parametrize(
    ("provider", "name", "key", "abroad"),
    [
        ("zhipu", "glm-4.6", "zai/glm-4.6", "https://api.z.ai/api/paas/v4"),
        ("dashscope", "qwen-plus", "dashscope/qwen-plus", "https://dashscope-intl.aliyuncs.com/x"),
    ],
)
def test_a_price_is_that_of_the_address_that_is_asked(raw: dict[str, Any], provider: str, name: str, key: str, abroad: str) -> None:
    there, at_home = known(provider, name, abroad), known(provider, name)
    assert there.prices.input == pytest.approx(raw[key]["input_cost_per_token"] * 1e6)
    assert (at_home.prices, at_home.window_tokens) == (UNPRICED, there.window_tokens)
    assert "another address" in at_home.source
    assert known("zhipu", "glm-5.3").prices.input == pytest.approx(raw["bigmodel/glm-5.3"]["input_cost_per_token"] * 1e6)
    assert known("moonshot", "kimi-k2.5", "https://api.moonshot.cn/v1").prices == UNPRICED


def test_most_of_the_list_is_found_under_its_own_names(raw: dict[str, Any]) -> None:
    """That nothing is known of a whole provider would be seen nowhere else."""
    counted: dict[str, int] = {}
    for key, entry in raw.items():
        vendor = entry.get("litellm_provider", "")
        provider = "zhipu" if vendor == "zai" else vendor
        if provider in REGISTRY and provider != "ollama" and entry.get("mode") in ("chat", "responses"):
            assert known(provider, key.removeprefix(f"{vendor}/")) is not UNKNOWN, key
            counted[provider] = counted.get(provider, 0) + 1
    few = {"openrouter", "siliconflow"}  # the list has none of theirs
    assert set(counted) >= {name for name, entry in REGISTRY.items() if entry.category in (DIRECT, GATEWAY)} - few
    assert sum(counted.values()) > 300


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("anthropic", "claude"),
        ("anthropic", "claude-sonnet-4"),
        ("anthropic", "claude-sonnet-4-5-preview"),
        ("anthropic", "gpt-4o"),
        ("openai", "claude-sonnet-4-5"),
        ("openai", "text-embedding-3-small"),
        ("openai", "gpt-4o:free"),
        ("siliconflow", "deepseek-ai/DeepSeek-V3"),
        ("openrouter", "meta-llama/llama-3.3-70b-instruct"),
        ("openrouter", "google/gemma-3-27b-it"),
        ("ollama", "llama3"),
        ("vllm", "gpt-4o"),
        ("custom", "claude-sonnet-4-5"),
        ("openai", ""),
        ("nobody", "gpt-4o"),
    ],
)
def test_a_name_that_is_only_near_is_not_known(provider: str, name: str) -> None:
    assert known(provider, name) == UNKNOWN
    assert cost_micros(provider, name, {"input": 1000, "output": 10}) is None


@pytest.mark.parametrize(
    ("provider", "name", "like"),
    [
        ("anthropic", "claude-sonnet-4-5-20991231", "claude-sonnet-4-5"),
        ("openai", "gpt-4o-2099-12-31", "gpt-4o"),
        ("openrouter", "anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("openrouter", "google/gemini-2.5-pro:nitro", "gemini-2.5-pro"),
    ],
)
def test_what_is_known_by_way_of_another_name_says_so_and_has_no_price(provider: str, name: str, like: str) -> None:
    found = known(provider, name)
    assert found.window_tokens >= 100_000
    assert found.prices == UNPRICED
    assert not found.tiers
    assert f'"{like}"' in found.source
    assert "taken to be like" in found.source
    assert cost_micros(provider, name, {"input": 1000, "output": 10}) is None


def test_free_is_what_is_called_so_by_openrouter() -> None:
    found = known("openrouter", "anthropic/claude-sonnet-4.5:free")
    assert (found.prices, found.window_tokens) == (FREE, known("anthropic", "claude-sonnet-4-5").window_tokens)
    assert known("openrouter", "x/y:free").prices == FREE
    assert cost_micros("openrouter", "x/y:free", {"input": 1000, "output": 10}) == 0
    assert cost_micros("embedded", "Tiny", {"input": 1000, "output": 10}) == 0


def test_nothing_for_everything_is_how_the_list_writes_that_it_does_not_know(raw: dict[str, Any]) -> None:
    theirs = [(name, entry) for name, entry in raw.items() if entry.get("litellm_provider") == "volcengine" and entry.get("mode") == "chat"]
    name = next(name for name, entry in theirs if entry.get("input_cost_per_token") == 0)
    assert known("volcengine", name).prices == UNPRICED
    assert known("volcengine", name).window_tokens


def test_an_alias_is_the_model_that_it_stands_for(raw: dict[str, Any]) -> None:
    assert known("anthropic", "claude-opus-latest") == known("anthropic", raw["claude-opus-latest"]["alias_of"])


def test_a_tier_counts_for_the_whole_request(home: Home, raw: dict[str, Any]) -> None:
    abroad = configured(home, {"dashscope": {"base_url": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"}})
    entry = raw["gemini/gemini-2.5-pro"]
    few, many = {"input": 200_000, "output": 1000}, {"input": 200_002, "output": 1000}
    for usage, ending in ((few, ""), (many, "_above_200k_tokens")):
        dollars = usage["input"] * entry[f"input_cost_per_token{ending}"] + 1000 * entry[f"output_cost_per_token{ending}"]
        assert cost_micros("gemini", "gemini-2.5-pro", usage) == round(dollars * 1e6)
    tiers = raw["dashscope/qwen3-max"]["tiered_pricing"]
    for tokens, row in ((31_000, tiers[0]), (33_000, tiers[1]), (200_000, tiers[2])):
        wanted = round((tokens * row["input_cost_per_token"] + 10 * row["output_cost_per_token"]) * 1e6)
        assert cost_micros("dashscope", "qwen3-max", {"input": tokens, "output": 10}, abroad) == wanted


@pytest.mark.parametrize(
    ("usage", "micros"),
    [
        ({"input": 1000, "output": 100}, 1000 * 3 + 100 * 15),
        ({"input": 1000, "output": 100, "cached": 800}, 200 * 3 + 800 * 0.3 + 100 * 15),
        ({"input": 1000, "output": 100, "cached": 500, "cache_write": 300}, 200 * 3 + 500 * 0.3 + 300 * 3.75 + 100 * 15),
        ({"input": 1000, "output": 100, "reasoning": 60}, 1000 * 3 + 100 * 15),
        ({"input": 100, "output": 1, "cached": 9999, "cache_write": 9999}, 100 * 0.3 + 15),
        ({"input": 0, "output": 0}, None),
        ({}, None),
    ],
)
def test_what_a_request_costs(home: Home, usage: dict[str, int], micros: float | None) -> None:
    prices = {"input": 3, "output": 15, "cached": 0.3, "cache_write": 3.75}
    settings = configured(home, {"custom": {"base_url": "http://127.0.0.1:1/v1", "models": {"m": {"prices": prices}}}})
    assert cost_micros("custom", "m", usage, settings) == (None if micros is None else round(micros))


def configured(home: Home, providers: dict[str, Any]) -> Any:
    """The settings of a file with such a section."""
    home.config.write_text(json.dumps({"version": 1, "providers": providers}))
    home.config.chmod(0o600)
    return load(home, "agents", "providers")


def test_what_the_owner_says_counts_most_and_what_is_not_said_stays(home: Home) -> None:
    listed = known("gemini", "gemini-2.5-pro")
    own = Own(vision=False, context_tokens=32_000, prices={"input": 1.0})  # type: ignore[arg-type]
    found = with_own(listed, own)
    assert (found.vision, found.window_tokens, found.tools, found.output_tokens) == (False, 32_000, True, listed.output_tokens)
    assert (found.prices.input, found.prices.output, found.tiers) == (1.0, listed.prices.output, ())
    assert found.source.startswith("your configuration; ")
    assert with_own(listed, None) is listed
    assert with_own(listed, Own()) is listed
    settings = configured(home, {"ollama": {"models": {"llama3": {"tools": False, "reasoning": "keep", "prices": {"input": 0, "output": 0}}}}})
    told = traits(settings, "ollama", "llama3")
    assert (told.tools, told.reasoning, told.prices.input, told.source) == (False, "keep", 0, "your configuration")
    assert cost_micros("ollama", "llama3", {"input": 5, "output": 5}, settings) == 0
    assert traits(settings, "ollama", "llama4") == UNKNOWN


@given(
    st.fixed_dictionaries({}, optional={name: st.integers(0, 1 << 40) for name in ("input", "output", "cached", "cache_write", "reasoning")}),
    st.sampled_from(["gpt-4o", "o3", "gpt-5"]),
)
def test_a_cost_is_never_negative_and_never_more_than_without_a_cache(usage: dict[str, int], model: str) -> None:
    cost = cost_micros("openai", model, usage)
    plain = cost_micros("openai", model, {name: usage.get(name, 0) for name in ("input", "output")})
    assert (cost is None) == (plain is None)
    if cost is not None and plain is not None:
        assert 0 <= cost <= plain


@given(st.text(max_size=40), st.sampled_from(sorted(REGISTRY)))
def test_any_name_is_known_or_not_and_never_an_error(name: str, provider: str) -> None:
    found = known(provider, name)
    assert found.window_tokens >= 0
    assert found.source or found == UNKNOWN


def test_names_that_differ_only_in_case_are_found_as_they_are_written() -> None:
    upper, lower = Traits(window_tokens=1, source="a"), Traits(window_tokens=2, source="b")
    index = Index({("p", "M"): upper, ("p", "m"): lower, ("p", "a.1"): upper, ("p", "A-1"): lower})
    assert (index.find("p", "M"), index.find("p", "m")) == (upper, lower)
    assert index.find("p", "A.1") == upper
    assert index.alike("p", "a-1") is None
    assert Index({("p", "Xy"): upper}).find("p", "xY") == upper


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"nonsense", b'{"a": {"litellm_provider": "openai", "mode": "chat"}, "b": '])
def test_a_list_that_is_broken_tells_what_can_be_read_of_it(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "list.json"
    path.write_bytes(data)
    assert len(price_list.read(path, (0, len(data)))) == (1 if b'"a"' in data else 0)


def test_litellm_itself_is_not_imported_and_the_list_leaves_little_behind() -> None:
    code = """
import sys
from bubbles.providers import catalogue
def held(): return int(open("/proc/self/statm").read().split()[1]) * 4096
before = held()
assert catalogue.known("openai", "gpt-4o").prices.input
assert not [name for name in sys.modules if name.startswith(("litellm", "openai", "httpx", "pydantic"))]
print(held() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4 << 20


def test_without_litellm_nothing_is_known(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from bubbles.providers.catalogue import cost_micros, known, names
from bubbles.providers.traits import UNKNOWN
assert known("openai", "gpt-4o") is UNKNOWN
assert cost_micros("openai", "gpt-4o", {{"input": 1}}) is None
assert names("openai") == []
"""
    subprocess.run([sys.executable, "-S", "-c", code], check=True, cwd=tmp_path)


def test_a_list_that_may_not_be_read_tells_nothing(tmp_path: Path) -> None:
    package = tmp_path / "litellm"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "model_prices_and_context_window_backup.json").mkdir()  # which no user can read as a file, root neither
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from bubbles.providers.catalogue import known, names
print(known("openai", "gpt-4o").window_tokens, names("openai"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 []\n", "")


def test_names_to_choose_from_can_call_tools_and_are_known() -> None:
    for provider in ("anthropic", "openai", "gemini", "groq"):
        found = names(provider)
        assert len(found) == len(set(found)) > 2
        assert all(known(provider, name).tools for name in found)
    assert names("openai")[0].startswith("gpt-")
    assert names("openrouter") == names("custom") == names("embedded") == []


def test_the_list_is_not_read_for_those_that_it_tells_nothing_of() -> None:
    code = """
from bubbles.providers import price_list
from bubbles.providers.catalogue import cost_micros, known
assert known("custom", "gpt-4o").source == ""
assert cost_micros("embedded", "Tiny", {"input": 1}) == 0
assert price_list.read.cache_info().misses == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_prices_are_known_or_not() -> None:
    assert not Prices(1.0).known
    assert FREE.known
