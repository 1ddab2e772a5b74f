"""What the options of `bubbles onboard` wish for, and what of it can be found out without asking a person."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from bubbles import config
from bubbles.errors import DataError, Misconfigured, Usage
from bubbles.programs.modelling import keys
from bubbles.programs.plan import Plan, Wish
from bubbles.providers import EMBEDDED, OAUTH, REGISTRY, catalogue, tokens
from bubbles.providers.route import route

SHOWN = 20  # models in a list to choose from
_KEY_MOST = 16 << 10  # characters of a key on standard input


def wished(provider: str | None, base_url: str | None, key: str, model: str | None, source: Path | None) -> Wish:
    """What the options say. Raises Usage where they do not go together."""
    if provider is None and (base_url or key or source):
        provider = EMBEDDED if source else "custom"
    if provider == EMBEDDED and (base_url or key or model):
        raise Usage(
            "the embedded model has neither address nor key, and is named by its file", remedy="bubbles onboard --provider embedded --from FILE"
        )
    if provider and REGISTRY[provider].category == OAUTH and (base_url or key):
        raise Usage(f"{provider} is signed in to: it has no key", remedy=tokens.remedy(provider))
    if source and provider != EMBEDDED:
        raise Usage("--from is for the embedded model", remedy="bubbles onboard --provider embedded --from FILE")
    return Wish(provider or "", base_url or "", key, model or "", source)


def key_on_stdin() -> str:
    key = sys.stdin.read(_KEY_MOST).strip()
    if not key:
        raise DataError("there is no key on standard input", remedy="pass show my-endpoint | bubbles onboard --yes --api-key-stdin")
    return key


def completed(plan: Plan, wish: Wish) -> Wish:
    """A wish with what was not given and can be found out: an endpoint's usual address, its only model. Raises Usage."""
    if not wish.provider or wish.provider == EMBEDDED:
        return wish
    settings = plan.settings()
    if REGISTRY[wish.provider].category == OAUTH:
        return _complete_with_a_login(plan, wish)
    if wish.provider in keys.KEYED:
        return _complete_with_a_key(settings, wish)
    known = getattr(settings.providers, wish.provider).base_url
    wish = replace(wish, base_url=wish.base_url or known or REGISTRY[wish.provider].base_url)
    if not wish.base_url:
        raise Usage(f"where does {wish.provider} answer?", remedy=f"bubbles onboard --yes --provider {wish.provider} --base-url URL")
    if wish.model or (wish.base_url.rstrip("/") == known and _answers_already(settings, wish.provider)):
        return wish
    found = plan.models(wish)
    if len(found) != 1:
        shown = ", ".join(found[:SHOWN]) or "none"
        raise Usage(f"{wish.base_url} has {len(found)} models: {shown}", remedy="say which, by --model NAME")
    return replace(wish, model=found[0])


def _complete_with_a_key(settings: config.Settings, wish: Wish) -> Wish:
    """Raises Usage where the key or the model is missing. A key is asked for again where the address is another."""
    name, section = wish.provider, getattr(settings.providers, wish.provider)
    moved = bool(wish.base_url) and wish.base_url.rstrip("/") != section.base_url
    if not wish.api_key and not keys.stands_over(name) and (moved or not section.api_key.get_secret_value()):
        if variable := keys.present(name):
            raise Usage(f"{name} wants a key; {variable} is set here, and is read when you say so", remedy=f"add --api-key-env {variable}")
        raise Usage(f"{name} wants a key", remedy=f"pass show {name} | bubbles onboard --yes --provider {name} --model NAME --api-key-stdin")
    if not wish.model and not _answers_already(settings, name):
        raise Usage(f"which model of {name}?", remedy=f"say which, by --model NAME; some: {', '.join(catalogue.names(name)[:3]) or 'see its pages'}")
    return wish


def _complete_with_a_login(plan: Plan, wish: Wish) -> Wish:
    """Raises Usage where nobody is signed in, or the model is missing."""
    if not tokens.path(plan.home, wish.provider).exists():
        raise Usage(f"nobody is signed in to {wish.provider}", remedy=tokens.remedy(wish.provider))
    if not wish.model and not _answers_already(plan.settings(), wish.provider):
        raise Usage(f"which model of {wish.provider}?", remedy=f"say which, by --model NAME: bubbles models list {wish.provider}")
    return wish


def _answers_already(settings: config.Settings, provider: str) -> bool:
    try:
        return route(settings).provider == provider
    except Misconfigured:
        return False
