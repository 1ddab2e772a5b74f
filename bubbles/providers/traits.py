"""What a model can do and what it costs: the one form in which that is known, whoever told it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens; None: not known. `cached` and `cache_write` are None too where they cost what other input does."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None  # None: what other output does

    @property
    def known(self) -> bool:
        """Whether a request can be priced."""
        return self.input is not None and self.output is not None


UNPRICED = Prices()
FREE = Prices(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Traits:
    """What a model can do and costs. 0 tokens: not known. `source` says who told it ("": nobody did, and these are the usual answers).

    `tiers` are (tokens of input, prices): a request with more input than that costs this, all of it; the highest that applies counts.
    """

    window_tokens: int = 0
    output_tokens: int = 0
    tools: bool = True
    vision: bool = False
    reasoning: str = "drop"  # "drop", "keep" or "require", as in bubbles.kernel.context.Shape
    cache: bool = False
    prices: Prices = UNPRICED
    tiers: tuple[tuple[int, Prices], ...] = ()
    source: str = ""

    def prices_at(self, input_tokens: int) -> Prices:
        """What a request with so much input costs."""
        return next((prices for above, prices in reversed(self.tiers) if input_tokens > above), self.prices)


UNKNOWN = Traits()
