"""The configuration as onboarding is to write it: begun from the defaults or from what is there, changed by a wish, put in place at once.

It does not know how a wish came about.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from bubbles import config
from bubbles.config import environment, file
from bubbles.errors import Misconfigured, TryAgain
from bubbles.paths import Home
from bubbles.programs import trial, weights
from bubbles.programs.models import Progress, spelled, suited
from bubbles.providers import EMBEDDED, OAUTH, REGISTRY

Changes = dict[config.Key, Any]
_DONE = {"new": "made", "refresh": "refreshed; your values are kept", "overwrite": "overwritten with the defaults"}


@dataclass(frozen=True, slots=True)
class Wish:
    """Who is to answer. An empty field stays as it is; `model` is the provider's own name for it, `source` a file for the embedded one.

    `keyless`: it is known to want no key.
    """

    provider: str = ""
    base_url: str = ""
    api_key: str = ""
    model: str = ""
    source: Path | None = None
    keyless: bool = False


class Plan:
    """What is to stand in the file (`raw`), and the bytes that it replaces. `how`: "new", "refresh" or "overwrite"."""

    def __init__(self, home: Home, raw: dict[str, Any], how: str, before: bytes | None) -> None:
        self.home = home
        self.how = how
        self.raw = raw
        self._before = before
        self._copied = False

    def settings(self) -> config.Settings:
        """What the sections agents and providers come to, without the environment."""
        return config.settings_of(self.home, self.raw, "agents", "providers")

    def models(self, wish: Wish) -> list[str]:
        """The models of the endpoint that is wished for. Raises Misconfigured or TryAgain, and enters nothing."""
        raw = self._with(_endpoint(self.settings(), replace(wish, model="")))
        return trial.models(self.home, config.settings_of(self.home, raw, "agents", "providers"), wish.provider)

    def set_up(self, wish: Wish) -> None:
        """Enter a wish; the embedded model is fetched if need be. Raises Misconfigured, and enters nothing, where the result would not load."""
        settings = self.settings()
        changes = _embedded(self.home, settings, wish) if wish.provider == EMBEDDED else _endpoint(settings, wish)
        model = changes.get(("agents", "defaults", "model"))
        fitting = suited(settings.agents.defaults, model) if model else {}
        self.raw = self._with(changes | fitting)
        if fitting:
            click.echo(spelled(fitting))

    def enter(self, changes: Changes) -> None:
        """Enter settings. Raises Misconfigured, and enters nothing, where the result would not load."""
        self.raw = self._with(changes)

    def _with(self, changes: Changes) -> dict[str, Any]:
        raw = file.parse(file.render(self.raw), str(self.home.config))
        for key, value in changes.items():
            environment.put(raw, key, value)
        config.check(self.home, raw)
        return raw

    def write(self) -> None:
        """Put the file in place, and beside it a dated copy of what it was. Raises TryAgain where somebody else has changed it meanwhile."""
        data = file.render(self.raw)
        with file.locked(self.home.lock("config")):
            now = held(self.home)
            if now != self._before:
                raise TryAgain(f"{self.home.config} was changed meanwhile", remedy="bubbles onboard")
            if data == now:
                file.tighten(self.home.config)
                click.echo(f"Configuration: {self.home.config} (nothing had to be changed)")
                return
            if now is not None and not self._copied:
                click.echo(f"A copy of the old configuration: {_copy(self.home.config, now)}")
            file.replace(self.home.config, data)
        self._before, self._copied = data, True
        click.echo(f"Configuration: {self.home.config} ({_DONE[self.how]}; only you can read it)")


def held(home: Home) -> bytes | None:
    """The bytes of the configuration, None where there is none. Raises Misconfigured where it cannot be read."""
    try:
        return home.config.read_bytes() if home.config.is_file() or home.config.is_dir() else None
    except OSError as error:
        raise Misconfigured(f"cannot read {home.config}: {error.strerror}", remedy=f"look at: ls -ld {home.config}") from error


def _copy(path: Path, data: bytes) -> Path:
    """The file's bytes under a dated name of their own, mode 0600."""
    stamp = f"{path.name}.{time.strftime('%Y-%m-%d-%H%M%S')}"
    copy = next(place for n in range(1, 1000) if not (place := path.with_name(stamp if n == 1 else f"{stamp}-{n}")).exists())
    file.replace(copy, data)
    return copy


def _embedded(home: Home, settings: config.Settings, wish: Wish) -> Changes:
    """The owner's own model file where one is set and none is given; else the one that is fetched, or is here already."""
    own = Path(settings.providers.embedded.model_path)
    if wish.source is None and own.is_file() and own != home.models / weights.SMOLLM2.file:
        path, model = own, own.stem.lower()
    else:
        with Progress() as progress:
            path, model = weights.fetch(home, progress, wish.source)
    return {("providers", EMBEDDED, "model_path"): str(path), **_default(EMBEDDED, model)}


def _endpoint(settings: config.Settings, wish: Wish) -> Changes:
    changes: Changes = {}
    if wish.provider:
        old = getattr(settings.providers, wish.provider)
        if wish.base_url and wish.base_url.rstrip("/") != old.base_url:
            # What one host was trusted with, another is not told.
            changes |= {("providers", wish.provider, name): value for name, value in (("base_url", wish.base_url), ("api_key", ""), ("headers", {}))}
        if wish.api_key:
            changes["providers", wish.provider, "api_key"] = wish.api_key
    if wish.provider and REGISTRY[wish.provider].category == OAUTH:  # nobody is led to it by a model's name
        return changes | {("agents", "defaults", name): value for name, value in (("model", wish.model), ("provider", wish.provider)) if value}
    return changes | (_default(wish.provider, wish.model) if wish.model else {})


def _default(provider: str, model: str) -> Changes:
    """The model's name begins with its provider: who answers can be read from that one line."""
    return {("agents", "defaults", "model"): f"{provider}/{model}" if provider else model, ("agents", "defaults", "provider"): ""}
