"""The list of models and prices that LiteLLM brings along, read as data: LiteLLM itself is not imported, nothing is fetched.

It does not know which name a person meant (bubbles.providers.catalogue), nor what a configuration says.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bubbles.providers.traits import UNPRICED, Prices, Traits

_FILE = "model_prices_and_context_window_backup.json"
# Whose entries of the list are whose models. Self-hosted endpoints have none: what a list says of a model says nothing of a server's window.
WHOSE = {
    "anthropic": "anthropic",
    "openai": "openai",
    "gemini": "gemini",
    "deepseek": "deepseek",
    "groq": "groq",
    "moonshot": "moonshot",
    "minimax": "minimax",
    "zai": "zhipu",
    "bigmodel": "bigmodel",  # Zhipu in China
    "dashscope": "dashscope",
    "openrouter": "openrouter",
    "aihubmix": "aihubmix",
    "siliconflow": "siliconflow",
    "volcengine": "volcengine",
    "chatgpt": "openai_codex",
    "github_copilot": "github_copilot",
}
# What becomes of the earlier reasoning of a model that thinks; elsewhere it is dropped.
PASSED_BACK = {"deepseek": "require", "moonshot": "require", "anthropic": "keep", "gemini": "keep", "minimax": "keep", "zhipu": "keep"}
_BEFORE_KEY, _BEFORE_VALUE = re.compile(r"[\s,{]*"), re.compile(r"[\s:]*")
_COSTS = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "output_cost_per_reasoning_token",
)
_TIER = re.compile(r"input_cost_per_token_above_(\d+)k_tokens$")


class Index:
    """The models of the list that our providers have, by provider and name."""

    def __init__(self, found: Mapping[tuple[str, str], Traits]) -> None:
        self._exact = dict(found)
        self._folded: dict[tuple[str, str], list[str]] = {}
        for provider, name in found:
            for key in {name.casefold(), _alike(name)}:
                self._folded.setdefault((provider, key), []).append(name)

    def __len__(self) -> int:
        return len(self._exact)

    def names(self, provider: str) -> list[str]:
        """The names of a provider's models that can call tools; of aliases only what they stand for."""
        return [name for (whose, name), found in self._exact.items() if whose == provider and found.tools and f'"{name}"' in found.source]

    def find(self, provider: str, name: str) -> Traits | None:
        """The model called so, in upper and lower case as given or, if only one is, in any."""
        return self._exact.get((provider, name)) or self._only(provider, name.casefold(), str.casefold)

    def alike(self, provider: str, name: str) -> Traits | None:
        """The one model whose name differs in dots for dashes at most: OpenRouter writes `claude-sonnet-4.5` for `claude-sonnet-4-5`."""
        return self._only(provider, _alike(name), _alike)

    def _only(self, provider: str, key: str, fold: Callable[[str], str]) -> Traits | None:
        names = [name for name in self._folded.get((provider, key), ()) if fold(name) == key]
        return self._exact[provider, names[0]] if len(names) == 1 else None


def _alike(name: str) -> str:
    return name.casefold().replace(".", "-")


def held() -> Index:
    """The list that is installed, read once a process; an empty one where LiteLLM is not installed, or may not be read."""
    path = _place()
    with suppress(OSError):
        if path is not None:
            found = path.stat()
            return read(path, (found.st_mtime_ns, found.st_size))
    return Index({})


def _place() -> Path | None:
    spec = importlib.util.find_spec("litellm")
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        if os.path.exists(os.path.join(directory, _FILE)):
            return Path(directory, _FILE)
    return None


@lru_cache(maxsize=1)
def read(path: Path, stamp: tuple[int, int]) -> Index:
    """The list at `path`, as it is by `stamp`; an entry at a time: all of it at once would leave ten times as much memory in use."""
    found: dict[tuple[str, str], Traits] = {}
    aliases: dict[str, str] = {}
    by_key: dict[str, tuple[str, str]] = {}
    for key, raw in _entries(path.read_bytes().decode()):
        if isinstance(raw.get("alias_of"), str):
            aliases[key] = raw["alias_of"]
        provider = WHOSE.get(raw.get("litellm_provider", ""))
        if provider is None or raw.get("mode") not in ("chat", "responses"):
            continue
        at = provider, key.removeprefix(f"{raw['litellm_provider']}/")
        by_key[key] = at
        if at not in found or "/" in key:
            found[at] = _traits(provider, at[1], raw)
    for key, target in aliases.items():
        if target in by_key:
            provider, name = by_key[target]
            found.setdefault((provider, key.rpartition("/")[2]), found[provider, name])
    return Index(found)


def _entries(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of one JSON object, one after the other; none more where it is broken."""
    decode = json.JSONDecoder().raw_decode
    at = 0
    with suppress(ValueError):
        while True:
            key, at = decode(text, _BEFORE_KEY.match(text, at).end())  # type: ignore[union-attr]  # it matches nothing, too
            value, at = decode(text, _BEFORE_VALUE.match(text, at).end())  # type: ignore[union-attr]  # likewise
            if isinstance(value, dict):
                yield key, value


def _traits(provider: str, name: str, raw: Mapping[str, Any]) -> Traits:
    tiers = _tiers(raw)
    return Traits(
        window_tokens=_tokens(raw.get("max_input_tokens")),
        output_tokens=_tokens(raw.get("max_output_tokens")),
        tools=raw.get("supports_function_calling") is True,
        vision=raw.get("supports_vision") is True,
        reasoning=PASSED_BACK.get(provider, "drop") if raw.get("supports_reasoning") is True else "drop",
        cache=raw.get("supports_prompt_caching") is True,
        prices=tiers[0][1] if tiers and tiers[0][0] == 0 else _prices(raw),
        tiers=tiers,
        source=f'"{name}" in LiteLLM\'s list',
    )


def _tokens(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and 0 < value < 1 << 40 else 0


def _prices(raw: Mapping[str, Any], ending: str = "") -> Prices:
    """The prices of an entry, or of a tier of it. Nothing for everything is how the list writes that it does not know."""
    each = (_million(raw.get(f"{name}{ending}")) for name in _COSTS)
    prices = Prices(*each)
    if not prices.input and not prices.output:
        return UNPRICED
    return prices if prices.cache_write else replace(prices, cache_write=None)  # 0 there is a promotion's, or a gap


def _million(value: Any) -> float | None:
    return round(value * 1e6, 6) if isinstance(value, int | float) and value >= 0 else None


def _tiers(raw: Mapping[str, Any]) -> tuple[tuple[int, Prices], ...]:
    """The list has two ways to write that much input costs more: names that end in `_above_200k_tokens`, and a table of ranges."""
    found = {int(at[1]) * 1000: _prices(raw, f"_above_{at[1]}k_tokens") for name in raw if (at := _TIER.match(name))}
    for row in raw.get("tiered_pricing") or ():
        if isinstance(row, dict) and isinstance(row.get("range"), list) and row["range"]:
            found[_tokens(row["range"][0])] = _prices(row)
    return tuple((above, tier) for above, tier in sorted(found.items(), key=lambda one: one[0]) if tier.known)
