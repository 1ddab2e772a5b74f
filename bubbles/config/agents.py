"""The section `agents`: which model answers, how much it is sent, and how turns behave."""

from __future__ import annotations

import os
import zoneinfo
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, model_validator

from bubbles.config.section import Name, Section


def _zone(value: str) -> str:
    try:
        if value:
            zoneinfo.ZoneInfo(value)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError('an IANA time zone that this system knows, such as Europe/Berlin; "" for the system\'s own') from None
    return value


def _provider(value: str) -> str:
    if not value:
        return value
    from bubbles.config import providers  # only for those who name one

    return providers.known(value)


_WINDOW = (4096, 10_000_000)  # tokens


def _window(value: int) -> int:
    if not _WINDOW[0] <= value <= _WINDOW[1]:
        raise ValueError(f"a whole number from {_WINDOW[0]} to {_WINDOW[1]}; the prompt and the tools alone weigh about 1600")
    return value


class Defaults(Section):
    """What holds for every session that does not override it."""

    model: Name = ""
    provider: Annotated[Name, AfterValidator(_provider)] = ""  # "": found from the model's name
    temperature: StrictFloat = Field(default=0.7, ge=0, le=2)
    max_tokens: StrictInt = Field(default=8192, ge=1, le=1_000_000)  # of one answer; less than context_tokens
    context_tokens: Annotated[StrictInt, AfterValidator(_window)] = 128_000  # of one request; a model's own window may be smaller
    max_tool_iterations: StrictInt = Field(default=40, ge=1, le=1000)  # requests in a turn
    memory_window: StrictInt = Field(default=0, ge=0, le=100_000)  # messages of history sent at most; 0: all that fit
    # Kept verbatim at a compaction: as much as this, and of the window that is at hand (the model's own may be smaller) a quarter at most.
    keep_tokens: StrictInt = Field(default=24_000, ge=256, le=10_000_000)  # less than context_tokens
    result_tokens: StrictInt = Field(default=8000, ge=100, le=1_000_000)  # of one tool result; less than keep_tokens, else no compaction would help
    api_retries: StrictInt = Field(default=2, ge=0, le=10)
    api_timeout_s: StrictFloat = Field(default=120, ge=0.1, le=3600)
    concurrency: StrictInt = Field(default=0, ge=0, le=10_000)  # turns at work at once; 0: 32 a core
    interjection: Literal["join", "preempt"] = "join"
    language: Literal["auto", "en", "zh"] = "auto"
    timezone: Annotated[str, AfterValidator(_zone)] = ""
    system_prompt: str = ""

    @model_validator(mode="after")
    def _one_fits_into_the_other(self) -> Self:
        pairs = (("result_tokens", "keep_tokens"), ("keep_tokens", "context_tokens"), ("max_tokens", "context_tokens"))
        wrong = [(small, large) for small, large in pairs if getattr(self, small) >= getattr(self, large)]
        if wrong:
            raise ValueError("; ".join(f"{a} ({getattr(self, a)}) must be less than {b} ({getattr(self, b)})" for a, b in wrong))
        return self

    @property
    def slots(self) -> int:
        """How many turns may be at work at once."""
        return self.concurrency or 32 * (os.cpu_count() or 1)


class Agents(Section):
    """The section `agents`."""

    defaults: Defaults = Field(default_factory=Defaults)
