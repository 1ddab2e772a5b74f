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


_SIGNED_IN = ("openaicodex", "githubcopilot")  # providers with a login of a person's: asked by explicit choice alone


def _stand_in(value: str) -> str:
    if value.partition("/")[0].lower().replace("_", "").replace("-", "") in _SIGNED_IN:
        raise ValueError("a model of another provider: one that is signed in to is never asked in another's place")
    if not value:
        raise ValueError("a model's name")
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
    # Asked in this order, each time with a word to whoever reads the answer, where the model cannot be reached or its account is empty.
    fallbacks: list[Annotated[Name, AfterValidator(_stand_in)]] = Field(default_factory=list, max_length=8)
    temperature: StrictFloat = Field(default=0.7, ge=0, le=2)
    max_tokens: StrictInt = Field(default=8192, ge=1, le=1_000_000)  # of one answer; less than context_tokens
    context_tokens: Annotated[StrictInt, AfterValidator(_window)] = 128_000  # of one request; a model's own window may be smaller
    max_tool_iterations: StrictInt = Field(default=40, ge=1, le=1000)  # requests in a turn
    memory_window: StrictInt = Field(default=0, ge=0, le=100_000)  # messages of history sent at most; 0: all that fit
    # Kept verbatim at a compaction: as much as this, and of the window that is at hand (the model's own may be smaller) a quarter at most.
    keep_tokens: StrictInt = Field(default=24_000, ge=256, le=10_000_000)  # less than context_tokens
    result_tokens: StrictInt = Field(default=8000, ge=100, le=1_000_000)  # of one tool result; less than keep_tokens, else no compaction would help
    api_retries: StrictInt = Field(default=2, ge=0, le=10)
    api_timeout_s: StrictFloat = Field(default=120, ge=0.1, le=3600)  # for an answer, or the first words of one that is streamed
    # Between those and the next; no longer than the time-out. Some vendors stream a call in one piece, and are silent while it is written.
    api_idle_s: StrictFloat = Field(default=120, ge=0.1, le=3600)
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


class Limits(Section):
    """What keeps one session, one turn or one clock from taking everything. What meets a limit waits or is told so; it is never dropped."""

    queued: StrictInt = Field(default=100, ge=1, le=100_000)  # messages of a session that wait to be shown to the model; more wait in their queue
    outbound: StrictInt = Field(default=64, ge=1, le=10_000)  # messages out of one turn; then it ends, and words that wait open the next
    system_iterations: StrictInt = Field(default=16, ge=1, le=1000)  # answers of the model in a turn that a clock or a program began
    # Of a day of agents.defaults.timezone; 0: none. Before each request it is looked at, so those under way may go beyond it by what they cost.
    tokens_per_day: StrictInt = Field(default=0, ge=0, le=10**12)  # of requests and answers
    cost_per_day: StrictFloat = Field(default=0, ge=0, le=1_000_000)  # US dollars; what has no known price does not count
    system_tokens_per_day: StrictInt = Field(default=0, ge=0, le=10**12)  # of turns that no person began; 0: they share the one above
    system_cost_per_day: StrictFloat = Field(default=0, ge=0, le=1_000_000)  # likewise


class Agents(Section):
    """The section `agents`."""

    defaults: Defaults = Field(default_factory=Defaults)
    limits: Limits = Field(default_factory=Limits)
