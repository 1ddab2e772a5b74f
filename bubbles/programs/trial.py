"""One question to the model that is configured, to see whether key, address and name are right before anybody relies on them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from bubbles import config, log, providers
from bubbles.errors import BubblesError, Misconfigured, ModelError, TryAgain
from bubbles.kernel.clip import clean
from bubbles.paths import Home
from bubbles.providers.provider import Answer, Ask, Provider
from bubbles.providers.route import Route, route

_QUESTION = b'{"role":"user","content":"Answer with one word: are you ready?"}'
_ANSWER_TOKENS = 64
_LOOK = {
    "rate_limited": "wait a little, then: bubbles onboard",
    "model_down": "see that the server runs and that base_url leads to it, then: bubbles onboard",
    "not_authorized": "give another key: bubbles onboard",
    "rejected": "look at the model's name: bubbles models list",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """Who was asked, and the one line that came back ("" where a model only thought)."""

    route: Route
    text: str
    tokens: int


def ask(home: Home, settings: config.Settings) -> Trial:
    """Ask the model that the settings (agents, providers) lead to. One request, no retries. Raises Misconfigured or TryAgain, with what to do."""
    log.redact(settings.secrets())
    found = route(settings)
    asked = Ask("onboard", found.model, [_QUESTION], temperature=0.0, max_tokens=_ANSWER_TOKENS, timeout_s=settings.agents.defaults.api_timeout_s)
    answer = _spoken(home, settings, found.provider, asked)
    return Trial(found, clean(" ".join(answer.text.split()))[:200], answer.usage.get("output", 0))


def _spoken(home: Home, settings: config.Settings, name: str, asked: Ask) -> Answer:
    async def once() -> Answer:
        provider = providers.open(name, settings.providers, home)
        try:
            return await provider.ask(asked, None)
        finally:
            await provider.close()

    try:
        return asyncio.run(once())
    except ModelError as error:
        raise _told(error, asked.model or name) from error


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


def _told(error: ModelError, who: str) -> BubblesError:
    text = f"{who} did not answer ({error.kind.replace('_', ' ')}): {clean(log.struck(error.text))}"
    remedy = error.remedy or _LOOK.get(error.kind, "")
    return TryAgain(text, remedy=remedy) if error.temporary else Misconfigured(text, remedy=remedy)
