"""Which provider answers for a model's name, and why: readable from the name and the configuration alone. Pure.

Where two providers have an equal claim to a name, neither gets it: whose it is decides where a conversation goes, and who is paid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
    (5) the one that is set up and takes any model: a gateway, custom, Ollama, vLLM; where no model is named, custom or the
    embedded one. Of several by (2), (4) or (5) none is taken: that is an error, which names them. A provider that needs a login is
    found by (1) alone. A model of agents.defaults.fallbacks is found by its own name: agents.defaults.provider is whom it stands in for.
    """
    defaults = settings.agents.defaults
    model = model or defaults.model
    stands_in = model in defaults.fallbacks and model != defaults.model
    if named := provider or ("" if stands_in else defaults.provider):
        entry = find(named)
        why = f"the provider {entry.name} is named" if provider else f"agents.defaults.provider is {entry.name}"
        return _to(entry, _model(entry, settings, _without_prefix(entry, model)), why)
    found = _by_list(settings, model) or _by_prefix(settings, model) or _by_keyword(settings, model) or _by_default(settings, model)
    if found is None:
        where = f"no provider that is set up answers for the model {model!r}" if model else "no model is set up"
        meant = _meant(model, [entry for entry in REGISTRY.values() if entry.category != OAUTH])
        if len({entry.name for *_, entry in meant}) == 1:
            entry = meant[0][-1]
            raise Misconfigured(f"{where}: it is {entry.title}'s, which is not set up", remedy=f"bubbles onboard --provider {entry.name}")
        raise Misconfigured(where, remedy="bubbles onboard")
    return found


def is_set_up(entry: Entry, settings: Any) -> bool:
    """Whether the owner has given a provider what it needs: a key (or the headers that hold it), an address, a file."""
    section = getattr(settings.providers, entry.name)
    if entry.category == EMBEDDED:
        return bool(section.model_path)
    if entry.category == SELF_HOSTED:
        return bool(section.base_url or (entry.base_url and section.models))
    if entry.category == OAUTH:
        return False  # by a login, of which the configuration knows nothing
    return bool(revealed(section.api_key) or section.headers)  # a header may hold the key


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
    return _named(entry, rest) if slash and rest and _fold(prefix) == _fold(entry.name) else model


def _fold(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _named(entry: Entry, rest: str) -> str:
    """The provider's own name for what follows `NAME/`. OpenRouter's names are all VENDOR/MODEL: of `openrouter/auto` it is itself the vendor."""
    return f"{entry.name}/{rest}" if entry.name == "openrouter" and "/" not in rest else rest


def _one(model: str, claims: Sequence[tuple[Entry, str]], why: str) -> Entry | None:
    """The one provider that claims a name, each with how the name is written so that it is meant. Raises Misconfigured where there are more."""
    if len(claims) < 2:
        return claims[0][0] if claims else None
    names, spelled = _either([entry.name for entry, _ in claims]), _either([written for _, written in claims])
    raise Misconfigured(f"the model {model!r} may be that of {names}: {why}", remedy=f"write {spelled}, or set agents.defaults.provider")


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _by_list(settings: Any, model: str) -> Route | None:
    """A name that the configuration itself spells out."""
    if not model:
        return None
    listed = [each for each in REGISTRY.values() if each.category == SELF_HOSTED and model in getattr(settings.providers, each.name).models]
    claims = [(entry, f"{entry.name}/{model}") for entry in listed]
    file = settings.providers.embedded.model_path
    if file and model.lower() in (EMBEDDED, PurePath(file).stem.lower()):
        claims.append((REGISTRY[EMBEDDED], f"{EMBEDDED}/{model}"))
    entry = _one(model, claims, "each of them lists it")
    if entry is None:
        return None
    if entry.category == EMBEDDED:
        return _to(entry, PurePath(file).stem, "it is the file of providers.embedded.model_path")
    return _to(entry, model, f"the model is listed in providers.{entry.name}.models")


def _by_prefix(settings: Any, model: str) -> Route | None:
    prefix, slash, rest = model.partition("/")
    entry = next((each for each in REGISTRY.values() if _fold(each.name) == _fold(prefix)), None)
    if not slash or not rest or entry is None:
        return None
    if entry.category == OAUTH:
        raise Misconfigured(f"{entry.title} is used only where it is chosen by name", remedy=f"set agents.defaults.provider to {entry.name}")
    why = f'the model\'s name begins with "{prefix}/"'
    if entry.category in (SELF_HOSTED, EMBEDDED) or is_set_up(entry, settings):
        return _to(entry, _model(entry, settings, _named(entry, rest)), why)
    # `anthropic/claude-…` is also how gateways and many self-hosted servers spell the model of another vendor.
    if other := _taker(settings, model):
        return _to(other, model, f"{why}, but {entry.name} has no key; {other.name} is set up and takes any model")
    return _to(entry, rest, why)


def _by_keyword(settings: Any, model: str) -> Route | None:
    """A keyword counts where it begins a word; the one that comes first in the name decides, of two at one place the longer."""
    found = _meant(model, [entry for entry in REGISTRY.values() if entry.category != OAUTH and is_set_up(entry, settings)])
    if not found:
        return None
    word = found[0][0]
    claims = [(entry, f"{entry.name}/{model}") for _, entry in found]
    entry = _one(model, claims, f'"{word}" in its name means each of them')
    return _to(entry, _model(entry, settings, model), f'"{word}" in the model\'s name means {entry.name}') if entry else None


def _meant(model: str, entries: Sequence[Entry]) -> list[tuple[str, Entry]]:
    """Those of `entries` whose keyword decides, each with that word."""
    found = [
        (at.start(), -len(word), word, entry)
        for entry in entries
        for word in entry.keywords
        if (at := re.search(rf"(?<![a-z0-9]){re.escape(word)}", model.lower()))
    ]
    best = min((one[:2] for one in found), default=None)
    return [(word, entry) for *place, word, entry in found if tuple(place) == best]


def _by_default(settings: Any, model: str) -> Route | None:
    if not model:
        for entry in (REGISTRY["custom"], REGISTRY[EMBEDDED]):
            if is_set_up(entry, settings):
                return _to(entry, _model(entry, settings, model), f"no model is named; {entry.name} is set up")
        return None
    if taker := _taker(settings, model):
        return _to(taker, model, f'nothing in the name "{model}" means a provider that is set up; {taker.name} is, and takes any model')
    return None


def _taker(settings: Any, model: str) -> Entry | None:
    """The one that is set up and takes any model's name. Raises Misconfigured where there are several."""
    takers = [entry for entry in REGISTRY.values() if entry.category in (GATEWAY, SELF_HOSTED) and is_set_up(entry, settings)]
    return _one(model, [(entry, f"{entry.name}/{model}") for entry in takers], "each of them is set up and takes any model")
