"""One question to the model that is configured, to see whether key, address and name are right before anybody relies on them."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass

from bubbles import config, log, providers
from bubbles.errors import BubblesError, Misconfigured, ModelError, TryAgain
from bubbles.kernel.clean import clean
from bubbles.paths import Home
from bubbles.providers import lite
from bubbles.providers.catalogue import cost_micros
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.route import Route, route

_QUESTION = b'{"role":"user","content":"Answer with one word: are you ready?"}'
_ANSWER_TOKENS = 64
_LOOK = {  # {again}: the program that asked
    "rate_limited": "wait a little, then: {again}",
    "model_down": "see that the server runs and that base_url leads to it, then: {again}",
    "not_authorized": "give another key: bubbles onboard",
    "rejected": "look at the model's name: bubbles models list",
    "context_too_long": "look at the model's window: bubbles models route",
}
_MEANS = {
    "rate_limited": "rate limited: it is asked too often, or an allowance is used up",
    "model_down": "model down: there is no connection, no answer in time, or the server is in trouble",
    "not_authorized": "not authorized: the key is missing, wrong, or not allowed this model",
    "rejected": "rejected: it will not take the request, however often it is asked",
    "context_too_long": "context too long: one short question does not fit its window",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Who was asked, the one line that came back ("" where a model only thought), how long it took and what it cost (None: not known)."""

    route: Route
    text: str
    tokens: int
    usage: dict[str, int]
    seconds: float
    cost_micros: int | None


def ask(home: Home, settings: config.Settings, found: Route | None = None, again: str = "bubbles onboard") -> Trial:
    """Ask the model of a route, or the one that the settings (agents, providers) lead to. One request, no retries.

    Raises Misconfigured or TryAgain, with what to do; the ModelError is its cause. `again`: the program to try again with.
    """
    log.redact(settings.secrets())
    found = found or route(settings)
    asked = Ask("onboard", found.model, [_QUESTION], temperature=0.0, max_tokens=_ANSWER_TOKENS, timeout_s=settings.agents.defaults.api_timeout_s)
    _loaded(found.provider)
    began = time.monotonic()
    answer = _spoken(home, settings, found.provider, asked, again)
    took = time.monotonic() - began
    usage = {name: count for name, count in answer.usage.items() if name != "cost_micros"}
    cost = cost_micros(found.provider, found.model, usage, settings)
    return Trial(found, clean(" ".join(answer.text.split()))[:200], usage.get("output", 0), usage, took, cost)


def _loaded(name: str) -> None:
    """Load a provider's library now: what it takes is no part of the model's answer. What keeps it from loading is told by who asks."""
    if (providers.REGISTRY[name].implementation or "").startswith(lite.__name__):
        with suppress(Exception):
            lite.load().result()


def _spoken(home: Home, settings: config.Settings, name: str, asked: Ask, again: str) -> Answer:
    async def once() -> Answer:
        provider = providers.open(name, settings.providers, home)
        try:
            return await provider.ask(asked, None)
        finally:
            await provider.close()

    try:
        return asyncio.run(once())
    except ModelError as error:
        raise _told(error, asked.model or name, again) from error


def models(home: Home, settings: config.Settings, name: str) -> list[str]:
    """The models that the provider `name` says it has. Raises Misconfigured or TryAgain, with what to do."""

    async def once() -> list[str]:
        provider: Provider = providers.open(name, settings.providers, home)
        try:
            return await provider.models()
        finally:
            await provider.close()

    log.redact(settings.secrets())
    try:
        return [model for model in asyncio.run(once()) if model.isprintable() and " " not in model]
    except ModelError as error:
        raise _told(error, name) from error


def _told(error: ModelError, who: str, again: str = "bubbles onboard") -> BubblesError:
    text = f"{who} did not answer ({_MEANS.get(error.kind, error.kind)}): {clean(log.struck(error.text))}"
    remedy = error.remedy or _LOOK.get(error.kind, "").format(again=again)
    return TryAgain(text, remedy=remedy) if error.temporary else Misconfigured(text, remedy=remedy)
