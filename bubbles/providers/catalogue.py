"""What is known of a model without asking anybody: its window, what it can do, what it costs.

Two tell it: the list that LiteLLM brings along, read as data (LiteLLM itself is not imported, nothing is fetched), and over it the
owner, in `providers.NAME.models.MODEL`. A name is looked up as its vendor spells it. Where a model is known only by way of another
name (an undated one, its vendor's where a gateway is asked), `source` says so and there are no prices: a price is exact or unknown.
Of DeepSeek's prices, which differ by the hour, the higher ones are taken.

It does not know which provider a name leads to (bubbles.providers.route), nor what a self-hosted endpoint says of its own models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from bubbles.providers import EMBEDDED, REGISTRY, price_list
from bubbles.providers.price_list import PASSED_BACK, Index
from bubbles.providers.traits import FREE, UNKNOWN, UNPRICED, Traits

# How OpenRouter calls the vendors whose models nobody else serves: what such a model can do is what it can do at its vendor's.
_VENDORS = {"anthropic": ("anthropic", "claude-"), "openai": ("openai", ""), "google": ("gemini", "gemini-")}
# Where a vendor answers at prices of another country than the list's, by what is in its address.
_OTHER_PRICES = {
    "zhipu": ("bigmodel.cn",),
    "dashscope": ("//dashscope.aliyuncs.com",),
    "moonshot": ("moonshot.cn",),
    "minimax": ("minimaxi.com", "minimax.chat"),
}
_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")


def traits(settings: Any, provider: str, model: str) -> Traits:
    """What is known of a provider's model by the provider's own name for it; what `settings` (the section providers) say of it counts most."""
    section = getattr(getattr(settings, "providers", None), provider, None)
    return with_own(known(provider, model, getattr(section, "base_url", "")), (getattr(section, "models", None) or {}).get(model))


def cost_micros(provider: str, model: str, usage: Mapping[str, int], settings: Any = None) -> int | None:
    """The price of a request in millionths of a US dollar, None where it is not known.

    `usage` counts tokens: `input` (those from the cache and those put there among them: `cached`, `cache_write`) and `output` (`reasoning`
    among them). With `settings` the owner's prices count before the list's.
    """
    found = known(provider, model) if settings is None else traits(settings, provider, model)
    asked, said = usage.get("input", 0), usage.get("output", 0)
    prices = found.prices_at(asked)
    if prices.input is None or prices.output is None:
        return None
    if not asked and not said and (prices.input or prices.output):
        return None  # the provider did not say how much it was
    cached = min(usage.get("cached", 0), asked)
    written = min(usage.get("cache_write", 0), asked - cached)
    thought = min(usage.get("reasoning", 0), said)
    parts = (
        (asked - cached - written, prices.input),
        (cached, _first(prices.cached, prices.input)),
        (written, _first(prices.cache_write, prices.input)),
        (said - thought, prices.output),
        (thought, _first(prices.reasoning, prices.output)),
    )
    return round(sum(tokens * price for tokens, price in parts))


def _first(price: float | None, otherwise: float) -> float:
    return otherwise if price is None else price


def load() -> None:
    """Read the list now, which takes a quarter of a second once: for a thread that nobody waits for."""
    price_list.held()


def known(provider: str, model: str, base_url: str = "") -> Traits:
    """What the list tells of a provider's model, by the provider's own name for it, at `base_url` ("": where the provider usually is)."""
    if provider == EMBEDDED:
        return Traits(prices=FREE, source="it runs on this machine")
    if provider not in price_list.WHOSE.values():
        return UNKNOWN  # said without reading it
    address = base_url or REGISTRY[provider].base_url
    elsewhere = any(part in address for part in _OTHER_PRICES.get(provider, ()))
    return _known(price_list.held(), provider, model, elsewhere=elsewhere)


def names(provider: str) -> list[str]:
    """The provider's models that the list has: those that can call tools, without the dated ones; its own first, and the highest versions."""
    found = price_list.held().names(provider)
    own = next(iter(REGISTRY[provider].keywords), "")
    return sorted((name for name in found if not _DATE.search(name)), key=lambda name: (name.startswith(own), _natural(name)), reverse=True)


def _natural(name: str) -> list[tuple[bool, float, str]]:
    return [(part[:1].isdigit(), float(part) if part[:1].isdigit() else 0, part) for part in re.split(r"(\d+(?:\.\d+)?)", name) if part]


def with_own(found: Traits, own: Any) -> Traits:
    """`found`, and over it what the owner has set in a section of the configuration; None: nothing."""
    if own is None:
        return found
    said = {name: getattr(own, name) for name in own.model_fields_set}
    prices = said.pop("prices", None)
    changes = {_OWN[name]: value for name, value in said.items() if name in _OWN and (value is False or value != 0)}
    if prices is not None:
        figures = {name: getattr(prices, name) for name in prices.model_fields_set if getattr(prices, name) is not None}
        changes |= {"prices": replace(found.prices, **figures), "tiers": ()} if figures else {}
    return replace(found, **changes, source="; ".join(filter(None, ("your configuration", found.source)))) if changes else found


_OWN = {"context_tokens": "window_tokens"} | {name: name for name in ("output_tokens", "tools", "vision", "reasoning", "cache")}


# -- names ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _known(index: Index, provider: str, model: str, *, elsewhere: bool) -> Traits:
    name = _spelled(provider, model)
    if elsewhere and provider == "zhipu" and (found := index.find("bigmodel", name)):
        return replace(found, reasoning=PASSED_BACK[provider])
    if found := index.find(provider, name):
        return _unpriced(found, "whose prices are those of another address") if elsewhere else found
    plain, _, variant = name.partition(":")
    if provider == "openrouter":
        return _by_vendor(index, plain, variant)
    if _DATE.search(name) and (found := index.find(provider, _DATE.sub("", name))):
        return _borrowed(found)
    return UNKNOWN


def _spelled(provider: str, model: str) -> str:
    """A name as the list has it: without what stands in front of it at some doors, a fine-tuned one by its base (`ft:gpt-4o:me::id`)."""
    front, slash, rest = model.partition("/")
    if slash and front.lower() in (provider, "models" if provider == "gemini" else provider):
        model = rest
    return ":".join(model.split(":")[:2]) if model.startswith("ft:") else model


def _by_vendor(index: Index, name: str, variant: str) -> Traits:
    """OpenRouter's `VENDOR/MODEL` or `VENDOR/MODEL:VARIANT`, by what the vendor's own model can do. Only `:free` tells a price."""
    vendor, _, rest = name.partition("/")
    provider, begins = _VENDORS.get(vendor.lower(), ("", ""))
    found = index.find(provider, rest) or index.alike(provider, rest) if provider and rest.lower().startswith(begins) else None
    borrowed = replace(_borrowed(found), reasoning="drop") if found else UNKNOWN  # how it is passed back is the gateway's own affair
    if variant.lower() != "free":
        return borrowed
    return replace(borrowed, prices=FREE, source="; ".join(filter(None, (borrowed.source, '":free" in its name'))))


def _borrowed(found: Traits) -> Traits:
    return _unpriced(found, "which it is taken to be like; its prices are not known")


def _unpriced(found: Traits, why: str) -> Traits:
    return replace(found, prices=UNPRICED, tiers=(), source=f"{found.source}, {why}")
