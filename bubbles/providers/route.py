"""Which provider answers for a model's name, and why: readable from the name and the configuration alone. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from bubbles.errors import Misconfigured
from bubbles.providers import EMBEDDED, GATEWAY, OAUTH, REGISTRY, SELF_HOSTED, Entry, find, revealed


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model's name leads. `model` is the name as the provider knows it."""

    provider: str
    model: str
    why: str


def route(settings: Any, model: str = "", provider: str = "") -> Route:
    """The route of `model` and `provider`; an empty one is taken from agents.defaults. Raises Misconfigured where none, or no model, can be found.

    The first that applies: (1) the provider that is named; (2) the model is listed in `models` of custom, Ollama or vLLM, or is
    the embedded one's file; (3) `NAME/…` in front of the model; (4) a keyword in the model's name, of a provider that is set up;
    (5) the first one set up that takes any model: a gateway, custom, Ollama, vLLM; where no model is named, custom or the
    embedded one. A provider that needs a login is found by (1) alone.
    """
    defaults = settings.agents.defaults
    model, provider = model or defaults.model, provider or defaults.provider
    if provider:
        entry = find(provider)
        return _to(entry, _model(entry, settings, _without_prefix(entry, model)), f"the provider {entry.name} is named in the settings")
    found = _by_list(settings, model) or _by_prefix(settings, model) or _by_keyword(settings, model) or _by_default(settings, model)
    if found is None:
        where = f"no provider that is set up answers for the model {model!r}" if model else "no model is set up"
        raise Misconfigured(where, remedy="bubbles onboard")
    return found


def is_set_up(entry: Entry, settings: Any) -> bool:
    """Whether the owner has given a provider what it needs: a key, an address, a file."""
    section = getattr(settings.providers, entry.name)
    if entry.category == EMBEDDED:
        return bool(section.model_path)
    if entry.category == SELF_HOSTED:
        return bool(section.base_url or (entry.base_url and section.models))
    return bool(revealed(getattr(section, "api_key", "")))


def _to(entry: Entry, model: str, why: str) -> Route:
    return Route(entry.name, model, why)


def _model(entry: Entry, settings: Any, model: str) -> str:
    """The embedded model is called as its file is; every other provider must be told a name."""
    if entry.category == EMBEDDED:
        return PurePath(settings.providers.embedded.model_path).stem or EMBEDDED
    if model:
        return model
    listed = list(getattr(settings.providers, entry.name).models) if entry.category == SELF_HOSTED else []
    if len(listed) == 1:
        return str(listed[0])
    raise Misconfigured(f"no model is named for the provider {entry.name}", remedy="set agents.defaults.model")


def _without_prefix(entry: Entry, model: str) -> str:
    prefix, slash, rest = model.partition("/")
    return rest if slash and rest and prefix.lower() == entry.name else model


def _by_prefix(settings: Any, model: str) -> Route | None:
    prefix, slash, rest = model.partition("/")
    entry = REGISTRY.get(prefix.lower())
    if not slash or not rest or entry is None:
        return None
    if entry.category == OAUTH:
        raise Misconfigured(f"{entry.title} is used only where it is chosen by name", remedy=f"set agents.defaults.provider to {entry.name}")
    why = f'the model\'s name begins with "{entry.name}/"'
    if entry.category in (SELF_HOSTED, EMBEDDED) or is_set_up(entry, settings):
        return _to(entry, _model(entry, settings, rest), why)
    # `anthropic/claude-…` is also how gateways and many self-hosted servers spell the model of another vendor.
    for other in _takers(settings):
        return _to(other, model, f"{why}, but {entry.name} has no key; {other.name} is set up and takes any model")
    return _to(entry, rest, why)


def _by_list(settings: Any, model: str) -> Route | None:
    """A name that the configuration itself spells out."""
    for entry in (each for each in REGISTRY.values() if each.category == SELF_HOSTED):
        if model and model in getattr(settings.providers, entry.name).models:
            return _to(entry, model, f"the model is listed in providers.{entry.name}.models")
    file = settings.providers.embedded.model_path
    if file and model.lower() in (EMBEDDED, PurePath(file).stem.lower()):
        return _to(REGISTRY[EMBEDDED], PurePath(file).stem, "it is the file of providers.embedded.model_path")
    return None


def _by_keyword(settings: Any, model: str) -> Route | None:
    """A keyword counts where it begins a word; the one that comes first in the name decides, of two at one place the longer."""
    found = [
        (at.start(), -len(word), word, entry)
        for entry in REGISTRY.values()
        if entry.category != OAUTH and is_set_up(entry, settings)
        for word in entry.keywords
        if (at := re.search(rf"(?<![a-z0-9]){word}", model.lower()))
    ]
    if not found:
        return None
    _, _, word, entry = min(found, key=lambda one: one[:2])
    return _to(entry, _model(entry, settings, model), f'"{word}" in the model\'s name means {entry.name}')


def _by_default(settings: Any, model: str) -> Route | None:
    if not model:
        for entry in (REGISTRY["custom"], REGISTRY[EMBEDDED]):
            if is_set_up(entry, settings):
                return _to(entry, _model(entry, settings, model), f"no model is named; {entry.name} is set up")
        return None
    for entry in _takers(settings):
        return _to(entry, model, f'nothing in the name "{model}" means a provider that is set up; {entry.name} is, and takes any model')
    return None


def _takers(settings: Any) -> list[Entry]:
    """Those set up that take any model's name, in the order in which they are tried."""
    order = [GATEWAY, SELF_HOSTED]
    return sorted((e for e in REGISTRY.values() if e.category in order and is_set_up(e, settings)), key=lambda e: order.index(e.category))
