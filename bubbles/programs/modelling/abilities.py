"""What a model can do and costs, as one object and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bubbles.providers.traits import FREE, Prices, Traits

_PRICED = (("input", "in"), ("output", "out"), ("cached", "from the cache"), ("cache_write", "into it"), ("reasoning", "of thought"))


def told(traits: Traits, by_modeld: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """capabilities, prices (None where they are not known), tiers and source. What modeld says counts most: it has asked the endpoint."""
    names = ("window_tokens", "output_tokens", "tools", "vision", "reasoning", "cache")
    can = {name: getattr(traits, name) for name in names}
    can |= {name: value for name, value in (by_modeld or {}).items() if value or name in ("tools", "vision", "cache")}
    return {
        "capabilities": can,
        "prices": asdict(traits.prices) if traits.prices.known else None,
        "tiers": [{"above_tokens": above, **asdict(prices)} for above, prices in traits.tiers if above],
        "source": traits.source,
    }


def tokens(count: int) -> str:
    """A number of tokens.

    >>> tokens(0), tokens(8192), tokens(200_000), tokens(1_048_576)
    ('', '8192', '200k', '1.05M')
    """
    if not count:
        return ""
    if count < 10_000:
        return str(count)
    return f"{count / 1000:.3g}k" if count < 999_500 else f"{count / 1e6:.3g}M"


def can(capabilities: Mapping[str, Any]) -> str:
    """What it can do, in short.

    >>> can({"tools": True, "vision": True}), can({"tools": False})
    ('tools, images', 'no tools')
    """
    words = ["tools" if capabilities.get("tools") else "no tools"]
    words += [word for name, word in (("vision", "images"), ("cache", "cache")) if capabilities.get(name)]
    return ", ".join(words)


def price(prices: Mapping[str, float | None] | None) -> str:
    """Dollars per million tokens, in a sentence.

    >>> price({"input": 3.0, "output": 15.0, "cached": 0.3})
    '$3 in, $15 out, $0.3 from the cache; per million tokens'
    """
    if prices is None:
        return "not known"
    if Prices(**prices) == FREE:
        return "nothing"
    return ", ".join(f"${prices[name]:g} {word}" for name, word in _PRICED if prices.get(name) is not None) + "; per million tokens"


def short_price(prices: Mapping[str, float | None] | None) -> str:
    """Dollars per million tokens in and out.

    >>> short_price({"input": 3.0, "output": 15.0}), short_price(None)
    ('$3 / $15', '')
    """
    if prices is None:
        return ""
    return "free" if Prices(**prices) == FREE else f"${prices['input']:g} / ${prices['output']:g}"


def dollars(micros: int) -> str:
    """Millionths of a dollar as a person reads them.

    >>> dollars(0), dollars(3), dollars(123_456), dollars(12_345_678)
    ('$0', '$0.000003', '$0.1235', '$12.35')
    """
    if micros and micros < 1000:
        return f"${micros / 1e6:.6f}".rstrip("0")
    return "$0" if not micros else f"${micros / 1e6:.4f}" if micros < 1_000_000 else f"${micros / 1e6:.2f}"
