"""The models that can be asked: what modeld lists, or where it does not run, what the configuration names; and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbles import config
from bubbles.bus.dial import Dial
from bubbles.errors import Misconfigured, Unavailable
from bubbles.paths import Home
from bubbles.programs.modelling import abilities
from bubbles.programs.modelling.keys import KEYED
from bubbles.programs.screen import Block
from bubbles.providers import EMBEDDED, OAUTH, REGISTRY, catalogue
from bubbles.providers.route import is_set_up, route

SIGNED_IN = tuple(name for name, entry in REGISTRY.items() if entry.category == OAUTH)


@dataclass(slots=True)
class Known:
    """`models` are objects with model, provider and what modeld says it can do; `failed`: provider, text and remedy; `live`: modeld told it."""

    models: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    live: bool = False


def known(home: Home, settings: config.Settings, only: str | None = None) -> Known:
    """What can be asked, as the models' door tells it; where it is closed, what the configuration names.

    Vendors and gateways are not asked what they have: of them it is the default, what the configuration names and, with `only`, what
    the list that comes along has.
    """
    try:
        with Dial(home, "modeld") as dial:
            reply, _ = dial.call("model.list")
        found = Known(reply["models"], reply["failed"], True)
    except Unavailable:
        found = Known([{"model": model, "provider": provider} for provider, model in _named(settings)])
    more = [default] if (default := default_of(settings)) and default[0] in KEYED else []
    listed = any(each["provider"] == only for each in found.models)  # by the endpoint itself
    more += [(only, model) for model in catalogue.names(only)] if only in KEYED or (only in SIGNED_IN and not listed) else []
    there = {(each["provider"], each["model"]) for each in found.models}
    found.models += [{"model": model, "provider": name} for name, model in dict.fromkeys(more) if (name, model) not in there]
    return found


def told(found: Known, settings: config.Settings) -> Iterator[dict[str, Any]]:
    """An object a model: id, model, provider, default, capabilities, prices, tiers, source."""
    default = default_of(settings)
    for each in found.models:
        name, model = each["provider"], each["model"]
        more = abilities.told(catalogue.traits(settings, name, model), each.get("capabilities"))
        yield {"id": f"{name}/{model}", "model": model, "provider": name, "default": (name, model) == default, **more}


def default_of(settings: config.Settings) -> tuple[str, str] | None:
    """(provider, model) that is asked where nothing is said, the embedded one by its file's name."""
    try:
        found = route(settings)
    except Misconfigured:
        return None
    return found.provider, Path(settings.providers.embedded.model_path).stem if found.provider == EMBEDDED else found.model


def _named(settings: config.Settings) -> list[tuple[str, str]]:
    """(provider, model) for each model that the configuration itself names."""
    named = [(name, model) for name in REGISTRY for model in getattr(getattr(settings.providers, name), "models", ())]
    found = [(name, model) for name, model in named if is_set_up(REGISTRY[name], settings)]
    if settings.providers.embedded.model_path:
        found.append((EMBEDDED, Path(settings.providers.embedded.model_path).stem))
    default = default_of(settings)
    return found if default is None or default in found else [default, *found]


# -- for people ----------------------------------------------------------------------------------------


def blocks(models: Sequence[dict[str, Any]], found: Known, settings: config.Settings, only: str | None) -> Iterator[Block]:
    """A block a provider that is set up or has models, and one for those that are not set up."""
    missing = []
    for name, entry in REGISTRY.items():
        theirs = [each for each in models if each["provider"] == name]
        if only not in (None, name):
            continue
        if theirs or is_set_up(entry, settings):
            failed = [each for each in found.failed if each["provider"] == name]
            yield _block(name, theirs, failed, live=found.live, all_of_it=only is not None)
        else:
            missing.append(name)
    if missing and only is None:
        block = Block()
        block.add("not set up", ", ".join(missing), mark="off")
        yield block


def _block(name: str, models: Iterable[dict[str, Any]], failed: Iterable[dict[str, Any]], *, live: bool, all_of_it: bool) -> Block:
    block = Block(heads=(name, "window", "can", "$ in / out", ""))
    for each in models:
        last = "default" if each["default"] else ""
        window = abilities.tokens(each["capabilities"]["window_tokens"])
        row = (window, abilities.can(each["capabilities"]), abilities.short_price(each["prices"]), last)
        block.add(each["model"], *row, mark="ok" if each["default"] else "")
    for each in failed:
        block.add_with_remedy("", each["text"], each.get("remedy", ""), mark="bad")
    if name in KEYED and not all_of_it and (count := len(catalogue.names(name))):
        block.add("", f"{count} are known: bubbles models list {name}", mark="off")
    elif not block.rows:
        block.add("", "it lists no models" if live or name in KEYED else "set up; its models are listed while modeld runs", mark="off")
    return block
